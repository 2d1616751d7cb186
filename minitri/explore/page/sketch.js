// ---- sketch.js: the drawings of the walk: fused kernels, the grid, a tile, a mask ------------------

const WIDE = 340, HIGH = 146, MOST_BLOCKS = 8;

function sketch(data) {
  const parts = data.kind === 'fusion' ? fusion(data) : blocks(data);
  return el('figure', {}, svg('svg', {viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, role: 'img', 'aria-label': data.caption}, ...parts),
    el('figcaption', {}, data.caption));
}

/** An array as its last two axes, cut into the blocks of the grid and of the loop. A grid program writes all blocks of its
 * loop: in the drawing of the grid they are one strip. Only the drawing of a mask shows how far a tile is past the end. */
function blocks({kind, name, dims, tested}) {
  const across = divided(dims.at(-1), 206, kind), down = dims.length > 1 ? divided(dims.at(-2), 84, kind) : {count: 1, size: 40, length: 40, real: 40, label: ''};
  const left = 104, top = 22, parts = [], fewer = [down, across].filter(d => d.all > d.count);
  const cut = fewer.length ? `: ${fewer.map(d => d.count).join(' × ')} of ${fewer.map(d => d.all).join(' × ')} blocks` : '';
  const last = kind === 'mask', at = d => d.role === 'whole' ? 0 : last && d.axis === tested ? d.count - 1 : Math.min(1, d.count - 1);
  const [row, column] = [at({...down, axis: dims.at(-2)?.axis}), at({...across, axis: dims.at(-1).axis})];
  for (let r = 0; r < down.count; r++) {
    for (let c = 0; c < across.count; c++) {
      const here = r === row && c === column, passed = walks(dims.at(-1)) && r === row || walks(dims.at(-2)) && c === column;
      const kinds = here ? 'block here' : kind === 'tile' && passed ? 'block passed' : 'block';
      parts.push(svg('rect', {class: kinds, x: left + c * across.size, y: top + r * down.size, width: across.size, height: down.size}));
    }
  }
  if (kind !== 'mask' && walks(dims.at(-1))) parts.push(arrow(left + 8, top + (row + 0.5) * down.size, left + across.length - 6, top + (row + 0.5) * down.size));
  if (kind !== 'mask' && walks(dims.at(-2))) parts.push(arrow(left + (column + 0.5) * across.size, top + 8, left + (column + 0.5) * across.size, top + down.length - 6));
  if (kind === 'mask') parts.push(...beyond(left, top, across, down, dims, tested));
  parts.push(svg('text', {x: left + across.real / 2, y: top - 6, class: 'middle'}, across.label), ...bracket(left, top + down.length + 4, across),
    svg('text', {x: left - 6, y: top + down.length / 2 + 4, class: 'end'}, down.label),
    svg('text', {x: 4, y: HIGH - 4}, short(`${name}${cut}${dims.length > 2 ? `, for each of ${dims.slice(0, -2).map(d => d.extent).join(' × ')}` : ''}`, WIDE - 8)));
  return parts;
}

const walks = dim => dim?.role === 'loop';

/** An axis in blocks that fit into a length: how many are drawn, how large, and how far the array reaches in them. */
function divided({axis, extent, size, block, lanes, role}, most, kind) {
  const width = role === 'whole' && kind === 'mask' ? lanes || block : block, strip = role === 'whole' && !(kind === 'mask' && lanes) || kind === 'grid' && role === 'loop';
  const all = strip ? 1 : size && width ? Math.ceil(size / width) : 5, count = Math.min(all, MOST_BLOCKS), step = most / count;
  const even = strip || width === 1 || size && size % width === 0, part = even ? 1 : size && all <= MOST_BLOCKS ? size / (count * width) : 1 - 0.4 / count;
  const longer = size && kind === 'mask' && role === 'whole' && width > size, parts = role === 'whole' ? '' : ` by ${block}`;
  return {all, count, size: step, length: most, real: most * Math.min(1, part), role, tile: longer ? width : 0, label: short(`${longer ? 'array ' : ''}${axis ? `${axis}: ` : ''}${extent}${parts}`, 100)};
}

/** How far a tile reaches that is longer than the array. */
function bracket(left, top, {tile, length}) {
  if (!tile) return [];
  return [svg('path', {class: 'bracket', d: `M${left},${top} v4 h${length} v-4`}), svg('text', {x: left + length / 2, y: top + 15, class: 'middle'}, `tile: ${tile}`)];
}

/** What lies past the end of the array along the axis that is tested. */
function beyond(left, top, across, down, dims, tested) {
  const hatch = svg('pattern', {id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'}, svg('path', {d: 'M0,0 V6', class: 'line'}));
  const [x, y] = [left + across.real, top + down.real];
  const sides = dims.at(-1).axis === tested ? [x, top, left + across.length - x, down.length] : [left, y, across.length, top + down.length - y];
  const [a, b, width, height] = sides;
  return [svg('defs', {}, hatch), svg('rect', {class: 'past', x: a, y: b, width: Math.max(width, 4), height: Math.max(height, 4)}),
    svg('path', {class: 'edge-of', d: dims.at(-1).axis === tested ? `M${a},${b - 4} v${height + 8}` : `M${a - 4},${b} h${width + 8}`})];
}

function arrow(x0, y0, x1, y1) {
  const back = x1 === x0 ? `M${x1 - 4},${y1 - 6} L${x1},${y1} L${x1 + 4},${y1 - 6}` : `M${x1 - 6},${y1 - 4} L${x1},${y1} L${x1 - 6},${y1 + 4}`;
  return svg('path', {class: 'walks', d: `M${x0},${y0} L${x1},${y1} ${back}`});
}

/** The kernels as boxes of the operations that they run: at most three, around the one that the walk is in. */
function fusion({kernels, here}) {
  const first = Math.max(0, Math.min(here - 1, kernels.length - 3)), shown = kernels.slice(first, first + 3), wide = (WIDE - 8) / shown.length;
  return shown.flatMap((kernel, k) => box(kernel, 4 + k * wide, wide - 14));
}

/** A kernel: its name, what it reads and writes, and those of its operations that there is room for. */
function box({name, ops, reads, writes}, x, width) {
  const room = Math.max(1, Math.floor((width - 4) / 72)), most = 4 * room, drawn = Math.min(ops.length, most);
  const columns = Math.ceil(drawn / Math.ceil(drawn / room)), step = (width - 6) / columns; // rows of the same length
  const followed = Math.max(0, ops.findIndex(o => o.here)), first = Math.max(0, Math.min(followed - most + 2, ops.length - most));
  const chips = ops.slice(first, first + most).flatMap(({op, here}, n) => {
    const left = x + 5 + (n % columns) * step, top = 40 + 17 * Math.floor(n / columns), size = step - 4;
    return [svg('rect', {class: here ? 'chip-box here' : 'chip-box', x: left, y: top, width: size, height: 15, rx: 3}),
      svg('text', {x: left + size / 2, y: top + 11, class: 'middle'}, short(op, size))];
  });
  const middle = {x: x + width / 2, class: 'middle'}, title = ops.length > most ? `${name}: ${ops.length} ops` : name;
  return [svg('rect', {class: 'kernel', x, y: 22, width, height: 92, rx: 5}), svg('text', {x: x + 6, y: 35, class: 'strong'}, short(title, width - 8)), ...chips,
    svg('text', {...middle, y: 14}, `${some(reads, width - 14)} ↓`), svg('text', {...middle, y: HIGH - 4}, `↓ ${some(writes, width - 14)}`)];
}

/** As many of some names as fit, and how many more there are. */
function some(names, width) {
  for (let k = names.length; k > 1; k--) {
    const text = names.slice(0, k).join(', ') + (k < names.length ? ` +${names.length - k}` : '');
    if (fits(text, width)) return text;
  }
  return names.length > 1 ? `${short(names[0], width - 27)} +${names.length - 1}` : short(names.join(), width);
}

/** As much of a text as fits, at 6.7 pixels a letter. */
const fits = (text, width) => text.length * 6.7 <= width;
const short = (text, width) => fits(text, width) ? text : `${text.slice(0, Math.max(1, Math.floor(width / 6.7) - 1))}…`;
