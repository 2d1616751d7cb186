// ---- load.js: the document, and how elements are made ----------------------------------------
// Everything that a program can contain reaches the page through `el` and `textContent`: as text.

/** The JSON document that stands deflated, in base64, in the page. */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.trim()), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return new Response(stream).json();
}

const SVG = 'http://www.w3.org/2000/svg';

/** An element: el('button', {class: 'small', onclick: f}, 'text', otherElement). */
function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for a picture: svg('rect', {x: 1, y: 2}). */
function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name.startsWith('aria-')) node.setAttribute(name, value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter(c => c != null && c !== false).map(shown));
  return node;
}

/** Gives a node other children; the control that had the focus has it again. */
function renew(node, ...children) {
  const controls = () => [...node.querySelectorAll('button, select, input')], held = controls().indexOf(document.activeElement);
  node.replaceChildren(...children);
  if (held >= 0) controls()[held]?.focus();
}

/** Text without characters that hide or turn round what stands beside them; as long as before. */
const shown = text => typeof text !== 'string' ? text : text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, '\ufffd');

const plural = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;

/** 1234567 → "1.2 MB". */
function bytes(n) {
  for (const unit of ['B', 'kB', 'MB', 'GB']) {
    if (n < 1000) return `${n < 10 && unit !== 'B' ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1000;
  }
  return `${n.toFixed(1)} TB`;
}
