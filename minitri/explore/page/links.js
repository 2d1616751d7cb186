// ---- links.js: what belongs together, and what is lit ----------------------------------------
// A mark is a number that counterparts share: a node of the graph, a span of the source. Views tell
// which marks the pointer is on; every view is told which marks are lit and lights what has them.

class Links {
  constructor(programs) {
    this.views = new Set();
    this.hover = this.pin = null; // {program, marks: Set}
    this.spans = programs.map(p => {
      const table = new Map(); // span → marks, to find counterparts in another program
      p.marks.forEach((mark, k) => {
        for (const span of mark.spans) {
          const key = this.key(p, span);
          table.set(key, [...(table.get(key) ?? []), k]);
        }
      });
      return table;
    });
    this.programs = programs;
  }

  key(program, [source, start, end]) {
    const {name, library} = program.sources[source];
    return `${library ? name : ''}:${start}:${end}`;
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
      for (const span of this.programs[lit.program].marks[mark]?.spans ?? []) {
        for (const k of this.spans[program].get(this.key(this.programs[lit.program], span)) ?? []) found.add(k);
      }
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

/** The lines that have one of some marks. */
function linesOf(table, marks) {
  const lines = new Set();
  for (const mark of marks) for (const line of table.get(mark) ?? []) lines.add(line);
  return lines;
}
