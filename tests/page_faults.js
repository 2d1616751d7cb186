// What is wrong with the layout of a page: a function for tests/test_explore_layout.py.
// cut: a text that is longer than its element; outside: beyond the window, its pane or its picture, where nothing scrolls;
// overlap: neighbours that lie on each other; contrast: a text that is hard to read on what is behind it; small: a text in
// a picture of less than 9 pixels.

(() => {
  const faults = new Set(), named = n => `${n.tagName.toLowerCase()}.${n.getAttribute('class') ?? ''} "${n.textContent.slice(0, 30)}"`;
  const visible = n => { const {width, height} = n.getBoundingClientRect(); return width > 0 && height > 0 && getComputedStyle(n).visibility !== 'hidden'; };
  const all = [...document.querySelectorAll('#app *')].filter(n => !n.closest('dialog:not([open]), .split') && visible(n));
  const hasText = n => [...n.childNodes].some(c => c.nodeType === 3 && c.data.trim());

  /** The nearest element around that scrolls. */
  const scroller = n => { for (let a = n.parentElement; a; a = a.parentElement) if (/auto|scroll/.test(getComputedStyle(a).overflow)) return a; };
  const leaves = (inner, outer) => inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1;

  for (const n of all) {
    const box = n.getBoundingClientRect(), around = scroller(n), pane = n.closest('.pane');
    if (hasText(n) && /hidden|clip/.test(getComputedStyle(n).overflowX) && n.scrollWidth > n.clientWidth + 1) faults.add(`cut: ${named(n)}`);
    if (!around && leaves(box, {left: 0, top: 0, right: innerWidth, bottom: innerHeight})) faults.add(`outside: ${named(n)}`);
    if (pane && hasText(n) && !(around && pane.contains(around)) && box.right > pane.getBoundingClientRect().right + 1) faults.add(`outside its pane: ${named(n)}`);
    if (n.matches('.figures figure, .decisions') && n.scrollWidth > n.clientWidth + 1) faults.add(`cut: ${named(n)}`);
    if (n.matches('.status') && n.scrollHeight > n.clientHeight + 1) faults.add(`cut: ${named(n)}`);
    if (n.tagName === 'text' && parseFloat(getComputedStyle(n).fontSize) * n.getScreenCTM().a < 9) faults.add(`small: ${named(n)}`);
    if (n.tagName === 'text' && leaves(box, n.ownerSVGElement.getBoundingClientRect())) faults.add(`outside its picture: ${named(n)}`);
  }

  const groups = ['.top > *, .top h1, .top .chip', '.rail button, .rail sup', '.pane > header > *', '.controls > *', '.told, .turn button, .sketch', '.status > *',
    '.roofline text, .roofline circle', '.drawing .words', '.sketch text', '.legend span', '.choice > *', 'main > *',
    '.editor > header > *', '.fields label, .sizes > button, .sizes > .hint', '.problems li > *', '.card', '.editor > :not(dialog)'];
  for (const group of groups) {
    const items = all.filter(n => n.matches(group)).map(n => [n, n.getBoundingClientRect()]);
    items.forEach(([a, p], k) => items.slice(0, k).forEach(([b, q]) => {
      const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left), high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (wide > 2 && high > 3 && !(a.tagName === 'circle' && b.tagName === 'circle') && !a.contains(b) && !b.contains(a) && a.closest('.pane') === b.closest('.pane')) faults.add(`overlap: ${named(a)} and ${named(b)}`);
    }));
  }

  /** [red, green, blue, opacity] of `rgb(1, 2, 3)`, `rgba(…)` and `color(srgb …)`. */
  const parts = text => {
    const [r, g, b, a = 1] = text.match(/[\d.]+(?:e-\d+)?/g).map(Number), scale = text.startsWith('color(') ? 1 : 255;
    return [r / scale, g / scale, b / scale, a];
  };
  const light = colour => colour.slice(0, 3).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = n => { for (let a = n; a; a = a.parentElement) { const c = parts(getComputedStyle(a).backgroundColor); if (c[3] > 0.99) return c; } return [1, 1, 1, 1]; };
  /** The fill of the last rectangle of a picture that is drawn below a text, or what is behind the picture. */
  const below = n => {
    const {left, right, top, bottom} = n.getBoundingClientRect(), [x, y] = [(left + right) / 2, (top + bottom) / 2];
    const under = [...n.ownerSVGElement.querySelectorAll('rect')].filter(r => {
      const box = r.getBoundingClientRect(), first = r.compareDocumentPosition(n) & Node.DOCUMENT_POSITION_FOLLOWING;
      return first && box.left <= x && x <= box.right && box.top <= y && y <= box.bottom && getComputedStyle(r).fill.startsWith('rgb');
    });
    return under.length ? parts(getComputedStyle(under.at(-1)).fill) : behind(n.ownerSVGElement);
  };
  for (const n of all.filter(n => (n instanceof HTMLElement || n.tagName === 'text') && hasText(n) && !n.closest(':disabled'))) {
    const drawn = n.tagName === 'text', style = getComputedStyle(n);
    const [a, b] = [light(parts(drawn ? style.fill : style.color)), light(drawn ? below(n) : behind(n))], ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faults.add(`contrast ${ratio.toFixed(1)}: ${named(n)}`);
  }
  return [...faults];
})()
