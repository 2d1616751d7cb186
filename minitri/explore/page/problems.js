// ---- problems.js: the errors and notes of a program, as a list below the editor --------------------

class Problems {
  constructor(code) {
    this.code = code;
    this.node = el('ul', {class: 'problems', 'aria-label': 'problems', 'aria-live': 'polite', hidden: true});
  }

  /** The errors of an answer, and its notes. `text`: what was sent. */
  show({error, notes = []}, text) {
    const errors = error ? [error, ...(error.others ?? [])].map(e => this.problem(e, text)) : [];
    const all = [...errors, ...notes.map(note => ({...note, severity: 'warning'}))];
    this.code.underline(text === this.code.text ? all : []);
    this.node.hidden = !all.length;
    this.node.replaceChildren(...all.map(p => this.row(p, text)));
  }

  problem({code, message, label, help, start = null, end = null, edits = []}, text) {
    const fix = edits.length ? () => this.code.fix(edits, text) : null;
    return {code, start, end, fix, severity: 'error', message: label ? `${message}: ${label}` : message, help};
  }

  row(problem, text) {
    const {start, message, help, fix, code, severity} = problem, before = text.slice(0, start ?? 0).split('\n');
    const place = start === null || start === undefined ? '' : `${before.length}:${before.at(-1).length + 1}`;
    const said = [el('span', {class: 'place'}, place), el('span', {}, ...explained(message, {}))];
    return el('li', {class: severity},
      place ? el('button', {class: 'quiet', 'aria-label': `${place} ${message}`, onclick: () => this.code.go(problem)}, ...said) : el('p', {}, ...said),
      (help || fix) && el('p', {class: 'help'}, ...explained(help ?? '', {}), fix && el('button', {onclick: fix, 'aria-label': `fix: ${help}`}, 'fix')),
      code && el('span', {class: 'code', 'data-tip': `minitri explain ${code}`}, code));
  }
}
