// ---- links.js: what belongs together, and what is lit ----------------------------------------
// A mark is a number that counterparts share: a node of the graph, a span of the source. Views tell
// which marks the pointer is on; every view is told which marks are lit and lights what has them.

class Links {
  constructor(programs) {
    this.views = new Set();
    this.hover = this.pin = null; // {program, marks: Set}
    this.programs = programs;
    this.alike = programs.every(p => p.sources[0].text === programs[0].sources[0].text);
    this.known = programs.map((p, at) => { // to find counterparts in another program
      const table = new Map();
      p.marks.forEach((_, k) => this.keys(at, k).forEach(key => table.set(key, [...(table.get(key) ?? []), k])));
      return table;
    });
  }

  /** What a mark is known by: what it is and its innermost place; or its place alone. In two different texts
   * places say nothing: there it is what stands there, and the operation. */
  keys(at, k) {
    const {label, spans: [span]} = this.programs[at].marks[k];
    if (!span) return [label];
    const {name, line, library, text} = this.programs[at].sources[span[0]];
    if (!library && !this.alike) return [`${text.slice(span[1], span[2])} ${label.match(/ = ([\w.]+)/)?.[1] ?? ''}`];
    const place = `${library ? `${name}:${line}` : ''}:${span[1]}:${span[2]}`;
    return [`${place} ${label}`, place];
  }

  /** The pointer is on something with these marks (an empty list: on nothing). */
  point(program, marks) {
    if (!marks.length && !this.hover) return;
    this.hover = marks.length ? {program, marks: new Set(marks)} : null;
    this.tell(false);
  }

  /** Keeps marks lit; the same again lets go of them. */
  pinned(program, marks) {
    const same = this.pin && this.pin.program === program && marks.length === this.pin.marks.size
      && marks.every(m => this.pin.marks.has(m));
    this.pin = same || !marks.length ? null : {program, marks: new Set(marks)};
    this.tell(true);
  }

  tell(reveal) {
    for (const view of this.views) view.light(reveal);
  }

  /** The marks of one program that are lit: [under the pointer, pinned]. */
  lit(program) {
    return [this.hover, this.pin].map(lit => this.translated(lit, program));
  }

  translated(lit, program) {
    if (!lit || lit.program === program) return lit?.marks ?? new Set();
    const found = new Set();
    for (const mark of lit.marks) {
      const table = this.known[program], key = this.keys(lit.program, mark).find(k => table.has(k));
      for (const k of table.get(key) ?? []) found.add(k);
    }
    return found;
  }

  /** What the status line is about: the pointer's marks, else the pinned ones. */
  get current() { return this.hover ?? this.pin; }
}

/** For lines with marks: mark → numbers of the lines that have it. */
function inverted(links) {
  const table = new Map();
  links.forEach((marks, line) => {
    for (const mark of marks) {
      if (!table.has(mark)) table.set(mark, []);
      table.get(mark).push(line);
    }
  });
  return table;
}

/** The table of a stage, made once. */
const tableOf = stage => stage.table ??= inverted(stage.links);

/** The lines that have one of some marks. */
function linesOf(table, marks) {
  const lines = new Set();
  for (const mark of marks) for (const line of table.get(mark) ?? []) lines.add(line);
  return lines;
}
