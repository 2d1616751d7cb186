// ---- figures.js: the roofline, and what the compiled kernels take --------------------------------

EXTRA.push(program => !program.figures ? [] : [{id: 'resources', apart: true,
  make: () => new Figures(program.figures)}]);

class Figures {
  constructor(data) {
    this.data = data;
    this.tables = [this.work(), this.taken()];
    this.roof = el('div');
    this.root = el('div', {class: 'figures', tabindex: 0, role: 'region', 'aria-label': 'figures'}, this.roof, ...this.tables.filter(Boolean), ...data.missing.map(text => el('p', {class: 'hint'}, ...withCode(text))),
      ...data.resources.map(r => mix(r)));
    this.node = this.root;
    this.draw(350);
    this.resized = new ResizeObserver(() => this.draw(this.root.clientWidth < 460 ? 350 : 440));
    this.resized.observe(this.root);
  }

  /** The roofline, as wide as there is room for. */
  draw(wide) {
    if (wide === this.wide || !this.data.chip || !this.data.kernels.length) return;
    this.wide = wide;
    this.roof.replaceChildren(roof(this.data, wide));
  }

  work() {
    const {kernels, chip} = this.data;
    if (!kernels.length) return null;
    const measured = kernels.some(k => k.measured != null);
    const rows = kernels.map(k => [k.name, bytes(k.needed.bytes), k.asked ? bytes(k.asked.bytes) : '', count(k.needed.total), k.asked ? count(k.asked.total) : '',
      (k.needed.total / Math.max(1, k.needed.bytes)).toPrecision(3), k.bound, chip ? time(k.floor) : '',
      ...(measured ? [k.measured == null ? '' : time(k.measured), k.measured ? `${Math.round(100 * k.floor / k.measured)}%` : ''] : [])]);
    return grid(['', 'moves', 'asks for', 'FLOP', 'computed', 'FLOP/B', 'bound by', 'at least', ...(measured ? ['measured', 'reached'] : [])], rows,
      chip ? `Least times on ${chip.name}, at its peak rates` : 'Of this chip no peak rates are known here');
  }

  taken() {
    if (!this.data.resources.length) return null;
    const rows = this.data.resources.map(r => [r.kernel, r.warps, r.registers, bytes(r.shared), bytes(r.local), r.spills,
      r.blocks ?? '', r.occupancy == null ? '' : `${Math.round(100 * r.occupancy)}%`, r.bound]);
    return grid(['', 'warps', 'registers', 'shared', 'local', 'spills', 'blocks at once', 'occupancy', 'bound by'], rows, 'What each compiled kernel takes');
  }

  light() {} step(by) { this.root.scrollBy(0, 40 * by); } hold() {} following() {} close() { this.resized.disconnect(); }
  search() { return 0; }
  get whole() { return this.tables.filter(Boolean).map(t => [...t.querySelectorAll('tr')].map(r => [...r.children].map(c => c.textContent).join('\t')).join('\n')).join('\n\n'); }
}

function grid(head, rows, title) {
  return el('figure', {}, el('figcaption', {}, title), el('table', {class: 'numbers'},
    el('thead', {}, el('tr', {}, ...head.map(t => el('th', {}, t)))), el('tbody', {}, ...rows.map(r => el('tr', {}, ...r.map((t, k) => el('td', {'data-head': head[k], class: String(t).length > 12 ? 'long' : ''}, String(t)))))))); 
}

/** How many instructions of each kind, as bars. */
function mix({kernel, instructions}) {
  const rows = Object.entries(instructions).sort((a, b) => b[1] - a[1]), most = Math.max(1, ...rows.map(r => r[1]));
  const bars = rows.flatMap(([name, n]) => {
    const bar = el('i', {});
    bar.style.width = `${100 * n / most}%`;
    return [el('span', {}, name), el('span', {class: 'bar'}, bar), el('b', {}, String(n))];
  });
  return el('figure', {}, el('figcaption', {}, `Instructions of ${kernel}`), el('div', {class: 'mix'}, ...bars));
}

/** The roofline: the rate that the memory allows at an intensity, the peaks, and where the kernels stand. */
function roof({chip, kernels}, wide) {
  const high = 260, left = 86, bottom = 38;
  const units = Object.entries(chip.rates).filter(([unit]) => kernels.some(k => k.needed.operations[unit]));
  const at = kernels.filter(k => k.needed.total && k.needed.bytes).map(k => ({...k, x: k.needed.total / k.needed.bytes, rate: k.needed.total / (k.measured || k.floor)}));
  const low = Math.min(0.05, ...at.map(k => k.x / 2)), far = Math.max(1000, ...at.map(k => k.x * 3));
  const peak = Math.max(...units.map(u => u[1]), chip.bandwidth), floor = Math.min(chip.bandwidth * low, ...at.map(k => k.rate / 2));
  const x = v => left + (wide - left - 10) * Math.log(v / low) / Math.log(far / low);
  const y = v => 12 + (high - bottom - 12) * (1 - Math.log(v / floor) / Math.log(2.5 * peak / floor));
  const named = units.map(([unit, rate]) => ({text: `${unit} ${count(rate)}FLOP/s`, rate}))
    .map(({text, rate}) => {
      const tx = wide - 12 - 6.4 * text.length, crossed = at.some(k => Math.abs(y(k.rate) - y(rate)) < 14 && x(k.x) > tx - 6);
      return {text, tx, ty: y(rate) - (crossed ? 12 : 4), width: 6.4 * text.length}; // above a dot on the roof
    });
  const roofs = units.map(([, rate], k) => svg('g', {class: 'roof'},
    svg('path', {d: `M${x(low)},${y(chip.bandwidth * low)} L${x(rate / chip.bandwidth)},${y(rate)} L${x(far)},${y(rate)}`}),
    svg('text', {x: wide - 12, y: named[k].ty, class: 'end'}, named[k].text)));
  const across = powers(low, far * 0.9).flatMap(v => [svg('path', {class: 'tick', d: `M${x(v)},12 V${high - bottom}`}),
    svg('text', {x: x(v), y: high - 22, class: 'middle'}, String(+v.toPrecision(1)))]);
  const up = powers(floor, 2.5 * peak).flatMap(v => [svg('path', {class: 'tick', d: `M${left},${y(v)} H${wide - 10}`}),
    svg('text', {x: left - 6, y: y(v) + 4, class: 'end rate'}, `${count(v)}FLOP/s`)]);
  return el('figure', {}, el('figcaption', {}, `Roofline of ${chip.name}: rate against operations a byte; ${kernels.some(k => k.measured) ? 'measured' : 'the best there can be'}`),
    svg('svg', {class: 'roofline', viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: 'img', 'aria-label': `roofline of ${chip.name}`},
      ...across, ...up, ...roofs, svg('text', {x: (left + wide) / 2, y: high - 6, class: 'middle'}, 'FLOP/B'), ...points(at, x, y, [left, wide - 8, high - bottom], named)));
}

/** Kernels whose dots would lie on each other as one: `k1 +5`. */
function together(at, x, y) {
  const groups = [];
  for (const k of at) {
    const near = groups.find(([g]) => g.name !== 'graph' && k.name !== 'graph' && Math.hypot(x(g.x) - x(k.x), y(g.rate) - y(k.rate)) < 9);
    near ? near.push(k) : groups.push([k]);
  }
  return groups.map(([first, ...others]) => ({...first, name: others.length ? `${first.name} +${others.length}` : first.name}));
}

/** 1, 10, 100, … between two numbers; every second one where there are many. */
function powers(from, to) {
  const all = [...Array(50).keys()].map(e => 10 ** (e - 20)).filter(v => v >= from && v <= to);
  return all.length > 7 ? all.filter((_, k) => k % 2 === 0) : all;
}

/** A dot for the kernels at one place, their names beside it: where no other name is. */
function points(at, x, y, [left, right, bottom], named) {
  const dots = together(at, x, y).sort((a, b) => b.rate - a.rate);
  const taken = [...named, ...dots.map(k => ({tx: x(k.x) - 5, ty: y(k.rate) + 4, width: 10}))];
  return dots.map(k => {
    const [cx, cy, width] = [x(k.x), y(k.rate), 6.4 * k.name.length];
    const places = [16, -8, 4, 28, 40, -20, 52].flatMap(dy => [cx + 7, cx - 7 - width].map(tx => ({tx, ty: cy + dy})));
    const free = ({tx, ty}) => tx > left && tx + width < right && ty < bottom && taken.every(t => tx + width < t.tx || t.tx + t.width < tx || Math.abs(ty - t.ty) > 11);
    const {tx, ty} = places.find(free) ?? places[0];
    taken.push({tx, ty, width});
    return svg('g', {class: `point ${k.name === 'graph' ? 'whole' : ''}`,
      'data-tip': `${k.name}: ${k.x.toPrecision(3)} FLOP/B, ${k.measured ? '' : 'at most '}${count(k.rate)}FLOP/s`},
    svg('circle', {cx, cy, r: 4.5}), svg('text', {x: tx, y: ty}, k.name));
  });
}

/** 1.5 M. */
function count(n) {
  for (const unit of ['', ' k', ' M', ' G', ' T']) {
    if (n < 1000) return `${Number(n.toPrecision(3))}${unit}`;
    n /= 1000;
  }
  return `${Number(n.toPrecision(3))} P`;
}

const time = seconds => seconds < 1e-3 ? `${(seconds * 1e6).toFixed(2)} µs` : `${(seconds * 1e3).toFixed(3)} ms`;
