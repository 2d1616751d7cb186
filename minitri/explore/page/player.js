// ---- player.js: the grid of a small instance, program by program, step by step ------------------

EXTRA.push((program, at, links) => [{id: 'player', apart: true,
  make: () => program.player ? new Player(program.player, at, links) : new Note(program.quick ? SOON : TOO_LARGE)}]);

const SOON = 'Wait a moment: the small instance is being run.';
const TOO_LARGE = 'The sizes that this program fixes are too large to show each element, or there are none.';

class Player {
  constructor(data, program, links) {
    Object.assign(this, {data, program, links, number: 0, place: 0, at: 0, without: null, timer: null, zoomed: false});
    this.arrays = new Map(data.arrays.map(a => [a.name, a]));
    const button = (text, label, act) => el('button', {'aria-label': label, 'data-tip': label, onclick: act}, text);
    this.kernels = el('select', {'aria-label': 'kernel', onchange: e => this.go(Number(e.target.value), 0, 0)},
      ...data.kernels.map((k, n) => el('option', {value: n}, k.name)));
    this.slider = el('input', {type: 'range', min: 0, 'aria-label': 'step', oninput: e => this.seek(Number(e.target.value))});
    this.playing = button('play', 'play', () => this.toggle());
    this.zoom = el('button', {'aria-pressed': false, 'data-tip': 'the value of each element, also of large arrays', onclick: () => this.enlarge()}, 'values');
    this.controls = el('div', {class: 'controls'}, data.kernels.length > 1 && this.kernels,
      button('«', 'grid program before', () => this.go(this.number, this.place - 1, 0)), button('‹', 'step before', () => this.step(-1)),
      this.playing, button('›', 'next step', () => this.step(1)), button('»', 'next grid program', () => this.go(this.number, this.place + 1, 0)), this.slider, this.zoom);
    this.map = el('div', {class: 'grid', role: 'group', 'aria-label': 'grid programs'});
    this.text = el('div', {class: 'statements'});
    this.said = el('p', {class: 'said', 'aria-live': 'polite'});
    this.shown = el('div', {class: 'shown'});
    const sizes = Object.entries(data.sizes).map(([n, v]) => `${n} = ${v}`).join(', ');
    this.node = el('div', {class: 'player', tabindex: 0, 'aria-label': 'player'}, this.controls, this.map, this.text, this.said, this.shown,
      el('p', {class: 'hint'}, `${sizes ? `An instance with ${sizes}. ` : ''}numpy runs this, and every access is checked.`));
    this.at = Math.max(0, this.steps.findIndex(s => s.array)); // the first that goes to memory
    this.draw();
  }

  enlarge() {
    this.zoomed = !this.zoomed;
    this.zoom.setAttribute('aria-pressed', this.zoomed);
    this.draw();
  }

  get kernel() { return this.data.kernels[this.number]; }
  get run() { return this.kernel.programs[this.place]; }
  get steps() { return this.run.steps; }

  /** The step that is shown: as it is, or as it would be without its mask. */
  get current() {
    const step = this.steps[this.at];
    const instead = this.without === step?.line && this.kernel.dropped[step.line]?.[this.place];
    if (!instead) return {step, error: this.at === this.steps.length - 1 ? this.run.error : ''};
    const turn = this.steps.slice(0, this.at).filter(s => s.line === step.line).length;
    const bare = instead.steps[turn] ?? instead.steps.at(-1);
    return {step: {...bare, first: step.first, real: step.real, stopped: step.state}, error: bare === instead.steps.at(-1) ? instead.error : ''};
  }

  // -- moving --

  go(number, place, at) {
    this.number = number;
    this.place = Math.max(0, Math.min(this.kernel.programs.length - 1, place));
    this.at = Math.max(0, Math.min(this.steps.length - 1, at));
    this.draw();
    this.links.point(this.program, this.marks(this.steps[this.at]?.line)); // other panes light up what runs here
  }

  /** What a line of the kernel comes from. */
  marks(line) { return this.kernel.links[line] ?? []; }

  step(by) {
    const next = this.at + by;
    if (next < 0 && this.place > 0) this.go(this.number, this.place - 1, Infinity);
    else if (next < this.steps.length) this.go(this.number, this.place, next);
    else if (this.place + 1 < this.kernel.programs.length) this.go(this.number, this.place + 1, 0);
    else if (this.number + 1 < this.data.kernels.length) this.go(this.number + 1, 0, 0);
    else this.pause();
  }

  seek(n) {
    let place = 0;
    while (n >= this.kernel.programs[place].steps.length) n -= this.kernel.programs[place++].steps.length;
    this.go(this.number, place, n);
  }

  toggle() {
    if (this.timer) return this.pause();
    this.timer = setInterval(() => this.step(1), 700);
    this.playing.textContent = 'pause';
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.playing.textContent = 'play';
  }

  // -- drawing --

  draw() {
    const {kernel, place, at} = this;
    const before = kernel.programs.slice(0, place).reduce((n, p) => n + p.steps.length, 0);
    this.kernels.value = this.number;
    this.slider.max = kernel.programs.reduce((n, p) => n + p.steps.length, 0) - 1;
    this.slider.value = before + at;
    this.drawGrid();
    this.drawText();
    const {step, error} = this.current;
    this.said.replaceChildren(...this.sentence(step), error && el('strong', {class: 'error'}, ` ${error}`) || '');
    const operands = step?.of && !step.array ? step.of.map(line => this.latest(line)).filter(Boolean) : [];
    this.shown.replaceChildren(...(step ? [step.array ? this.memory(step) : '', ...operands.map(s => this.tile(s, false)), this.tile(step)] : []));
  }

  /** What a line came to, before this step. */
  latest(line) { return this.steps.slice(0, this.at).findLast(s => s.line === line); }

  /** `%3` of the line of a step. */
  name(step) { return this.kernel.lines[step.line].match(/%\d+/)?.[0] ?? 'tile'; }

  drawGrid() {
    const {grid, programs, count, name} = this.kernel;
    this.map.style.gridTemplateColumns = `repeat(${Math.min(grid.at(-1) ?? 1, 16)}, max-content)`;
    renew(this.map, ...programs.map((p, k) => el('button', {'aria-pressed': k === this.place, class: p.error ? 'bad' : '',
      'data-tip': `grid program (${p.place}) of ${name}`, onclick: () => this.go(this.number, k, 0)}, `(${p.place.join(', ')})`)),
    programs.length < count ? el('span', {class: 'hint'}, `and ${count - programs.length} more`) : '');
  }

  drawText() {
    const {lines, dropped} = this.kernel, now = this.steps[this.at]?.line;
    renew(this.text, ...lines.map((line, k) => {
      const row = el('div', {class: `statement ${k === now ? 'now' : ''}`, onclick: () => this.choose(k),
        onpointerenter: e => e.pointerType === 'mouse' && this.links.point(this.program, this.marks(k)), onpointerleave: () => this.links.point(this.program, [])},
      el('code', {}, line.replace(/(, )?because = \[("[^"]*"(, )?)*\]/, '').replace(' {}', '')));
      if (dropped[k]) {
        const box = el('input', {type: 'checkbox', checked: this.without === k, 'aria-label': `drop the mask of line ${k + 1}`});
        box.addEventListener('change', () => { this.without = box.checked ? k : null; this.jump(k); });
        row.append(el('label', {class: 'drop', 'data-tip': 'what happens without this mask', onclick: e => e.stopPropagation()}, box, 'drop the mask'));
      }
      return row;
    }));
    this.see(now);
    this.light(false);
  }

  see(line) {
    const row = this.text.children[line];
    if (row) this.text.scrollTop = row.offsetTop - this.text.offsetTop - 40;
  }

  /** A click on a line: its next step, and its counterparts stay lit in every pane. */
  choose(line) {
    this.jump(line);
    this.links.pinned(this.program, this.marks(line));
  }

  /** To the next step of a line; without its mask to the first program in which that goes wrong. */
  jump(line) {
    const runs = this.without === line ? this.kernel.dropped[line] : [], wrong = runs.findIndex(r => r?.error);
    if (wrong >= 0) this.place = wrong;
    const own = this.steps.flatMap((s, k) => s.line === line ? [k] : []), turn = wrong >= 0 ? runs[wrong].steps.length - 1 : 0;
    this.go(this.number, this.place, own[turn] ?? this.at);
  }

  sentence(step) {
    if (!step) return ['Nothing is computed.'];
    const {axes} = this.kernel;
    const where = axes.filter(a => a.name in step.first).map(a => `${a.name} = ${step.first[a.name]}…${step.first[a.name] + a.lanes - 1}`);
    const head = `Grid program (${this.run.place.join(', ')})${where.length ? `, ${where.join(', ')}: ` : ': '}`;
    if (!step.array) return [head, this.work(step)];
    const n = letter => [...step.state].filter(c => c === letter).length;
    const does = /^\s*store/.test(this.kernel.lines[step.line]) ? 'writes' : 'reads';
    const parts = [`${does} ${plural(n('a'), 'element')} of ${step.array}`];
    if (n('m')) parts.push(`${n('m')} masked`);
    if (n('x')) parts.push(`${n('x')} out of bounds`);
    return [head, parts.join(', '), '.'];
  }

  /** What a step that stays in the program does: `reduces 4 × 8 elements of %5 over j to 4`. */
  work(step) {
    const line = this.kernel.lines[step.line], size = s => s.shape.filter(n => n > 1).join(' × ') || '1';
    const over = line.match(/over = \[?((?:\w+(?:, )?)+?)[\],}]/)?.[1], taken = over && step.of.map(k => this.latest(k)).find(Boolean);
    if (/ carry /.test(line)) return `what the loop hands on: ${size(step)} elements.`;
    if (!taken) return `computes ${size(step)} ${step.values.length === 1 ? 'element' : 'elements'}.`;
    return `${/ dot /.test(line) ? 'multiplies' : 'reduces'} ${size(taken)} elements of ${this.name(taken)} over ${over} to ${size(step)}.`;
  }

  /** The array that a step goes to, and beyond its edge what it must not touch. */
  memory(step) {
    const array = {...this.arrays.get(step.array), shape: step.extents}, touched = this.touched(step);
    const beyond = new Map(), now = new Map();
    [...step.state].forEach((state, element) => {
      const index = step.index.map(d => d[element]);
      if (state === 'x') beyond.set(index.join(), [...(beyond.get(index.join()) ?? []), element]);
      if (state === 'a') now.set(flat(index, array.shape), element);
    });
    const shown = k => now.has(k) || touched.has(k) || array.role === 'input' ? array.values[k] : '·';
    const kind = k => !now.has(k) ? (touched.has(k) ? 'been' : '') : step.stopped?.[now.get(k)] === 'm' ? 'now loose' : 'now';
    const inside = (index, k) => this.cell(shown(k), `${array.name}[${index}] = ${shown(k)}`, kind(k), now.get(k));
    const outside = index => beyond.has(index.join()) ? this.cell('!', `${array.name}[${index}] is out of bounds`, 'out', beyond.get(index.join())[0]) : el('span', {class: 'void'});
    const cell = index => index.every((i, d) => i < array.shape[d]) ? inside(index, flat(index, array.shape)) : outside(index);
    // A kernel may read several axes as one: the array is drawn as the program declares it, unless something lies past its end.
    const table = beyond.size ? slices(reach(array.shape, beyond), cell, this.zoomed) : slices(array.drawn, index => inside(index, flat(index, array.drawn)), this.zoomed);
    return el('figure', {}, el('figcaption', {}, `${array.name}: ${array.type}[${(beyond.size ? array.shape : array.drawn).join(', ')}]`), table,
      beyond.size ? el('div', {class: 'beyond'}, 'out of bounds: ', ...[...beyond.keys()].slice(0, 12).map(index => el('code', {class: 'error'}, `${array.name}[${index}]`)),
        beyond.size > 12 ? ` and ${beyond.size - 12} more` : '') : '');
  }

  /** What this kernel has touched of an array before this step, programs before included. */
  touched(step) {
    const array = this.arrays.get(step.array), found = new Set();
    const past = [...this.kernel.programs.slice(0, this.place).flatMap(p => p.steps), ...this.steps.slice(0, this.at)];
    for (const s of past.filter(s => s.array === step.array)) {
      [...s.state].forEach((state, element) => state === 'a' && found.add(flat(s.index.map(d => d[element]), s.extents)));
    }
    if (array.role === 'temporary' && !this.kernel.lines.some(l => l.includes(`store ${array.name}[`))) array.values.forEach((_, k) => found.add(k));
    return found;
  }

  /** The elements of a tile; an operand is shown without the memory that it came from. */
  tile(step, whole = true) {
    const {shape} = step, long = shape.filter(n => n > 1), names = this.kernel.axes.filter((_, d) => shape[d] > 1).map(a => a.name);
    const cells = step.values.map((value, element) => this.element(step, value, element, whole));
    const title = `${whole && step.array ? 'tile' : this.name(step)}${names.length ? ` [${names.join(', ')}]` : ''}`;
    return el('figure', {}, el('figcaption', {}, title), slices(long, index => cells[flat(index, long)], this.zoomed), whole ? legend(step) : '');
  }

  /** One element of a tile: its value, and whether it is real, masked or past the end. */
  element(step, value, element, whole) {
    const past = step.real.some((n, d) => step.shape[d] > 1 && coordinate(element, step.shape, d) >= n);
    const state = (whole && step.state?.[element]) || 'v', does = {a: 'accesses', m: 'masked:', x: 'out of bounds:'}[state];
    const kind = state === 'x' ? 'out' : state === 'm' ? 'masked' : step.stopped?.[element] === 'm' ? 'loose' : past ? 'past' : 'live';
    const goes = does && step.array ? ` ${does} ${step.array}[${step.index.map(d => d[element])}]` : '';
    const title = `element ${element} of the tile${goes}${value && ` = ${value}`}${past ? ', past the end' : ''}`;
    return this.cell(state === 'x' ? '!' : value || this.read(step, element, state), title, kind, whole ? element : null);
  }

  /** What an element would have read, if the sanitizer had not refused the access. */
  read(step, element, state) {
    const array = this.arrays.get(step.array);
    return state === 'a' && array?.role === 'input' ? array.values[flat(step.index.map(d => d[element]), step.extents)] : '';
  }

  cell(text, title, kind, element) {
    const node = el('span', {class: `cell ${kind}`, 'data-tip': title, 'data-element': element}, text);
    if (element != null) {
      node.addEventListener('pointerenter', () => this.same(element, true));
      node.addEventListener('pointerleave', () => this.same(element, false));
    }
    return node;
  }

  same(element, on) {
    for (const n of this.shown.querySelectorAll(`[data-element="${element}"]`)) n.classList.toggle('same', on);
  }

  // -- what every pane can do --

  /** Lights the lines of the kernel; goes to a line that another pane has pinned. */
  light(reveal) {
    const [hover, pin] = this.links.lit(this.program), has = (k, set) => this.marks(k).some(m => set.has(m));
    const rows = [...this.text.children], runs = k => has(k, pin) && this.steps.some(s => s.line === k);
    const works = rows.findIndex((_, k) => runs(k) && !/ const /.test(this.kernel.lines[k])), held = works >= 0 ? works : rows.findIndex((_, k) => runs(k));
    rows.forEach((row, k) => {
      row.classList.toggle('pin', has(k, pin));
      row.classList.toggle('lit', !has(k, pin) && has(k, hover));
    });
    if (reveal && held >= 0 && !has(this.steps[this.at]?.line, pin)) {
      this.at = this.steps.findIndex(s => s.line === held);
      this.draw();
    }
  }
  hold() { this.toggle(); }
  following(by) { this.step(by); }
  search(text) {
    const rows = [...this.text.children].map(r => text !== '' && r.textContent.toLowerCase().includes(text.toLowerCase()));
    rows.forEach((found, k) => this.text.children[k].classList.toggle('hit', found));
    return rows.filter(Boolean).length;
  }
  get whole() { return this.kernel.lines.join('\n'); }
  close() { this.pause(); }
}
