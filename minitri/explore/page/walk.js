// ---- walk.js: the guided walk: one span of the program through all stages -------------------------
// programs[0].walk = [{title, text, panes, marks, rows, sketch}]: two panes, what is lit in them, the lines that the text
// names, a drawing.

class Walk {
  constructor(page) {
    Object.assign(this, {page, number: 0});
    const button = (text, act) => el('button', {onclick: act}, text);
    this.back = button('back', () => this.show(this.number - 1));
    this.next = button('next', () => this.number < this.steps.length ? this.show(this.number + 1) : this.leave());
    this.next.className = 'next';
    this.heading = el('h2');
    this.text = el('p', {class: 'now'});
    this.others = el('div', {class: 'others', 'aria-hidden': true}); // the other texts: the highest keeps the height of all steps
    this.picture = el('div', {class: 'sketch'});
    const turn = el('div', {class: 'turn'}, this.back, this.next, button('free view', () => this.leave()), this.heading);
    const told = el('div', {class: 'told', 'aria-live': 'polite'}, turn, el('div', {class: 'texts'}, this.text, this.others)); // the buttons stay in their place
    this.node = el('aside', {class: 'walk', 'aria-label': 'guided walk', hidden: true}, told, this.picture);
    this.node.addEventListener('keydown', e => this.key(e));
    this.opener = el('button', {'data-tip': 'follow one span of this program through all stages', onclick: () => this.show(this.number || 1)}, 'walk');
    this.replaced();
  }

  /** The steps of the program that is shown. A comparison has none. */
  get steps() { return this.page.programs.length > 1 ? [] : this.page.programs[0].walk; }

  /** The page has another program. Its steps come with its machine code: until then the step before stays. */
  replaced(focus = false) {
    const {length} = this.steps, [{quick}] = this.page.programs;
    this.opener.hidden = !length && !quick;
    this.opener.disabled = this.back.disabled = this.next.disabled = !length;
    if (!this.number || quick) return;
    if (length) this.show(Math.min(this.number, length), focus);
    else this.leave();
  }

  /** Begins at a step, as soon as there are steps. */
  begin(number) {
    if (this.opener.hidden) return;
    this.number = number;
    this.replaced(true);
  }

  show(number, focus = true) {
    const {page, steps} = this, step = steps[number - 1];
    if (!step) return;
    this.number = number;
    this.node.hidden = false;
    page.app.classList.add('walking');
    this.heading.textContent = `${number} of ${steps.length}: ${step.title}`;
    this.text.replaceChildren(...explained(step.text, page.document.words.terms));
    this.others.replaceChildren(...steps.map(s => el('p', {}, ...withCode(s.text))));
    this.picture.replaceChildren(step.sketch ? sketch(step.sketch) : '');
    this.back.disabled = number === 1;
    this.next.disabled = false;
    this.next.textContent = number < steps.length ? 'next' : 'finish';
    page.links.pin = {program: 0, marks: new Set(step.marks)};
    page.arrange(page.editor ? step.panes.filter(id => id !== 'source') : step.panes); // the editor is the source
    page.links.tell(true);
    page.panes.forEach(pane => pane.view.names?.(step.rows[step.panes.indexOf(pane.id)] ?? []));
    if (focus) this.next.focus({focusVisible: false});
  }

  /** The free view: the usual panes, with what was lit still lit. */
  leave() {
    const {page} = this;
    this.number = 0;
    this.node.hidden = true;
    page.app.classList.remove('walking');
    page.arrange(page.ordinary().map(([id]) => id));
    page.panes.forEach(pane => pane.view.names?.([]));
    page.links.tell(true);
  }

  key(e) {
    const keys = {ArrowRight: () => this.next.click(), ArrowLeft: () => this.back.click(), Escape: () => this.leave()};
    if (!keys[e.key]) return;
    keys[e.key]();
    e.preventDefault();
    e.stopPropagation();
  }
}

/** Text in which words between backquotes are code. */
const withCode = text => text.split('`').map((part, k) => k % 2 ? el('code', {}, part) : part);

/** Text in which words between backquotes are code, and the terms of the glossary say what they mean. */
function explained(text, terms) {
  const said = new Set(); // each term once
  const names = new RegExp(`((?:${Object.keys(terms).sort((a, b) => b.length - a.length).join('|')})s?\\b|\\w+)`);
  const term = word => {
    const line = terms[word] ?? terms[word.replace(/s$/, '')];
    return line && !said.has(line) && said.add(line) ? el('dfn', {tabindex: 0, 'data-tip': line}, word) : word;
  };
  return text.split('`').flatMap((part, k) => k % 2 ? [el('code', {}, part)] : part.split(names).map(term));
}
