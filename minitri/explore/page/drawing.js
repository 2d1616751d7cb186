// ---- drawing.js: the graph ---------------------------------------------------------------------

class DrawingView {
  /** `plainly`: somebody else chooses the view. */
  constructor(at, drawings, links, plainly = false) {
    this.plainly = plainly;
    Object.assign(this, {at, drawings, links, cursor: -1});
    this.choice = el('div', {class: 'choice'});
    this.root = el('div', {class: 'drawing', tabindex: 0, role: 'region', 'aria-label': 'graph'});
    this.node = el('div', {class: 'column'}, this.choice, this.root);
    this.root.addEventListener('pointerover', e => e.pointerType === 'mouse' && this.point(e.target));
    this.root.addEventListener('pointerleave', () => links.point(at, []));
    this.root.addEventListener('click', e => this.click(e.target));
    this.show(0);
  }

  /** Draws one of the views: all folded, one group unfolded, everything. */
  show(number) {
    this.number = number;
    this.boxes = this.drawings[number].boxes;
    renew(this.choice, ...(this.drawings.length > 1 ? this.drawings : []).map((d, k) =>
      el('button', {'aria-pressed': k === number, onclick: () => this.show(k)}, d.title)));
    this.choice.hidden = this.plainly || this.drawings.length < 2;
    this.root.replaceChildren(this.picture(this.drawings[number]));
    this.cursor = -1;
    this.light(false);
    requestAnimationFrame(() => this.home()); // the panes beside this one are open then
  }

  /** A wide drawing begins at its highest box, unless one is lit. */
  home() {
    const top = Math.min(...this.boxes.map(b => b.at[1])), first = this.groups[this.boxes.findIndex(b => b.at[1] === top)];
    if (!this.root.querySelector('.pin')) first?.scrollIntoView({block: 'nearest', inline: 'center'});
  }

  picture({width, height, boxes, edges}) {
    this.groups = boxes.map((box, k) => this.box(box, k));
    this.lines = edges.map(([a, b, points, text]) =>
      svg('path', {d: curve(points), class: 'edge', 'data-a': a, 'data-b': b, 'marker-end': 'url(#arrow)'}, text ? svg('title', {}, text) : ''));
    const taken = [], arrow = svg('marker', {id: 'arrow', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: 'auto'},
      svg('path', {d: 'M0,0.5 L8,4 L0,7.5 z', class: 'tip'}));
    return svg('svg', {width: width + 32, height: height + 32, viewBox: `-16 -16 ${width + 32} ${height + 32}`},
      svg('defs', {}, arrow), ...this.lines, ...this.groups, ...edges.filter(e => e[3]).map(e => words(e, boxes, taken, width)));
  }

  box({label, type, at: [x, y, width, height], kind, output}, k) {
    const group = svg('g', {class: `box ${kind} ${output ? 'output' : ''}`, 'data-box': k, transform: `translate(${x} ${y})`});
    const lines = label.split('\n').map(text => [text, '']);
    if (kind !== 'view') lines.push(...type.split('\n').map(text => [text, 'type']));
    group.append(svg('rect', {width, height, rx: kind === 'input' ? height / 2 : 4}),
      ...lines.map(([text, kinds], n) => svg('text', {x: width / 2, y: 14 + 13 * n, class: kinds}, text)),
      svg('title', {}, boxText({label, type})));
    return group;
  }

  boxAt(target) {
    const group = target.closest('.box');
    return group ? Number(group.dataset.box) : -1;
  }

  point(target) {
    const k = this.boxAt(target);
    this.links.point(this.at, k < 0 ? [] : this.boxes[k].marks);
  }

  click(target) {
    const k = this.boxAt(target);
    if (k < 0) return;
    if (this.boxes[k].opens) this.show(this.boxes[k].opens);
    else this.links.pinned(this.at, this.boxes[k].marks);
  }

  light(reveal) {
    const [hover, pin] = this.links.lit(this.at);
    this.boxes.forEach((box, k) => {
      const held = box.marks.some(m => pin.has(m));
      this.groups[k].classList.toggle('lit', !held && box.marks.some(m => hover.has(m)));
      this.groups[k].classList.toggle('pin', held);
      this.groups[k].classList.toggle('cursor', k === this.cursor);
    });
    const bright = k => /lit|pin/.test(this.groups[k].getAttribute('class'));
    for (const line of this.lines) line.classList.toggle('lit', bright(line.dataset.a) && bright(line.dataset.b));
    const first = this.groups.find(g => g.classList.contains('pin'));
    if (reveal && first) first.scrollIntoView({block: 'nearest', inline: 'nearest'});
  }

  step(by) {
    this.cursor = (this.cursor + by + this.boxes.length) % this.boxes.length;
    this.links.point(this.at, this.boxes[this.cursor].marks);
    this.light(false);
    this.groups[this.cursor].scrollIntoView({block: 'nearest', inline: 'nearest'});
  }

  hold() {
    if (this.cursor >= 0) this.click(this.groups[this.cursor]);
  }

  search(text) {
    const found = this.boxes.map(b => text && boxText(b).toLowerCase().includes(text.toLowerCase()));
    this.groups.forEach((g, k) => g.classList.toggle('hit', Boolean(found[k])));
    return found.filter(Boolean).length;
  }

  following() { this.root.querySelector('.hit, .pin, .lit')?.scrollIntoView({block: 'center', inline: 'center'}); }

  get whole() { return this.boxes.map(boxText).join('\n'); }

  close() {}
}

/** The text of a box in one line. */
function boxText({label, type}) { return `${label}: ${type}`.replaceAll('\n', ' '); }

/** What is written on an edge: on its curve, near the box that is no group, where nothing else is written. An edge in a crowd
 * has no place for it: there the pointer tells it. */
function words([a, , points, text], boxes, taken, room) {
  const width = text.length * 6 + 6, within = x => Math.max(width / 2 - 14, Math.min(room + 14 - width / 2, x)), order = boxes[a].kind !== 'group' ? p => p : p => [...p].reverse();
  const places = order(points.slice(1).flatMap(([x1, y1], k) => [0.3, 0.5, 0.7].map(t =>
    [within(points[k][0] + t * t * (3 - 2 * t) * (x1 - points[k][0])), points[k][1] + (1.5 * t * (1 - t) + t ** 3) * (y1 - points[k][1])])));
  const free = ([x, y]) => taken.every(t => Math.abs(x - t.x) > (width + t.width) / 2 || Math.abs(y - t.y) > 13);
  const place = places.find(free);
  if (!place) return '';
  const [x, y] = place;
  taken.push({x, y, width});
  return svg('g', {class: 'words'}, svg('rect', {x: x - width / 2, y: y - 8, width, height: 15}), svg('text', {x, y: y + 4}, text));
}

/** A smooth path through points, leaving and arriving straight down. */
function curve(points) {
  let path = `M${points[0]}`;
  for (let k = 1; k < points.length; k++) {
    const [x0, y0] = points[k - 1], [x1, y1] = points[k], half = (y0 + y1) / 2;
    path += ` C${x0},${half} ${x1},${half} ${x1},${y1}`;
  }
  return path;
}
