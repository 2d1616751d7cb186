// ---- player.js: the grid of a small instance, program by program, step by step ------------------

EXTRA.push((program, at) => [{id: 'player', title: 'a small instance, lane by lane', apart: true,
  make: () => program.player ? new Player(program.player) : new Note(program.quick ? 'Wait a moment: the small instance is being run.' : 'The sizes that this program fixes are too large to show each lane.')}]);

class Player {
  constructor(data) {
    Object.assign(this, {data, number: 0, place: 0, at: 0, without: null, timer: null});
    this.arrays = new Map(data.arrays.map(a => [a.name, a]));
    const button = (text, label, act) => el('button', {'aria-label': label, title: label, onclick: act}, text);
    this.kernels = el('select', {'aria-label': 'kernel', onchange: e => this.go(Number(e.target.value), 0, 0)},
      ...data.kernels.map((k, n) => el('option', {value: n}, k.name)));
    this.slider = el('input', {type: 'range', min: 0, 'aria-label': 'step', oninput: e => this.seek(Number(e.target.value))});
    this.playing = button('play', 'play', () => this.toggle());
    this.controls = el('div', {class: 'controls'}, data.kernels.length > 1 && this.kernels,
      button('«', 'program before', () => this.go(this.number, this.place - 1, 0)), button('‹', 'step before', () => this.step(-1)),
      this.playing, button('›', 'next step', () => this.step(1)), button('»', 'next program', () => this.go(this.number, this.place + 1, 0)), this.slider);
    this.map = el('div', {class: 'grid', role: 'group', 'aria-label': 'programs of the grid'});
    this.text = el('div', {class: 'statements'});
    this.said = el('p', {class: 'said', 'aria-live': 'polite'});
    this.shown = el('div', {class: 'shown'});
    const sizes = Object.entries(data.sizes).map(([n, v]) => `${n} = ${v}`).join(', ');
    this.node = el('div', {class: 'player', tabindex: 0, 'aria-label': 'player'}, this.controls, this.map, this.text, this.said, this.shown,
      el('p', {class: 'hint'}, `${sizes ? `An instance with ${sizes}. ` : ''}Run by the evaluator of tile.masked, watched by its sanitizer.`));
    this.go(0, 0, Math.max(0, this.steps.findIndex(s => s.array))); // the first that goes to memory
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
  }

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
    this.shown.replaceChildren(...(step ? [step.array ? this.memory(step) : '', ...operands.map(s => this.lanes(s, false)), this.lanes(step)] : []));
  }

  /** What a line came to, before this step. */
  latest(line) { return this.steps.slice(0, this.at).findLast(s => s.line === line); }

  /** `%3` of the line of a step. */
  name(step) { return this.kernel.lines[step.line].match(/%\d+/)?.[0] ?? 'lanes'; }

  drawGrid() {
    const {grid, programs, count, name} = this.kernel;
    this.map.style.gridTemplateColumns = `repeat(${Math.min(grid.at(-1) ?? 1, 24)}, max-content)`;
    this.map.replaceChildren(...programs.map((p, k) => el('button', {'aria-pressed': k === this.place, class: p.error ? 'bad' : '',
      title: `program (${p.place}) of ${name}`, onclick: () => this.go(this.number, k, 0)}, `(${p.place.join(', ')})`)),
    programs.length < count ? el('span', {class: 'hint'}, `and ${count - programs.length} more`) : '');
  }

  drawText() {
    const {lines, dropped} = this.kernel, now = this.steps[this.at]?.line;
    this.text.replaceChildren(...lines.map((line, k) => {
      const row = el('div', {class: `statement ${k === now ? 'now' : ''}`, onclick: () => this.jump(k)}, el('code', {title: line}, line.replace(/(, )?because = \[("[^"]*"(, )?)*\]/, '').replace(' {}', '')));
      if (dropped[k]) {
        const box = el('input', {type: 'checkbox', checked: this.without === k, 'aria-label': `drop the mask of line ${k + 1}`});
        box.addEventListener('change', () => { this.without = box.checked ? k : null; this.jump(k); });
        row.append(el('label', {class: 'drop', title: 'what happens without this mask', onclick: e => e.stopPropagation()}, box, 'drop the mask'));
      }
      return row;
    }));
    const row = this.text.children[now];
    if (row) this.text.scrollTop = row.offsetTop - this.text.offsetTop - 40;
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
    const head = `Program (${this.run.place.join(', ')})${where.length ? `, ${where.join(', ')}: ` : ': '}`;
    if (!step.array) return [head, this.work(step)];
    const n = letter => [...step.state].filter(c => c === letter).length;
    const does = this.arrays.get(step.array)?.role === 'input' || !/^\s*store/.test(this.kernel.lines[step.line]) ? ['reads', 'read'] : ['writes', 'write'];
    const parts = [`${plural(n('a'), 'lane')} ${n('a') === 1 ? does[0] : does[1]} ${step.array}`];
    if (n('m')) parts.push(`${n('m')} masked`);
    if (n('x')) parts.push(`${n('x')} out of bounds`);
    return [head, parts.join(', '), '.'];
  }

  /** What a step that stays in the program does: `reduces 4 × 8 lanes of %5 over j to 4`. */
  work(step) {
    const line = this.kernel.lines[step.line], lanes = s => s.shape.filter(n => n > 1).join(' × ') || '1';
    const over = line.match(/over = \[?((?:\w+(?:, )?)+?)[\],}]/)?.[1], taken = over && step.of.map(k => this.latest(k)).find(Boolean);
    if (/ carry /.test(line)) return `what the loop hands on: ${lanes(step)} lanes.`;
    if (!taken) return `computes ${lanes(step)} ${step.values.length === 1 ? 'lane' : 'lanes'}.`;
    return `${/ dot /.test(line) ? 'multiplies' : 'reduces'} ${lanes(taken)} lanes of ${this.name(taken)} over ${over} to ${lanes(step)}.`;
  }

  /** The array that a step goes to, and beyond its edge what it must not touch. */
  memory(step) {
    const array = {...this.arrays.get(step.array), shape: step.extents}, touched = this.touched(step);
    const beyond = new Map(), now = new Map();
    [...step.state].forEach((state, lane) => {
      const index = step.index.map(d => d[lane]);
      if (state === 'x') beyond.set(index.join(), [...(beyond.get(index.join()) ?? []), lane]);
      if (state === 'a') now.set(flat(index, array.shape), lane);
    });
    const shown = k => now.has(k) || touched.has(k) || array.role === 'input' ? array.values[k] : '·';
    const kind = k => !now.has(k) ? (touched.has(k) ? 'been' : '') : step.stopped?.[now.get(k)] === 'm' ? 'now loose' : 'now';
    const at = index => this.cell(shown(flat(index, array.shape)), `${array.name}[${index}] = ${shown(flat(index, array.shape))}`, kind(flat(index, array.shape)), now.get(flat(index, array.shape)));
    const out = index => beyond.has(index.join()) ? this.cell('!', `${array.name}[${index}] is out of bounds`, 'out', beyond.get(index.join())[0])
      : el('span', {class: 'void'});
    return el('figure', {}, el('figcaption', {}, `${array.name}: ${array.type}[${array.shape.join(', ')}]`), surrounded(array.shape, beyond, at, out),
      beyond.size ? el('div', {class: 'beyond'}, 'out of bounds: ', ...[...beyond.keys()].slice(0, 12).map(index => el('code', {class: 'error'}, `${array.name}[${index}]`)),
        beyond.size > 12 ? ` and ${beyond.size - 12} more` : '') : '');
  }

  /** What this kernel has touched of an array before this step, programs before included. */
  touched(step) {
    const array = this.arrays.get(step.array), found = new Set();
    const past = [...this.kernel.programs.slice(0, this.place).flatMap(p => p.steps), ...this.steps.slice(0, this.at)];
    for (const s of past.filter(s => s.array === step.array)) {
      [...s.state].forEach((state, lane) => state === 'a' && found.add(flat(s.index.map(d => d[lane]), s.extents)));
    }
    if (array.role === 'temporary' && !this.kernel.lines.some(l => l.includes(`store ${array.name}[`))) array.values.forEach((_, k) => found.add(k));
    return found;
  }

  /** What the lanes hold; an operand is shown without the memory that it came from. */
  lanes(step, whole = true) {
    const shape = step.shape, wide = shape.filter(n => n > 1).at(-1) ?? 1;
    const names = this.kernel.axes.filter((_, d) => shape[d] > 1).map(a => a.name);
    const cells = step.values.map((value, lane) => {
      const past = step.real.some((n, d) => shape[d] > 1 && coordinate(lane, shape, d) >= n);
      const state = (whole && step.state?.[lane]) || 'v';
      const kind = state === 'x' ? 'out' : state === 'm' ? 'masked' : step.stopped?.[lane] === 'm' ? 'loose' : past ? 'past' : 'live';
      const goes = whole && step.array ? ` ${{a: 'accesses', m: 'masked:', x: 'out of bounds:'}[state]} ${step.array}[${step.index.map(d => d[lane])}]` : '';
      return this.cell(state === 'x' ? '!' : value || this.read(step, lane, state), `lane ${lane}${goes}${value && ` = ${value}`}${past ? ', past the end' : ''}`, kind, whole ? lane : null);
    });
    return el('figure', {}, el('figcaption', {}, `${whole && step.array ? 'lanes' : this.name(step)}${names.length ? ` [${names.join(', ')}]` : ''}`), table(cells, wide), whole ? legend(step) : '');
  }

  /** What a lane would have read, where the access as a whole was refused. */
  read(step, lane, state) {
    const array = this.arrays.get(step.array);
    return state === 'a' && array?.role === 'input' ? array.values[flat(step.index.map(d => d[lane]), step.extents)] : '';
  }

  cell(text, title, kind, lane) {
    const node = el('span', {class: `cell ${kind}`, title, 'data-lane': lane}, text);
    if (lane != null) {
      node.addEventListener('pointerenter', () => this.same(lane, true));
      node.addEventListener('pointerleave', () => this.same(lane, false));
    }
    return node;
  }

  same(lane, on) {
    for (const n of this.shown.querySelectorAll(`[data-lane="${lane}"]`)) n.classList.toggle('same', on);
  }

  // -- what every pane can do --

  light() {}
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

const flat = (index, shape) => index.reduce((n, i, d) => n * shape[d] + i, 0);

const coordinate = (lane, shape, d) => Math.floor(lane / shape.slice(d + 1).reduce((a, b) => a * b, 1)) % shape[d];

/** An array as rows of cells, with room for what lies beyond its last two axes. */
function surrounded(shape, beyond, at, out) {
  const far = [...beyond.keys()].map(key => key.split(',').map(Number)).filter(index => index.every(i => i >= 0));
  const reach = shape.map((n, d) => d < shape.length - 2 ? n : Math.min(n + 40, Math.max(n, ...far.map(index => index[d] + 1))));
  const cells = [];
  for (let k = 0; k < reach.reduce((a, b) => a * b, 1); k++) {
    const index = reach.map((_, d) => coordinate(k, reach, d));
    cells.push(index.every((i, d) => i < shape[d]) ? at(index) : out(index));
  }
  return table(cells, reach.at(-1) ?? 1);
}

/** Cells in rows; where they are many, small ones without their values. */
function table(cells, width) {
  const node = el('div', {class: `cells ${cells.length > 160 ? 'tiny' : ''}`}, ...cells);
  node.style.gridTemplateColumns = `repeat(${width}, max-content)`;
  return node;
}

/** What the colours of a step's lanes mean: those that it has. */
function legend(step) {
  const {shape, real, state = ''} = step;
  const past = step.values.some((_, lane) => state[lane] !== 'm' && real.some((n, d) => shape[d] > 1 && coordinate(lane, shape, d) >= n));
  const kinds = [['live', step.array ? 'accessed' : 'inside', true], ['masked', 'masked', state.includes('m')], ['past', 'past the end of the block', past],
    ['loose', 'masked before', step.stopped?.includes('m')], ['out', 'out of bounds', state.includes('x')]];
  return el('div', {class: 'legend'}, ...kinds.filter(k => k[2]).map(([kind, name]) => el('span', {}, el('i', {class: `cell ${kind}`}), name)));
}
