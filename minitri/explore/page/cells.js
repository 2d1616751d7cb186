// ---- cells.js: arrays and tiles as cells, for the player -----------------------------------------

const MANY = 160; // cells: more of them are small squares until somebody asks for their values

const product = shape => shape.reduce((a, b) => a * b, 1);

const flat = (index, shape) => index.reduce((n, i, d) => n * shape[d] + i, 0);

const coordinate = (element, shape, d) => Math.floor(element / product(shape.slice(d + 1))) % shape[d];

const indexOf = (element, shape) => shape.map((_, d) => coordinate(element, shape, d));

/** An array as a table; of three axes or more one table for each place along the leading ones. */
function slices(shape, cell, zoomed) {
  const leading = shape.slice(0, -2), plane = shape.slice(-2), small = product(shape) > MANY && !zoomed;
  return el('div', {class: 'slices'}, ...[...Array(product(leading)).keys()].map(n => {
    const place = indexOf(n, leading), cells = [...Array(product(plane)).keys()].map(k => cell([...place, ...indexOf(k, plane)]));
    const table = el('div', {class: `cells ${small ? 'tiny' : ''}`}, ...cells);
    table.style.gridTemplateColumns = `repeat(${plane.at(-1) ?? 1}, max-content)`;
    return el('div', {}, leading.length ? el('div', {class: 'hint'}, `[${place.join(', ')}, :, :]`) : '', table);
  }));
}

/** How far a table reaches: to the end of the array, or to what lies beyond the end of its last two axes. */
function reach(shape, beyond) {
  const far = [...beyond.keys()].map(key => key.split(',').map(Number)).filter(index => index.every(i => i >= 0));
  return shape.map((n, d) => d < shape.length - 2 ? n : Math.min(n + 40, Math.max(n, ...far.map(index => index[d] + 1))));
}

/** What the colours of the elements of a step mean: those that it has. */
function legend(step) {
  const {shape, real, state = ''} = step;
  const past = step.values.some((_, element) => state[element] !== 'm' && real.some((n, d) => shape[d] > 1 && coordinate(element, shape, d) >= n));
  const kinds = [['live', step.array ? 'accessed' : 'inside', true], ['masked', 'masked', state.includes('m')], ['past', 'past the end of the block', past],
    ['loose', 'masked before', step.stopped?.includes('m')], ['out', 'out of bounds', state.includes('x')]];
  return el('div', {class: 'legend'}, ...kinds.filter(k => k[2]).map(([kind, name]) => el('span', {}, el('i', {class: `cell ${kind}`}), name)));
}
