// ---- live.js: the editor of a served page ---------------------------------------------------------
// document.live = {first, examples, targets: […], completions, nonce}. A change is sent to the page's own server, first
// for the stages that are ours, then for all of them:
//     POST explore   {text, sizes: {M: 512}, target, all}   →   a document, or {error} (compile_worker.py)

const WAIT = 200; // milliseconds without a key before a program is sent

class Editor {
  constructor(page, live) {
    Object.assign(this, {page, number: 0, share: 1, id: 'the editor'});
    const button = (text, hint, act) => el('button', {class: 'quiet', 'data-tip': hint, onclick: act}, text);
    this.code = new CodeView(page, live, () => this.changed());
    this.sizes = new Sizes(() => this.changed());
    this.problems = new Problems(this.code);
    this.target = el('select', {'aria-label': 'target', onchange: () => this.changed()}, ...live.targets.map(t => el('option', {}, t)));
    this.gallery = new Gallery(live.examples, example => this.choose(example));
    this.file = el('input', {type: 'file', accept: '.mt,.txt', hidden: true, onchange: () => this.opened(this.file.files[0])});
    this.state = el('span', {class: 'hint', role: 'status'});
    this.node = el('aside', {class: 'editor', 'aria-label': 'editor'},
      el('header', {}, button('examples', 'programs to begin with', () => this.gallery.open()),
        button('open', 'open a file; or drop it anywhere', () => this.file.click()), button('save', 'save the program with its sizes and its target, as one file', () => saved(this.request)),
        button('link', 'copy a link that holds the program, for this machine', () => this.link()), el('span', {class: 'space'}), this.state, this.target),
      this.sizes.node, this.code.node, this.problems.node, this.file, this.gallery.node);
    droppable(page.app, file => this.opened(file));
  }

  focus() { this.code.focus(); }

  /** Begins with the program of the address, else with what the page shows. */
  async start(document_) {
    const held = new URLSearchParams(location.hash.slice(1)).get('program'), [program] = document_.programs;
    this.choose({target: program.target, ...document_.live.first}, true);
    this.answered(document_, this.request);
    try {
      if (held) this.choose(await unpackedLink(held));
      else if (program.quick) this.changed();
    } catch { this.fail({message: 'the link is damaged'}); }
  }

  /** Another program, with its sizes. `first`: the one that the page was made with. */
  choose({text, sizes = {}, target}, first = false) {
    this.code.replace(String(text), first);
    this.sizes.set(sizes);
    if (target) this.target.value = target;
    if (first) clearTimeout(this.timer);
    else this.changed();
  }

  async opened(file) {
    this.file.value = ''; // the same file may be chosen again
    if (!file) return;
    try {
      this.choose(await programIn(file));
    } catch (error) { this.fail({message: error.message}); }
  }

  get request() {
    return {text: this.code.text, sizes: this.sizes.request, target: this.target.value};
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
      this.state.textContent = answer.error ? '' : `${Math.round(performance.now() - start)} ms`;
      if (answer.error && all) return this.problems.show(answer, request.text); // minitri's own stages are right
      this.answered(answer, request);
      if (answer.error) return;
    }
  }

  answered(answer, {text}) {
    if (answer.error) return this.fail(answer.error, answer.named, text);
    this.sizes.show(answer.named ?? {});
    if (answer !== this.page.document) this.page.replace(answer);
    this.code.linked();
    this.problems.show(answer, text);
  }

  fail(error, named = {}, text = this.code.text) {
    if (Object.keys(named).length) this.sizes.show(named);
    const missing = error.message.match(/needs its argument `(\w+)`$/)?.[1];
    if (named[missing] === 'int') error.help ||= `give \`${missing}\` a value in its field above`;
    this.problems.show({error}, text);
    this.page.main.classList.add('stale');
  }

  async keep(request) {
    this.page.kept = await packedLink(request);
    this.page.toHash();
  }

  async link() {
    await this.keep(this.request);
    this.page.copied(location.href, 'copied a link that holds the program; it works while `minitri explore --serve` runs on this machine');
  }
}

async function asked(request) {
  try {
    const answer = await fetch('explore', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(request)});
    return await answer.json();
  } catch {
    return {error: {message: 'the server does not answer', help: 'start `minitri explore --serve` again: this page then goes on'}};
  }
}
