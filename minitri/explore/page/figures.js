// ---- figures.js: the roofline, and what the compiled kernels take --------------------------------

EXTRA.push(program => !program.figures ? [] : [{id: 'resources', title: 'bytes, operations, registers, instructions', apart: true,
  make: () => new Figures(program.figures)}]);

class Figures {
  constructor(data) {
    this.data = data;
    this.tables = [this.work(), this.taken()];
    this.root = el('div', {class: 'figures', tabindex: 0, role: 'region', 'aria-label': 'figures'},
      data.chip && data.kernels.length ? roof(data) : '', ...this.tables.filter(Boolean), ...data.missing.map(text => el('p', {class: 'hint'}, text)),
      ...data.resources.map(r => mix(r)));
    this.node = this.root;
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

  light() {} step(by) { this.root.scrollBy(0, 40 * by); } hold() {} following() {} close() {}
  search() { return 0; }
  get whole() { return this.tables.filter(Boolean).map(t => [...t.querySelectorAll('tr')].map(r => [...r.children].map(c => c.textContent).join('\t')).join('\n')).join('\n\n'); }
}

function grid(head, rows, title) {
  return el('figure', {}, el('figcaption', {}, title), el('table', {class: 'numbers'},
    el('thead', {}, el('tr', {}, ...head.map(t => el('th', {}, t)))), el('tbody', {}, ...rows.map(r => el('tr', {}, ...r.map(t => el('td', {}, String(t)))))))); 
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
function roof({chip, kernels}) {
  const wide = 520, high = 236, left = 14, bottom = 34;
  const units = Object.entries(chip.rates).filter(([unit]) => kernels.some(k => k.needed.operations[unit]));
  const at = kernels.filter(k => k.needed.total && k.needed.bytes).map(k => ({...k, x: k.needed.total / k.needed.bytes, rate: k.needed.total / (k.measured || k.floor)}));
  const low = Math.min(0.05, ...at.map(k => k.x / 2)), far = Math.max(1000, ...at.map(k => k.x * 3));
  const peak = Math.max(...units.map(u => u[1]), chip.bandwidth), floor = Math.min(chip.bandwidth * low, ...at.map(k => k.rate / 2));
  const x = v => left + (wide - left - 10) * Math.log(v / low) / Math.log(far / low);
  const y = v => 8 + (high - bottom - 8) * (1 - Math.log(v / floor) / Math.log(2 * peak / floor));
  const roofs = units.map(([unit, rate]) => svg('g', {class: 'roof'},
    svg('path', {d: `M${x(low)},${y(chip.bandwidth * low)} L${x(rate / chip.bandwidth)},${y(rate)} L${x(far)},${y(rate)}`}),
    svg('text', {x: wide - 12, y: y(rate) - 4, class: 'end'}, `${unit} ${count(rate)}FLOP/s`)));
  const powers = [...Array(40).keys()].map(e => 10 ** (e - 20)).filter(v => v >= low && v <= far * 0.9);
  const ticks = powers.flatMap(v => [svg('path', {class: 'tick', d: `M${x(v)},8 V${high - bottom}`}),
    svg('text', {x: x(v), y: high - 20, class: 'middle'}, String(+v.toPrecision(1)))]);
  return el('figure', {}, el('figcaption', {}, `Roofline of ${chip.name}: rate against operations a byte; ${kernels.some(k => k.measured) ? 'measured' : 'the best there can be'}`),
    svg('svg', {class: 'roofline', viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: 'img', 'aria-label': `roofline of ${chip.name}`},
      ...ticks, ...roofs, svg('text', {x: wide / 2, y: high - 5, class: 'middle'}, 'FLOP/B'), ...points(at, x, y)));
}

/** A dot a kernel; their names stand one below the other, in the order of the dots. */
function points(at, x, y) {
  let under = 0;
  return [...at].sort((a, b) => b.rate - a.rate).map(k => {
    under = Math.max(y(k.rate) + 14, under + 12);
    return svg('g', {class: `point ${k.name === 'graph' ? 'whole' : ''}`},
      svg('title', {}, `${k.name}: ${k.x.toPrecision(3)} FLOP/B, ${k.measured ? '' : 'at most '}${count(k.rate)}FLOP/s`),
      svg('circle', {cx: x(k.x), cy: y(k.rate), r: 4.5}), svg('text', {x: x(k.x) + 7, y: under}, k.name));
  });
}

/** 1.5 M. */
function count(n) {
  for (const unit of ['', ' k', ' M', ' G', ' T']) {
    if (n < 1000) return `${Number(n.toPrecision(3))}${unit}`;
    n /= 1000;
  }
  return `${n.toPrecision(3)} P`;
}

const time = seconds => seconds < 1e-3 ? `${(seconds * 1e6).toFixed(2)} µs` : `${(seconds * 1e3).toFixed(3)} ms`;
