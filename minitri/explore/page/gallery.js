// ---- gallery.js: the examples, to choose from ------------------------------------------------------
// live.examples = [{name, text, sizes}]: the first lines of a text say in a comment what it shows.

class Gallery {
  constructor(examples, choose) {
    const cards = examples.map(example => this.card(example, () => { this.node.close(); choose(example); }));
    this.node = el('dialog', {class: 'gallery', 'aria-label': 'examples'}, el('h2', {}, 'Examples'), el('div', {class: 'cards'}, ...cards),
      el('form', {method: 'dialog'}, el('button', {}, 'close')));
    this.node.addEventListener('click', e => e.target === this.node && this.node.close());
  }

  card({name, text, sizes}, open) {
    const lines = text.trim().split('\n'), comments = lines.filter(line => line.startsWith('#')).map(line => line.slice(1).trim());
    const code = lines.filter(line => !line.startsWith('#')).map(line => el('div', {}, ...tokens(line, 'python').map(([part, kind]) => kind ? el('span', {class: kind}, part) : shown(part))));
    const known = Object.entries(sizes).map(([n, v]) => `${n}=${v}`).join(' ');
    return el('article', {class: 'card'}, el('h3', {}, el('button', {onclick: open}, name)), el('p', {}, ...explained(comments.join(' '), {})), el('pre', {}, ...code),
      el('p', {class: 'hint'}, known ? `with ${known}` : 'for any sizes'));
  }

  open() { this.node.showModal(); }
}
