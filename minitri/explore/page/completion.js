// ---- completion.js: names that the editor completes and explains -----------------------------------
// live.completions = [{name, kind, written, doc}]: functions, dtypes, constants, attributes, keywords. The names of
// the program itself come from its text.

class Names {
  constructor(rows) {
    this.rows = new Map(rows.map(row => [row.name, row]));
    this.options = rows.map(row => this.option(row));
  }

  option({name, kind, written, doc}) {
    const apply = (view, _, from, to) => {
      const open = kind === 'function' && view.state.sliceDoc(to, to + 1) !== '(' ? '(' : '';
      view.dispatch({changes: {from, to, insert: name + open}, selection: {anchor: from + name.length + open.length}, userEvent: 'input.complete'});
    };
    return {label: name, type: kind, apply, detail: kind === 'function' ? '' : kind, info: () => about(written || name, doc)};
  }

  /** What fits before the cursor: [] in a comment or a string. */
  complete(context) {
    const word = context.matchBefore(/\w+/), from = word?.from ?? context.pos;
    if (!word && !context.explicit && context.matchBefore(/\./) === null) return null;
    const line = context.state.doc.lineAt(context.pos), before = line.text.slice(0, from - line.from);
    const inside = tokens(`${before}¤`, 'python').at(-1);
    if (/^\d/.test(word?.text ?? '') || inside[1] === 'comment' || (before.match(/["']/g) ?? []).length % 2) return null;
    const after = kinds => this.options.filter(o => kinds.includes(o.type));
    if (/(?:[A-Za-z_]\w*|[)\]])\.$/.test(before)) return {from, options: after(['attribute', 'function']), validFor: /^\w*$/};
    if (before.endsWith('.')) return null;
    const wanted = /(:|->)\s*$/.test(before) ? 'type' : 'variable';
    const options = [...this.options.filter(o => o.type !== 'attribute'), ...this.own(context.state.doc.toString(), context.pos)];
    return {from, options: options.map(o => o.type === wanted ? {...o, boost: 5} : o), validFor: /^\w*$/};
  }

  /** The functions, parameters, dimensions and assigned names of a program, except the word at the cursor. */
  own(whole, at) {
    const text = whole.slice(0, 20_000), found = new Map(), add = (name, kind, written, doc) => this.rows.has(name) || found.set(name, this.option({name, kind, written, doc}));
    for (const {0: line, 1: name, 2: params} of text.matchAll(/^def\s+(\w+)\s*\(([^)]*)\)?[^\n]*/gm)) {
      add(name, 'function', line.replace(/:\s*$/, ''), 'a function of this program');
      for (const [written, parameter, type] of params.slice(0, 2000).matchAll(/\b(\w+)\s*:\s*(\w+\s*(?:\[[^\]]*\])?)/g)) {
        add(parameter, 'variable', written, 'a parameter');
        for (const [size] of type.matchAll(/(?<=\[.*)\b[A-Za-z_]\w*/g)) add(size, 'variable', size, 'a size');
      }
    }
    for (const [line, names] of text.matchAll(/^[ \t]+(\w+(?:[ \t]*,[ \t]*\w+)*)[ \t]*=(?!=).*/gm)) {
      names.split(/\s*,\s*/).forEach(name => /^\d/.test(name) || add(name, 'variable', line.trim(), ''));
    }
    const word = text.slice(0, at).match(/\w*$/)[0] + text.slice(at).match(/^\w*/)[0];
    if (word && text.split(new RegExp(`\\b${word}\\b`)).length < 3) found.delete(word); // it is only being typed
    return [...found.values()];
  }

  /** The line of explanation of the name at a place of the editor. */
  hover(view, pos) {
    const line = view.state.doc.lineAt(pos);
    for (const match of line.text.matchAll(/[A-Za-z_]\w*/g)) {
      const from = line.from + match.index, to = from + match[0].length;
      const row = this.rows.get(match[0]);
      if (from <= pos && pos < to && row && row.kind !== 'keyword') return {pos: from, end: to, create: () => ({dom: about(row.written || row.name, row.doc)})};
    }
    return null;
  }
}

/** A signature and a line of explanation. */
const about = (written, doc) => el('div', {class: 'about'}, el('code', {}, written), el('p', {}, ...explained(doc, {})));
