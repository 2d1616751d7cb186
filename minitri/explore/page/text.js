// ---- text.js: a stage as lines of text -------------------------------------------------------
// Lines are made in chunks as they come into sight, so that ten thousand of them cost nothing. Every
// line is as high as the next, so that places can be computed.

const LINE = 18, CHUNK = 60;

// What a type is called depends on the language: `s1` is a size in Triton's source, and `.s32` a type of PTX.
const TYPES = {
  ours: String.raw`\b(?:bf16|f(?:8\w*|16|32|64)|[iu](?:8|16|32|64)|bool)\b`,
  python: String.raw`\b(?:bf16|f(?:8\w*|16|32|64)|[iu](?:8|16|32|64)|bool)\b`,
  mlir: String.raw`\b(?:bf16|f(?:16|32|64)|i(?:1|8|16|32|64)|tensor|index)\b`,
  llvm: String.raw`\b(?:i(?:1|8|16|32|64)|ptr|half|bfloat|float|double|void)\b`,
  ptx: String.raw`\.(?:[busf](?:8|16|32|64|128)|f16x2|bf16|pred)\b`,
  sass: String.raw`(?!)`, amdgcn: String.raw`(?!)`,
};
const WORDS = {
  string: String.raw`"(?:[^"\\]|\\.)*"`,
  name: String.raw`[%@$!#][\w.$-]+|\bR\d+\b|\bU?P\d\b|\bUR\d+\b`,
  number: String.raw`(?<![\w.])-?(?:0x[\da-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.])`,
  word: String.raw`\b(?:def|return|for|import|from|plan|kernel|program|graph|over|grid|loop|whole|carry|next|require|else|ledger|fused|apart|again|define|declare|temporary|(?:rescale|shift)(?= = %))\b`,
  op: String.raw`\b[a-z]\w*(?:\.\w+)+|\b[A-Z][A-Z\d]{2,}(?:\.[A-Z\d_]+)*\b`,
};
const FIRST = { // the operation of a line, where it is one plain word
  ours: String.raw`(?<== )[a-z][\w.]*|(?<=^\s*)(?:load|store)\b`, llvm: String.raw`(?<== (?:tail )?)[a-z]\w*|(?<=^  )(?:store|br|ret|call)\b`,
  ptx: String.raw`(?<=^\s*(?:@!?%p\d+ )?)[a-z]\w*(?=[ ;])`, amdgcn: String.raw`(?<=^\t)[a-z]\w+`,
};
const COMMENTS = {python: String.raw`#.*`, other: String.raw`\/\/.*|^\s*;.*|(?<=\s);[ ].*|\/\*.*?\*\/`};
const TOKENS = Object.fromEntries(Object.entries(TYPES).map(([language, type]) => {
  const first = FIRST[language] ? `${FIRST[language]}|` : '', op = first + WORDS.op;
  const kinds = {comment: COMMENTS[language] ?? COMMENTS.other, ...WORDS, op, type};
  return [language, new RegExp(Object.entries(kinds).map(([name, r]) => `(?<${name}>${r})`).join('|'), 'g')];
}));

/** [[text, class], …] of a line. */
function tokens(line, language = 'ours') {
  const parts = [];
  let end = 0;
  for (const match of line.slice(0, 4000).matchAll(TOKENS[language])) {
    if (match.index > end) parts.push([line.slice(end, match.index), '']);
    const kind = Object.keys(match.groups).find(name => match.groups[name] !== undefined);
    parts.push([match[0], kind]);
    end = match.index + match[0].length;
  }
  if (end < line.length) parts.push([line.slice(end), '']);
  return parts;
}

/** The line of explanation of a word: of `ld.global.v4.b32` that of `ld.global`. */
function explanation(words, token) {
  for (let word = token; word; word = word.slice(0, Math.max(0, word.lastIndexOf('.'), word.lastIndexOf('_')))) if (Object.hasOwn(words, word)) return words[word];
}

class TextView {
  /** `lines`: [{text, marks, number, kind, pieces}]; `at` says which program they are of. */
  constructor(at, lines, links, options = {}) {
    Object.assign(this, {at, lines, links, options, cursor: -1, hits: [], named: [], lit: new Map()});
    this.table = options.table ?? inverted(lines.map(l => l.marks ?? []));
    this.digits = String(lines.reduce((most, l) => Math.max(most, l.number ?? 0), 0)).length;
    this.chunks = [];
    this.root = el('div', {class: options.wrapped ? 'text wrapped' : 'text', tabindex: 0, role: 'region', 'aria-label': options.label ?? 'text'});
    this.root.style.setProperty('--margin', `calc(${this.digits}ch + 18px)`);
    this.ruler = el('canvas', {class: 'ruler', 'aria-hidden': 'true'});
    this.node = el('div', {class: 'scroller'}, this.root, this.ruler);
    const longest = lines.reduce((most, l) => Math.max(most, l.text.length), 0);
    for (let first = 0; first < lines.length; first += CHUNK) {
      const height = Math.min(CHUNK, lines.length - first) * LINE;
      const chunk = el('div', {class: 'chunk', 'data-first': first});
      chunk.style.height = `${height}px`;
      chunk.style.minWidth = `${Math.min(longest, 4000) + this.digits + 5}ch`;
      this.chunks.push(chunk);
    }
    this.root.append(...this.chunks);
    this.watch = new IntersectionObserver(seen => seen.forEach(s => s.isIntersecting && this.fill(s.target)),
      {root: this.root, rootMargin: '600px 0px'});
    if (this.chunks.length) this.fill(this.chunks[0]);
    this.chunks.slice(1).forEach(c => this.watch.observe(c));
    this.resized = new ResizeObserver(() => this.mark());
    this.resized.observe(this.root);
    this.listen();
  }

  listen() {
    const on = (name, act) => this.root.addEventListener(name, act);
    on('pointermove', e => e.pointerType === 'mouse' && this.point(this.marksAt(e.target)));
    on('pointerleave', () => this.point([]));
    on('click', e => {
      const row = e.target.closest('.row');
      if (!row || String(getSelection())) return;
      this.move(Number(row.dataset.line), false);
      this.links.pinned(this.at, this.marksAt(e.target));
    });
  }

  /** The marks of what an element shows: of its piece of the line, else of the line. */
  marksAt(target) {
    const row = target.closest('.row');
    if (!row) return [];
    const line = this.lines[Number(row.dataset.line)];
    const piece = target.closest('.piece');
    return piece ? line.pieces[Number(piece.dataset.piece)].marks : line.marks ?? [];
  }

  point(marks) {
    const key = marks.join();
    if (key !== this.pointed) this.links.point(this.at, marks);
    this.pointed = key;
  }

  // -- rows --

  fill(chunk) {
    this.watch.unobserve(chunk);
    if (chunk.childElementCount) return;
    const first = Number(chunk.dataset.first);
    chunk.append(...this.lines.slice(first, first + CHUNK).map((line, k) => this.row(line, first + k)));
  }

  row(line, k) {
    const number = el('span', {class: 'number'}, String(line.number ?? '').padStart(this.digits));
    const row = el('div', {class: `row ${line.kind ?? ''}`, 'data-line': k}, number);
    if (line.kind === 'title' || line.kind === 'folded') row.append(shown(line.text));
    else if (line.pieces) row.append(...line.pieces.map((p, n) => this.piece(p, n)));
    else row.append(...tokens(line.text, this.options.language).map(([text, kind]) => kind ? el('span', {class: kind, 'data-tip': this.explains(text)}, ...this.words(text, kind)) : shown(text)));
    if (!line.marks?.length) row.classList.add('plain');
    if (line.serves) row.classList.add('serves');
    this.dress(row, k);
    return row;
  }

  /** A comment of Triton's source, such as its launch plan, has words that are explained. */
  words(text, kind) {
    if (kind !== 'comment' || this.options.language !== 'python') return [text];
    return text.split(/(\w+)/).map(w => this.explains(w) ? el('span', {'data-tip': this.explains(w)}, w) : w);
  }

  /** What a word means, if it is one of the common ones. */
  explains(word) { return this.options.words && explanation(this.options.words, word); }

  /** What the words of the line under the cursor mean, for the status line. */
  get explained() {
    const words = tokens(this.lines[this.cursor]?.text ?? '', this.options.language).map(([text]) => text);
    return words.filter(w => this.explains(w)).slice(0, 1).map(w => `${w}: ${this.explains(w)}`).join('');
  }

  piece({text, kind, marks}, n) {
    return el('span', {class: `${marks ? 'piece' : ''} ${kind ?? ''}`, 'data-piece': n}, text);
  }

  rowAt(k) { return this.chunks[Math.floor(k / CHUNK)]?.children[k % CHUNK]; }

  dress(row, k) {
    const lit = this.lit.get(k);
    row.classList.toggle('lit', lit === 'lit');
    row.classList.toggle('pin', lit === 'pin');
    row.classList.toggle('named', this.named.includes(k));
    row.classList.toggle('cursor', k === this.cursor);
    row.classList.toggle('hit', this.found?.has(k) ?? false);
    const [hover, pin] = this.sets ?? [new Set(), new Set()];
    for (const node of row.querySelectorAll('.piece')) {
      const {covers} = this.lines[k].pieces[Number(node.dataset.piece)];
      node.classList.toggle('on', covers.some(m => hover.has(m)));
      node.classList.toggle('held', covers.some(m => pin.has(m)));
    }
  }

  /** Every line, for the printer. */
  all() { this.chunks.forEach(c => this.fill(c)); }

  // -- what is lit --

  light(reveal) {
    this.sets = this.links.lit(this.at);
    const [hover, pin] = this.sets.map(marks => linesOf(this.table, marks));
    const before = this.lit;
    this.lit = new Map([...[...hover].map(k => [k, 'lit']), ...[...pin].map(k => [k, 'pin'])]);
    for (const k of new Set([...before.keys(), ...this.lit.keys()])) {
      const row = this.rowAt(k);
      if (row) this.dress(row, k);
    }
    this.mark();
    if (reveal && pin.size) this.reveal(this.nearest(pin));
  }

  /** The lines that a step of the walk names: the first one comes into sight. */
  names(rows) {
    const before = this.named;
    this.named = rows;
    for (const k of [...before, ...rows]) this.rowAt(k) && this.dress(this.rowAt(k), k);
    if (rows.length) this.reveal(rows[0]);
  }

  /** Of some lines the first that belongs to the fewest nodes: the instruction itself, not an index that it needs. */
  nearest(lines) {
    const count = k => (this.lines[k].marks?.length ?? 0) + (this.lines[k].serves ? 1e6 : 0);
    return [...lines].sort((a, b) => count(a) - count(b) || a - b)[0];
  }

  /** Draws beside the scroll bar where the lit lines are, once before the next picture. */
  mark() {
    this.marking ??= requestAnimationFrame(() => { this.marking = null; this.draw(); });
  }

  draw() {
    const height = this.ruler.clientHeight, scale = Math.min(LINE, height / Math.max(this.lines.length, 1));
    this.ruler.width = 8;
    this.ruler.height = height;
    const pen = this.ruler.getContext('2d'), style = getComputedStyle(this.ruler);
    const colours = {lit: style.color, pin: style.outlineColor, hit: style.caretColor};
    for (const [k, kind] of [...this.lit, ...this.hits.map(k => [k, 'hit'])]) {
      pen.fillStyle = colours[kind];
      pen.fillRect(0, k * scale, 8, Math.max(2, scale));
    }
  }

  /** Scrolls to a line, unless it is in sight. */
  reveal(k) {
    if (this.root.matches('.wrapped, .walking .text')) this.chunks.slice(0, Math.floor(k / CHUNK) + 1).forEach(c => this.fill(c)); // the lines above may be wrapped
    const row = this.rowAt(k), top = row ? row.offsetTop + row.parentNode.offsetTop : k * LINE, {scrollTop, clientHeight} = this.root;
    if (top < scrollTop + LINE || top > scrollTop + clientHeight - 2 * LINE) this.root.scrollTop = top - clientHeight / 3;
  }

  // -- keyboard and search --

  /** Moves the cursor to a line and points at what it holds. */
  move(k, point = true) {
    const before = this.cursor;
    this.cursor = Math.max(0, Math.min(this.lines.length - 1, k));
    for (const n of [before, this.cursor]) this.rowAt(n) && this.dress(this.rowAt(n), n);
    if (!point) return;
    this.reveal(this.cursor);
    this.point(this.lines[this.cursor].marks ?? []);
  }

  /** Long lines on several lines, or each on one. */
  wrap() { this.root.classList.toggle('wrapped'); }

  step(by) { this.move(this.cursor < 0 ? Math.floor(this.root.scrollTop / LINE) : this.cursor + by); }

  hold() { if (this.cursor >= 0) this.links.pinned(this.at, this.lines[this.cursor].marks ?? []); }

  search(text) {
    const wanted = text.toLowerCase();
    const before = this.hits;
    this.hits = wanted ? this.lines.flatMap((l, k) => l.text.toLowerCase().includes(wanted) ? [k] : []) : [];
    this.found = new Set(this.hits);
    for (const k of new Set([...before, ...this.hits])) this.rowAt(k) && this.dress(this.rowAt(k), k);
    this.mark();
    return this.hits.length;
  }

  /** The next line that was found, or that is lit. */
  following(by) {
    const stops = this.hits.length ? this.hits : [...this.lit.keys()].sort((a, b) => a - b);
    if (!stops.length) return;
    const next = by > 0 ? stops.find(k => k > this.cursor) : stops.findLast(k => k < this.cursor);
    this.move(next ?? stops.at(by > 0 ? 0 : -1), false);
    this.reveal(this.cursor);
  }

  get whole() { return this.lines.map(l => l.text).join('\n'); }

  close() { this.watch.disconnect(); this.resized.disconnect(); }
}

/** A stage: its lines, numbered, each with its marks. */
function stageLines({text, links, how}) {
  return text.replace(/\n$/, '').split('\n').map((line, k) => ({text: line, number: k + 1, marks: links[k] ?? [], serves: how[k] === 's' || how[k] === 'w'}));
}

/** The sources: their lines, cut where a span begins or ends. */
function sourceLines({sources, marks}) {
  const lines = [];
  sources.forEach((source, number) => {
    const spans = spansOf(marks, number);
    if (sources.length > 1) lines.push(source.name === sources[number - 1]?.name ? {text: ' '} : {text: source.name, kind: 'title'});
    let start = 0;
    source.text.replace(/\n$/, '').split('\n').forEach((line, k) => {
      const text = line.replace(/\r$/, ''), pieces = cut(text, start, spans);
      const all = [...new Set(pieces.flatMap(p => p.covers))];
      lines.push({text, number: source.line + k, pieces, marks: all.length ? all : []});
      start += line.length + 1;
    });
  });
  return lines;
}

/** The spans of one source, [[start, end, marks], …], the shortest first. */
function spansOf(marks, source) {
  const table = new Map();
  marks.forEach((mark, k) => {
    for (const [s, start, end] of mark.spans) {
      if (s !== source) continue;
      const key = `${start}:${end}`;
      if (!table.has(key)) table.set(key, [start, end, []]);
      table.get(key)[2].push(k);
    }
  });
  return [...table.values()].sort((a, b) => (a[1] - a[0]) - (b[1] - b[0]));
}

/** The pieces of a line: `marks` of the shortest span around a piece, `covers` of all of them. */
function cut(text, offset, spans) {
  const around = spans.filter(([start, end]) => start < offset + text.length && end > offset);
  const pieces = [];
  let at = 0;
  for (const [part, kind] of tokens(text, 'python')) {
    const edges = around.flatMap(([start, end]) => [start - offset, end - offset]);
    const inside = [...new Set([at, at + part.length, ...edges.filter(e => e > at && e < at + part.length)])];
    inside.sort((a, b) => a - b);
    for (let k = 0; k + 1 < inside.length; k++) {
      const covering = around.filter(([start, end]) => start - offset <= inside[k] && end - offset >= inside[k + 1]);
      const covers = covering.flatMap(span => span[2]);
      pieces.push({text: text.slice(inside[k], inside[k + 1]), kind, covers, marks: covering[0]?.[2] ?? []});
    }
    at += part.length;
  }
  return pieces;
}
