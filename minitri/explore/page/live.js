// ---- live.js: the editor of a served page ---------------------------------------------------------
// document.live = {examples: [{name, text, sizes}], targets: […]}. A change is sent to the page's own
// server, first for the stages that are ours, then for all of them:
//     POST explore   {text, sizes: {M: 512}, target, all}   →   a document, or {error: {code, message, text}}

const WAIT = 200; // milliseconds without a key before a program is sent

class Editor {
  constructor(page, {examples, targets}) {
    Object.assign(this, {page, examples, number: 0});
    this.text = el('textarea', {spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', 'aria-label': 'program', oninput: () => this.changed()});
    this.sizes = el('input', {type: 'text', placeholder: 'sizes: M=512 K=64', 'aria-label': 'sizes', spellcheck: 'false', oninput: () => this.changed()});
    this.target = el('select', {'aria-label': 'target', onchange: () => this.changed()}, ...targets.map(t => el('option', {}, t)));
    this.example = el('select', {'aria-label': 'examples', onchange: () => this.choose(examples[this.example.value])},
      el('option', {value: ''}, 'examples …'), ...examples.map((e, k) => el('option', {value: k}, e.name)));
    this.state = el('span', {class: 'hint', role: 'status'});
    this.said = el('pre', {class: 'diagnostic', role: 'alert', hidden: true});
    this.node = el('aside', {class: 'editor', 'aria-label': 'editor'},
      el('header', {}, this.example, this.target, this.state, el('button', {title: 'copy a link that holds the program', onclick: () => this.link()}, 'link')),
      this.text, this.said, this.sizes);
    this.text.addEventListener('keydown', e => this.indent(e));
  }

  /** Begins with the program of the address, else with what the page shows. */
  async start(document_) {
    const held = new URLSearchParams(location.hash.slice(1)).get('program');
    const own = {text: document_.programs[0].sources[0].text, sizes: document_.programs[0].sizes, target: document_.programs[0].target};
    let chosen = own;
    try { if (held) chosen = await unpackedLink(held); } catch { this.fail('the link is damaged'); }
    this.choose(chosen, !held && !document_.programs[0].quick);
  }

  choose({text, sizes = {}, target}, quietly = false) {
    this.text.value = text;
    this.sizes.value = Object.entries(sizes).map(([n, v]) => `${n}=${v}`).join(' ');
    if (target) this.target.value = target;
    if (!quietly) this.changed();
  }

  get request() {
    const sizes = {};
    for (const [, name, value] of this.sizes.value.matchAll(/([A-Za-z_]\w*)\s*=\s*(\d+(?:,\d+)*,?)/g)) {
      sizes[name] = value.includes(',') ? value.split(',').filter(Boolean).map(Number) : Number(value);
    }
    return {text: this.text.value, sizes, target: this.target.value};
  }

  changed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.send(), WAIT);
  }

  /** Asks twice: soon there is what the compiler itself makes, later the machine code. */
  async send() {
    const number = ++this.number, request = this.request;
    this.keep(request);
    for (const all of [false, true]) {
      const start = performance.now();
      this.state.textContent = all ? 'Triton …' : '…';
      const answer = await asked({...request, all});
      if (number !== this.number) return; // somebody typed on
      if (answer.error) return this.fail(answer.error.text ?? answer.error.message);
      this.said.hidden = true;
      this.page.replace(answer);
      this.state.textContent = `${Math.round(performance.now() - start)} ms`;
    }
  }

  fail(text) {
    const lines = text.split('\n'); // what helps may wrap; the line with its caret must not
    this.said.replaceChildren(...lines.map((line, k) => el('div', {class: k === 0 || /^\s*= /.test(line) ? 'help' : ''}, line)));
    this.said.hidden = false;
    this.state.textContent = '';
    this.page.main.classList.add('stale');
  }

  /** Two spaces short of a real editor: Tab indents, Enter keeps the margin. */
  indent(e) {
    const {selectionStart: at, value} = this.text;
    if (e.key === 'Tab' && !e.shiftKey) this.insert('    ', e);
    if (e.key === 'Enter') {
      const line = value.slice(value.lastIndexOf('\n', at - 1) + 1, at);
      this.insert(`\n${line.match(/^\s*/)[0]}${/:\s*$/.test(line) ? '    ' : ''}`, e);
    }
    e.stopPropagation();
  }

  insert(text, e) {
    e.preventDefault();
    this.text.setRangeText(text, this.text.selectionStart, this.text.selectionEnd, 'end');
    this.changed();
  }

  async keep(request) {
    const given = new URLSearchParams(location.hash.slice(1));
    this.page.kept = await packedLink(request);
    given.set('program', this.page.kept);
    this.page.toHash();
  }

  async link() {
    await this.keep(this.request);
    this.page.copied(location.href, 'copied a link that holds the program');
  }
}

async function asked(request) {
  try {
    const answer = await fetch('explore', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(request)});
    return await answer.json();
  } catch {
    return {error: {message: 'the server does not answer'}};
  }
}

const url64 = bytes_ => btoa(String.fromCharCode(...bytes_)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');

async function packedLink(request) {
  const stream = new Blob([JSON.stringify(request)]).stream().pipeThrough(new CompressionStream('deflate-raw'));
  return url64(new Uint8Array(await new Response(stream).arrayBuffer()));
}

const unpackedLink = text => unpacked(text.replace(/-/g, '+').replace(/_/g, '/'));
