// ---- pane.js: one pane: a stage, or one of the views that other files add ------------------------

const LANGUAGES = {source: 'python', triton: 'python', ttir: 'mlir', ttgir: 'mlir', llir: 'llvm', ptx: 'ptx', sass: 'sass', amdgcn: 'amdgcn'};

/** What a pane can show of a program: [{id, title, make}], in the order of the pipeline. */
function kinds(program, at, links, page) {
  const {about, words} = page.document, titled = kind => ({...kind, title: about[kind.id] ?? ''});
  const source = {id: 'source', make: () => new TextView(at, sourceLines(program), links, {label: 'source', wrapped: true})};
  const stages = program.stages.map(stage => ({id: stage.name, missing: stage.missing, waits: program.quick,
    make: () => stage.missing ? new Note(stage.missing) : stageView(stage, at, links, words)}));
  const drawn = {id: 'drawn', make: () => new DrawingView(at, program.views, links)};
  const place = stages.findIndex(s => s.id === 'graph.simplified') + 1;
  if (program.views.length) stages.splice(place, 0, drawn);
  return [source, ...stages, ...EXTRA.flatMap(extra => extra(program, at, links, page))].map(titled);
}

/** Panes that other files add: (program, number, links, page) → kinds. */
const EXTRA = [];

function stageView(stage, at, links, words) {
  const language = LANGUAGES[stage.name] ?? 'ours';
  return new TextView(at, stageLines(stage), links, {label: stage.name, table: tableOf(stage), language, words: words[language]});
}

/** A pane that has nothing to show says why. */
class Note {
  constructor(text) {
    this.node = el('p', {class: 'note'}, text);
    this.whole = text;
  }
  light() {} step() {} hold() {} following() {} close() {}
  search() { return 0; }
}

class Pane {
  constructor(page, kind, at) {
    this.page = page;
    this.share = 1; // of the width, beside the shares of the other panes
    this.head = el('header');
    this.node = el('section', {class: 'pane'}, this.head);
    this.node.addEventListener('pointerdown', () => page.activate(this), true);
    this.node.addEventListener('focusin', () => page.activate(this));
    this.head.addEventListener('pointerdown', e => e.target.matches('header, .space') && this.head.setPointerCapture(e.pointerId));
    this.head.addEventListener('pointerup', e => this.head.hasPointerCapture(e.pointerId) && this.dropped(e));
    this.show(kind, at);
  }

  show(id, at = this.at) {
    const {page} = this;
    const table = page.kinds[at];
    const kind = table.find(k => k.id === id) ?? table[0];
    this.wanted = id; // it may come back with another document
    if (this.view) { page.links.views.delete(this.view); this.view.close(); }
    Object.assign(this, {id: kind.id, at, view: kind.make()});
    this.node.className = `pane is-${kind.id.replaceAll('.', '-')}`;
    if (this.node.lastChild !== this.head) this.node.lastChild.remove();
    this.node.append(this.view.node);
    this.header(table);
    page.links.views.add(this.view);
    this.view.light(true);
    page.changed();
  }

  header(table) {
    const {page} = this, title = table.find(k => k.id === this.id).title;
    const select = el('select', {'aria-label': 'what this pane shows', onchange: e => this.show(e.target.value)},
      ...table.map(k => el('option', {value: k.id, selected: k.id === this.id}, k.id)));
    const program = page.programs.length > 1 && el('select', {'aria-label': 'program', class: 'program',
      onchange: e => this.show(this.id, Number(e.target.value))},
      ...page.programs.map((p, k) => el('option', {value: k, selected: k === this.at}, facts(p))));
    this.found = el('span', {class: 'found'});
    renew(this.head, ...[select, program, el('span', {class: 'space'}), this.found,
      title && el('button', {class: 'quiet', 'aria-label': title, 'data-tip': title}, 'i'),
      el('button', {class: 'quiet', 'data-tip': 'copy this stage (c)', onclick: () => page.copy(this)}, 'copy'),
      page.panes.length > 1 && el('button', {class: 'quiet', 'data-tip': 'close this pane (-)', 'aria-label': 'close', onclick: () => page.remove(this)}, '×'),
    ].filter(Boolean));
  }

  /** The header was dragged onto another pane: this one takes its place. */
  dropped({clientX, clientY}) {
    const there = this.page.panes.findIndex(p => p.node.contains(document.elementFromPoint(clientX, clientY)));
    if (there >= 0) this.page.move(this, there);
  }

  search(text) {
    const count = this.view.search(text);
    this.found.textContent = text ? `${count} found` : '';
    if (count) this.view.following(1);
  }

  /** The stage before or after. */
  turn(by) {
    const table = this.page.kinds[this.at], k = table.findIndex(kind => kind.id === this.id);
    this.show(table[(k + by + table.length) % table.length].id);
  }
}
