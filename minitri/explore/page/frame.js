// ---- frame.js: panes side by side, the rail of stages, the status line, keys, search --------------

const NARROW = matchMedia('(max-width: 720px)');

class Page {
  constructor(document_, app) {
    Object.assign(this, {app, panes: [], splits: []});
    this.take(document_);
    this.kept = new URLSearchParams(location.hash.slice(1)).get('program');
    this.build();
    const {panes, pin, walked} = this.fromHash();
    for (const [id, at] of panes) this.add(id, at);
    this.activate(this.panes.at(-1));
    if (pin) this.links.pinned(...pin);
    this.status();
    this.walk.begin(walked);
    document.addEventListener('keydown', e => this.key(e));
    addEventListener('beforeprint', () => this.panes.forEach(p => (p.view.view ?? p.view).all?.()));
    if (document_.live) this.edited(document_);
  }

  /** What a document holds. */
  take(document_) {
    Object.assign(this, {document: document_, programs: document_.programs, links: new Links(document_.programs)});
    this.kinds = this.programs.map((p, k) => kinds(p, k, this.links, this));
    this.links.views.add({light: kept => this.status(kept)});
    setTimeout(() => this.programs.forEach(p => p.stages.filter(s => s.links).forEach(tableOf)));
  }

  /** Another document in the same panes. What is lit stays so if the graph is the same. */
  replace(document_) {
    const places = this.panes.map(p => p.view.root?.scrollTop ?? 0), {pin, hover} = this.links, labels = () => this.programs[0].marks.map(m => m.label).join();
    const before = labels();
    this.take(document_);
    if (labels() === before) Object.assign(this.links, {pin, hover});
    this.heading();
    this.panes.forEach((p, k) => {
      p.show(p.wanted ?? p.id, Math.min(p.at, this.programs.length - 1));
      if (p.view.root) p.view.root.scrollTop = places[k];
    });
    this.main.classList.remove('stale');
    this.walk.replaced();
    this.status();
  }

  edited(document_) {
    this.editor = new Editor(this, document_.live);
    this.main.prepend(this.editor.node);
    this.settle();
    this.editor.start(document_);
  }

  build() {
    this.find = el('input', {type: 'search', placeholder: 'search ( / )', 'aria-label': 'search all panes', spellcheck: 'false',
      oninput: () => this.panes.forEach(p => p.search(this.find.value)),
      onkeydown: e => {
        if (e.key === 'Enter') this.active.view.following(e.shiftKey ? -1 : 1);
        if (e.key === 'Escape') { this.find.value = ''; this.panes.forEach(p => p.search('')); this.active.focus?.(); this.find.blur(); }
        e.stopPropagation();
      }});
    const button = (text, hint, act) => el('button', {'data-tip': hint, 'aria-label': hint, onclick: act}, text);
    this.title = el('div', {class: 'title'});
    this.walk = new Walk(this);
    this.top = el('header', {class: 'top'}, this.title, el('span', {class: 'space'}), this.find, this.walk.opener,
      button('+', 'one more pane (+)', () => this.more()), button('◐', 'light or dark (t)', () => this.theme()),
      button('?', 'keys and help (?)', () => this.help.showModal()));
    this.rail = el('nav', {class: 'rail', 'aria-label': 'stages'});
    this.main = el('main');
    this.line = el('footer', {class: 'status', role: 'status', 'aria-live': 'off'});
    this.help = helpDialog(this.document.live ? [...KEYS, ...EDITOR_KEYS] : KEYS, () => this.document.command, text => this.copied(text));
    this.heading();
    this.app.replaceChildren(this.top, this.rail, this.walk.node, this.main, this.line, this.help);
    this.tip = new Tip(this.app);
    document.documentElement.style.colorScheme = stored('theme') ?? 'light dark';
  }

  heading() {
    this.title.replaceChildren(el('h1', {}, this.document.title), ...this.programs.map(p => el('span', {class: 'chip', 'data-tip': facts(p)}, facts(p))));
    document.title = `${this.document.title} · minitri`;
  }

  // -- panes --

  add(id, at = 0) {
    const pane = new Pane(this, id, at);
    this.panes.push(pane);
    this.main.append(pane.node);
    this.settle();
    return pane;
  }

  more() {
    if (this.panes.length >= 4) return;
    const shown = this.panes.map(p => p.id), table = this.kinds[0];
    const next = ['triton', 'ptx', 'drawn', ...table.map(k => k.id)].find(id => !shown.includes(id) && table.some(k => k.id === id));
    this.activate(this.add(next ?? 'source', this.active.at));
  }

  remove(pane) {
    if (this.panes.length < 2) return;
    this.links.views.delete(pane.view);
    pane.view.close();
    pane.node.remove();
    this.panes = this.panes.filter(p => p !== pane);
    if (this.active === pane) this.activate(this.panes.at(-1));
    this.settle();
  }

  /** Bars between neighbours, and headers that know whether there are other panes. */
  settle() {
    this.splits.forEach(s => s.node.remove());
    const row = this.editor ? [this.editor, ...this.panes] : this.panes;
    this.splits = row.slice(1).map((pane, k) => new Split(row[k], pane));
    this.splits.forEach(s => s.after.node.before(s.node));
    this.panes.forEach(p => p.header(this.kinds[p.at]));
    this.changed();
  }

  /** Puts a pane to another place; where it was scrolled to stays. */
  move(pane, to) {
    const from = this.panes.indexOf(pane), top = pane.view.root?.scrollTop;
    if (to === from || !this.panes[to]) return;
    this.panes[to].node[to > from ? 'after' : 'before'](pane.node);
    this.panes.splice(to, 0, ...this.panes.splice(from, 1));
    this.settle();
    if (top) pane.view.root.scrollTop = top;
  }

  /** A stage from the rail: in the pane that has it, else in the active one. The source keeps its place. */
  open(id) {
    const {active, panes} = this, other = panes.findLast(p => p !== active && p.id !== 'source');
    const there = panes.find(p => p.id === id && p.at === active.at);
    const pane = there ?? (active.id !== 'source' ? active : other ?? this.add(id, active.at));
    if (pane.id !== id) pane.show(id, active.at);
    this.activate(pane);
  }

  /** These stages side by side, and nothing else. */
  arrange(ids) {
    while (this.panes.length > ids.length) this.remove(this.panes.at(-1));
    ids.forEach((id, k) => this.panes[k] ? this.panes[k].id !== id && this.panes[k].show(id, 0) : this.add(id));
    this.activate(this.panes.at(-1));
  }

  activate(pane) {
    if (this.active === pane) return;
    this.active = pane;
    this.panes.forEach(p => p.node.classList.toggle('active', p === pane));
    this.changed();
  }

  /** Panes, stages or pins are others now: the rail and the address say so. */
  changed() {
    if (!this.active) return;
    this.main.dataset.panes = this.panes.length;
    const shown = this.panes.map(p => p.id);
    this.panes.forEach(p => p.node.classList.toggle('active', p === this.active));
    const shape = k => `${shown.includes(k.id) ? 'shown' : ''} ${k.missing ? (k.waits ? 'waiting' : 'missing') : ''} ${k.apart ? 'apart' : ''}`;
    renew(this.rail, ...this.kinds[this.active.at].map(k => el('button', {'aria-pressed': k.id === this.active.id, class: shape(k),
      'data-stage': k.id, 'data-tip': k.missing ?? k.title, onclick: () => this.open(k.id)}, k.id, el('sup'))));
    this.count();
    this.toHash();
  }

  // -- the address holds what is shown --

  fromHash() {
    const given = new URLSearchParams(location.hash.slice(1));
    const asked = (given.get('panes') ?? this.document.panes?.join() ?? '').split(',').map(w => w.split('@')).map(([id, at]) => [id, at in this.programs ? Number(at) : 0])
      .filter(([id, at]) => this.kinds[at].some(k => k.id === id)).slice(0, 4);
    const panes = asked.length ? asked : this.ordinary(), step = Number(given.get('walk') ?? !(asked.length || this.document.live));
    const [at, ...marks] = (given.get('pin') ?? '').split('.').map(Number);
    return {panes, walked: Math.max(0, Math.trunc(step) || 0), pin: at in this.programs && marks.length ? [at, marks.filter(m => m in this.programs[at].marks)] : null};
  }

  /** What is open where nobody has said anything else. */
  ordinary() {
    const ids = this.document.live ? NARROW.matches ? ['triton'] : ['drawn', 'triton'] : NARROW.matches ? ['source', 'triton'] : ['source', 'drawn', 'triton'];
    const there = ids.filter(id => this.kinds[0].some(k => k.id === id));
    if (this.programs.length > 1) return [[there.at(-1), 0], [there.at(-1), 1], ['diff', 1]];
    return (there.length ? there : ['source']).map(id => [id, 0]);
  }

  toHash() {
    const panes = this.panes.map(p => p.id + (p.at ? `@${p.at}` : '')).join();
    const {pin} = this.links, held = pin ? `&pin=${[pin.program, ...pin.marks].join('.')}` : '';
    const {kept} = this, step = this.walk.number ? `&walk=${this.walk.number}` : '';
    try { history.replaceState(null, '', `#panes=${panes}${held}${step}${kept ? `&program=${kept}` : ''}`); } catch { /* a sandbox may forbid it */ }
  }

  // -- the status line, and the counts in the rail --

  status(kept = true) {
    const {current} = this.links, explained = this.active?.view.explained;
    if (!current) {
      this.line.replaceChildren(el('span', {class: 'hint'}, NARROW.matches ? 'Tap a line: its counterparts light up.'
        : 'Point at a line, a node or a span: its counterparts light up. A click keeps them. ? for keys.'));
    } else {
      const program = this.programs[current.program], marks = [...current.marks].map(m => program.marks[m]), most = NARROW.matches ? 1 : 2;
      const named = marks.slice(0, most).map(m => el('span', {class: 'mark'}, spelled(program, m)));
      const rest = marks.length > most ? `and ${marks.length - most} more` : '';
      this.line.replaceChildren(...named, rest, el('span', {class: 'where'}, places(program, marks)), explained ? el('span', {class: 'explained'}, explained) : '');
    }
    this.count();
    if (kept && this.active) this.toHash();
  }

  /** How many lines of each stage belong to what is lit: small numbers in the rail. */
  count() {
    const {current} = this.links;
    for (const stage of this.programs[current?.program ?? 0].stages) {
      const number = this.rail.querySelector(`[data-stage="${stage.name}"] sup`);
      if (number) number.textContent = (current && stage.links && linesOf(tableOf(stage), current.marks).size) || '';
    }
  }

  // -- keys --

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return;
    if (e.target.closest('input, textarea, select, .cm-editor')) return;
    const view = this.active.view;
    const keys = {
      ArrowDown: () => view.step(1), ArrowUp: () => view.step(-1), j: () => view.step(1), k: () => view.step(-1),
      Enter: () => e.target.closest('button') ? false : view.hold(),
      ArrowLeft: () => this.active.turn(-1), ArrowRight: () => this.active.turn(1),
      Escape: () => { this.links.pinned(0, []); this.links.point(0, []); },
      '/': () => this.find.focus(), n: () => view.following(1), N: () => view.following(-1),
      c: () => this.copy(this.active), w: () => view.wrap?.(), t: () => this.theme(), '?': () => this.help.showModal(),
      '<': () => this.move(this.active, this.panes.indexOf(this.active) - 1), '>': () => this.move(this.active, this.panes.indexOf(this.active) + 1),
      '+': () => this.more(), '-': () => this.remove(this.active), e: () => this.editor ? this.editor.focus() : false,
    };
    if (/^[1-4]$/.test(e.key) && this.panes[e.key - 1]) keys[e.key] = () => {
      this.activate(this.panes[e.key - 1]);
      this.active.node.querySelector('[tabindex]')?.focus();
    };
    if (keys[e.key] && keys[e.key]() !== false) e.preventDefault();
  }

  theme() {
    const dark = document.documentElement.style.colorScheme === 'light dark'
      ? matchMedia('(prefers-color-scheme: dark)').matches : document.documentElement.style.colorScheme === 'dark';
    const next = dark ? 'light' : 'dark';
    document.documentElement.style.colorScheme = next;
    stored('theme', next);
    this.panes.forEach(p => p.view.light(false));
  }

  copy(pane) { this.copied(pane.view.whole, `copied ${pane.id}`); }

  async copied(text, said = 'copied') {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // a page from a file may not: the old way
      const area = el('textarea', {class: 'offscreen'});
      area.value = text;
      (this.help.open ? this.help : document.body).append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
    this.line.replaceChildren(el('span', {class: 'hint'}, said));
  }
}

/** `cuda:90 · M = 512 K = 512`. */
function facts({label, target, sizes}) {
  const known = Object.entries(sizes).map(([n, v]) => `${n}=${v}`).join(' ');
  return [label, target, known || 'any sizes'].filter(Boolean).join(' · ');
}

/** `exp(x): f32[M, N]`: the text of an operation, which has another number at each stage, or its line without the number. */
function spelled(program, {label, spans: [span]}) {
  const [, type, operation] = label.match(/^%\d+: (.*?) = (.*)$/) ?? [];
  if (!type) return label;
  const text = span ? program.sources[span[0]].text.slice(span[1], span[2]).replace(/\s+/g, ' ') : '';
  return `${text && text.length < 60 ? text : operation.split(' ')[0]}: ${type}`;
}

/** `linear.mt:3:12`, of each mark once. */
function places(program, marks) {
  const all = marks.flatMap(m => m.spans).map(([s, start]) => {
    const {name, text, line} = program.sources[s];
    const before = text.slice(0, start).split('\n');
    return `${name}:${line + before.length - 1}:${before.at(-1).length + 1}`;
  });
  const once = [...new Set(all)];
  const most = NARROW.matches ? 1 : 3;
  return once.slice(0, most).join(', ') + (once.length > most ? ' …' : '');
}

function stored(key, value) {
  try {
    return value === undefined ? localStorage.getItem(key) : localStorage.setItem(key, value);
  } catch { return null; } // storage may be off
}

const KEYS = [['↑ ↓', 'line up, line down: its counterparts light up; in the player a step back, a step on'], ['Enter, click', 'keep them lit; again: let go'], ['Esc', 'nothing lit'],
  ['← →', 'stage before, stage after'], ['1 … 4', 'go to a pane'], ['+ −', 'one pane more, this pane away'], ['< >', 'this pane to the left, to the right; or drag its header'], ['/', 'search all panes'],
  ['n N', 'next, previous of what is found or lit'], ['Tab', 'to a bar between two panes: the arrow keys move it'], ['c', 'copy this stage'], ['w', 'wrap long lines'], ['t', 'light, dark'], ['?', 'this help']];

const EDITOR_KEYS = [['e', 'to the editor'], ['Tab', 'in the editor: take the completion, or indent'], ['Esc Tab', 'leave the editor'], ['Ctrl-Space', 'names that fit'],
  ['F8', 'next problem'], ['Ctrl-Enter', 'keep lit what the cursor is in']];

function helpDialog(keys, command, copy) {
  const rows = keys.map(([key, what]) => el('tr', {}, el('th', {}, key), el('td', {}, what)));
  const again = el('pre', {class: 'command'});
  const dialog = el('dialog', {class: 'help', 'aria-label': 'help'}, el('h2', {}, 'Keys'), el('table', {}, ...rows),
    el('p', {}, 'This page again:'), again, el('button', {onclick: () => copy(command())}, 'copy the command'),
    el('form', {method: 'dialog'}, el('button', {}, 'close')));
  dialog.addEventListener('click', e => e.target === dialog && dialog.close());
  dialog.addEventListener('toggle', () => { again.textContent = command(); });
  again.textContent = command();
  return dialog;
}
