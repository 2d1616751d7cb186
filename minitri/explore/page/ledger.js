// ---- ledger.js: what was fused, why, and what if not ----------------------------------------------

EXTRA.push((program, at, links) => !program.ledger ? [] : [{id: 'ledger', apart: true,
  make: () => new Ledger(program.ledger, at, links)}]);

class Ledger {
  constructor(data, at, links) {
    Object.assign(this, {data, at, links});
    this.drawing = new DrawingView(at, data.plans.map(p => p.view), links, true);
    this.said = el('div', {class: 'choice'});
    this.rows = data.decisions.map(d => this.row(d));
    const head = ['', 'value', 'kernel', 'why', 'bytes', 'what if not'].map(t => el('th', {}, t));
    this.table = el('div', {class: 'decisions'}, el('table', {}, el('thead', {}, el('tr', {}, ...head)), el('tbody', {}, ...this.rows)));
    this.node = el('div', {class: 'column ledger'}, this.said, this.drawing.node, this.rows.length ? this.table : '');
    this.show(0);
  }

  /** A decision: what was fused or not, why, and the plan without it. */
  row(d) {
    const {at, links} = this, point = marks => links.point(at, marks);
    const row = el('tr', {class: d.verdict, tabindex: 0, onclick: () => links.pinned(at, d.marks), onfocus: () => point(d.marks),
      onkeydown: e => {
        if (e.key !== 'Enter' || e.target !== row) return;
        e.stopPropagation(); // else the drawing above would answer too
        links.pinned(at, d.marks);
      },
      onpointerenter: e => e.pointerType === 'mouse' && point(d.marks), onpointerleave: () => point([])},
    el('td', {}, el('span', {class: `verdict ${d.verdict}`}, d.verdict)), el('td', {}, el('code', {'data-tip': d.value}, d.value)),
    el('td', {}, d.from === d.to ? d.from : `${d.from} → ${d.to}`), el('td', {class: 'rule'}, d.rule),
    el('td', {class: 'bytes'}, `${d.verdict === 'fused' ? 'saves' : 'costs'} ${bytes(d.bytes)}`), el('td', {}, this.whatIf(d)));
    return row;
  }

  whatIf(d) {
    if (!d.instead) return '';
    const plan = this.data.plans[d.instead], more = plan.bytes - this.data.plans[0].bytes;
    return el('button', {onclick: e => { e.stopPropagation(); this.show(d.instead); }},
      `${more < 0 ? '−' : '+'}${bytes(Math.abs(more))}, ${plural(plan.kernels, 'kernel')}`);
  }

  show(number) {
    this.number = number;
    const {plans, assumed} = this.data, plan = plans[number], first = plans[0];
    const usual = plans.slice(0, 2).filter((p, k) => k === 0 || p.title === 'nothing fused');
    const ratio = plan.bytes / Math.max(1, first.bytes);
    renew(this.said, ...usual.map((p, k) => el('button', {'aria-pressed': k === number, onclick: () => this.show(k)}, p.title)),
      number >= usual.length ? el('button', {'aria-pressed': true}, plan.title) : '',
      el('span', {}, `${plural(plan.kernels, 'kernel')}, ${bytes(plan.bytes)} moved`, number ? el('b', {}, ` (${ratio.toFixed(1)} times as much)`) : ''),
      assumed ? el('span', {class: 'hint'}, assumed) : '');
    this.drawing.show(number);
  }

  light(reveal) {
    this.drawing.light(reveal);
    const [hover, pin] = this.links.lit(this.at);
    this.data.decisions.forEach((d, k) => {
      this.rows[k].classList.toggle('lit', d.marks.some(m => hover.has(m)));
      this.rows[k].classList.toggle('pin', d.marks.some(m => pin.has(m)));
    });
  }

  step(by) { this.drawing.step(by); }
  hold() { this.drawing.hold(); }
  following() {}
  search(text) {
    const found = this.rows.map(r => text !== '' && r.textContent.toLowerCase().includes(text.toLowerCase()));
    found.forEach((f, k) => this.rows[k].classList.toggle('hit', f));
    return found.filter(Boolean).length;
  }
  get whole() { return this.data.decisions.map(d => `${d.verdict}  ${d.value}  ${d.from === d.to ? d.from : `${d.from} -> ${d.to}`}: ${d.rule}`).join('\n'); }
  close() {}
}
