// ---- split.js: the bar between two panes, which the pointer or the arrow keys move ---------------

const LEAST = 0.12; // of what both panes have together

class Split {
  constructor(before, after) {
    Object.assign(this, {before, after});
    this.node = el('div', {class: 'split', role: 'separator', tabindex: 0, 'aria-label': `width of ${before.id}`,
      'aria-valuemin': 100 * LEAST, 'aria-valuemax': 100 * (1 - LEAST), 'data-tip': 'drag, or press the arrow keys; a double click makes both equal'});
    const on = (name, act) => this.node.addEventListener(name, act);
    on('pointerdown', e => this.node.setPointerCapture(e.pointerId));
    on('pointermove', e => this.node.hasPointerCapture(e.pointerId) && this.drag(e));
    on('dblclick', () => this.set(0.5));
    on('keydown', e => this.key(e));
    this.set(this.part);
  }

  get part() { return this.before.share / (this.before.share + this.after.share); }

  /** Gives the first pane a part of what both have. */
  set(part) {
    const both = this.before.share + this.after.share, kept = Math.max(LEAST, Math.min(1 - LEAST, part));
    this.before.share = both * kept;
    this.after.share = both * (1 - kept);
    for (const pane of [this.before, this.after]) pane.node.style.flexGrow = pane.share;
    this.node.setAttribute('aria-valuenow', Math.round(100 * kept));
  }

  drag({clientX, clientY}) {
    const a = this.before.node.getBoundingClientRect(), b = this.after.node.getBoundingClientRect();
    this.set(NARROW.matches ? (clientY - a.top) / (b.bottom - a.top) : (clientX - a.left) / (b.right - a.left));
  }

  key(e) {
    const steps = {ArrowLeft: -0.04, ArrowUp: -0.04, ArrowRight: 0.04, ArrowDown: 0.04, Home: -1, End: 1};
    if (!(e.key in steps)) return;
    this.set(this.part + steps[e.key]);
    e.preventDefault();
    e.stopPropagation(); // arrows mean something else in a pane
  }
}
