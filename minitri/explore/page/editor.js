// ---- editor.js: the program as text that can be changed, linked to the stages like the source pane --
// CodeMirror edits. Its colours are those of text.js, its links those of links.js.

const {Decoration, EditorView, StateEffect, StateField} = codemirror;

/** Colours: the tokens of text.js, for the lines in sight. */
const KINDS = Object.fromEntries(['comment', 'string', 'name', 'number', 'word', 'op', 'type'].map(kind => [kind, Decoration.mark({class: kind})]));
const COLOURS = codemirror.ViewPlugin.fromClass(class {
  constructor(view) { this.decorations = coloured(view); }
  update(update) { if (update.docChanged || update.viewportChanged) this.decorations = coloured(update.view); }
}, {decorations: plugin => plugin.decorations});

function coloured({state: {doc}, visibleRanges}) {
  const found = [];
  for (const {from, to} of visibleRanges) {
    for (let line = doc.lineAt(from); ; line = doc.line(line.number + 1)) {
      let start = line.from;
      for (const [text, kind] of tokens(line.text, 'python')) {
        if (kind) found.push(KINDS[kind].range(start, start + text.length));
        start += text.length;
      }
      if (line.to >= to) break;
    }
  }
  return Decoration.set(found);
}

/** What is lit: [[from, to, class], …], until the text changes. */
const LIT = StateEffect.define();
const LIGHTS = StateField.define({
  create: () => Decoration.none,
  update(lit, transaction) {
    const ranges = transaction.effects.findLast(effect => effect.is(LIT))?.value;
    if (ranges) return Decoration.set(ranges.map(([from, to, kind]) => Decoration.mark({class: `piece ${kind}`}).range(from, to)), true);
    return transaction.docChanged ? Decoration.none : lit;
  },
  provide: field => EditorView.decorations.from(field),
});

/** A line is indented like the one before it, and by four more after a colon. */
const INDENT = codemirror.indentService.of((context, at) => {
  const before = context.lineAt(at, -1).text, above = context.state.doc.lineAt(Math.max(0, at - 1)).text;
  const line = before.trim() ? before : above;
  return line.match(/^ */)[0].length + (/:\s*(#.*)?$/.test(line) ? 4 : 0);
});

/** Chromium would give lines that it joins a style of their own, which the content policy forbids. */
const TYPED = EditorView.domEventHandlers({
  beforeinput(e, view) {
    if (e.inputType !== 'insertText' || e.data === null || view.composing || view.state.selection.main.empty) return false;
    view.dispatch(view.state.replaceSelection(e.data), {userEvent: 'input.type', scrollIntoView: true});
    return true;
  },
});

class CodeView {
  /** `changed`: called after each change of the text. */
  constructor(page, {completions, nonce}, changed) {
    Object.assign(this, {page, changed, names: new Names(completions), spans: []});
    this.view = new EditorView({extensions: this.extensions(nonce)});
    this.node = this.view.dom;
    const on = (name, act) => this.view.contentDOM.addEventListener(name, act);
    on('pointermove', e => e.pointerType === 'mouse' && this.point(this.marksUnder(e)));
    on('pointerleave', () => this.point([]));
    on('click', e => this.view.state.selection.main.empty && page.links.pinned(0, this.marksUnder(e)));
  }

  extensions(nonce) {
    const {autocompletion, bracketMatching, completionKeymap, defaultKeymap, highlightSpecialChars, history, historyKeymap, hoverTooltip, indentUnit,
      keymap, lineNumbers} = codemirror;
    const keys = [
      {key: 'Tab', run: codemirror.acceptCompletion}, {key: 'Tab', run: codemirror.indentMore, shift: codemirror.indentLess},
      {key: 'Mod-Enter', run: () => this.hold()}, {key: 'Escape', run: () => this.release()},
      {key: 'F8', run: codemirror.nextDiagnostic, shift: codemirror.previousDiagnostic},
    ];
    return [
      EditorView.cspNonce.of(nonce), lineNumbers(), history(), bracketMatching(), EditorView.lineWrapping, indentUnit.of('    '), INDENT, COLOURS, LIGHTS, TYPED,
      highlightSpecialChars({addSpecialChars: /[\u200c\u200d\u202a-\u202c\u2060-\u2065\u2068]/g}),
      codemirror.EditorState.languageData.of(() => [{commentTokens: {line: '#'}}]),
      autocompletion({override: [context => this.names.complete(context)], icons: false}), hoverTooltip((view, pos) => this.wrong(pos) ? null : this.names.hover(view, pos)),
      keymap.of([...completionKeymap, ...keys, ...defaultKeymap, ...historyKeymap]),
      EditorView.contentAttributes.of({'aria-label': 'program', 'aria-description': 'Tab indents. Escape and then Tab leaves the editor.'}),
      EditorView.updateListener.of(update => this.updated(update)),
    ];
  }

  updated(update) {
    if (update.docChanged) this.changed();
    const moved = update.transactions.some(t => t.isUserEvent('select') && !t.isUserEvent('select.pointer'));
    if (moved && !update.docChanged) this.point(this.marksAt(update.state.selection.main.head));
  }

  get text() { return this.view.state.doc.toString(); }

  /** Another program. Undo brings back the one before, unless this is the `first`. */
  replace(text, first = false) {
    const annotations = first ? [codemirror.Transaction.addToHistory.of(false)] : [];
    this.view.dispatch({changes: {from: 0, to: this.view.state.doc.length, insert: text}, selection: {anchor: 0}, annotations});
  }

  focus() { this.view.focus(); }

  /** Puts the cursor on a problem. */
  go({start, end}) {
    const [anchor, head] = [start, end].map(at => Math.min(at, this.view.state.doc.length));
    this.view.dispatch({selection: {anchor, head}, scrollIntoView: true});
    this.view.focus();
  }

  // -- links to the stages --

  /** The stages are those of this text now. */
  linked() {
    const {sources: [source], marks} = this.page.programs[0];
    this.spans = source.text === this.text ? spansOf(marks, 0) : [];
    this.pointed = undefined;
    this.page.links.views.add(this);
    this.light(false);
  }

  /** The marks of the piece under the pointer; beside the end of a line those of the whole line. */
  marksUnder({clientX: x, clientY: y}) {
    const found = this.view.posAndSideAtCoords({x, y});
    if (!found) return [];
    const line = this.view.state.doc.lineAt(found.pos);
    if (found.pos === line.to && x > this.view.coordsAtPos(line.to, -1)?.right) {
      return this.stale ? [] : [...new Set(this.spans.filter(([start, end]) => start < line.to && end > line.from).flatMap(span => span[2]))];
    }
    return this.marksAt(found.assoc < 0 && found.pos > line.from ? found.pos - 1 : found.pos);
  }

  /** The marks of the shortest span around a place. */
  marksAt(at) { return this.stale ? [] : this.spans.find(([start, end]) => start <= at && at < end)?.[2] ?? []; }

  /** The text is another one than that of the stages. */
  get stale() { return this.text !== this.page.programs[0].sources[0].text; }

  point(marks) {
    const key = marks.join();
    if (key !== this.pointed) this.page.links.point(0, marks);
    this.pointed = key;
  }

  hold() {
    this.page.links.pinned(0, this.marksAt(this.view.state.selection.main.head));
    return true;
  }

  release() {
    this.page.links.pinned(0, []);
    this.point([]);
    return false; // others have a use for this key
  }

  light(reveal) {
    const [hover, pin] = this.stale ? [new Set(), new Set()] : this.page.links.lit(0);
    const of = (marks, kind) => this.spans.filter(span => span[1] > span[0] && span[2].some(m => marks.has(m))).map(([start, end]) => [start, end, kind]);
    const held = of(pin, 'held'), ranges = [...of(hover, 'on'), ...held];
    if (!ranges.length && !this.shines) return;
    this.shines = ranges.length > 0;
    const scroll = reveal && held.length && !this.view.hasFocus ? [EditorView.scrollIntoView(Math.min(...held.map(([start]) => start)))] : [];
    this.view.dispatch({effects: [LIT.of(ranges), ...scroll]});
  }

  // -- problems --

  /** Underlines problems: [{start, end, message, help, severity, fix}]. */
  underline(problems) {
    const {length} = this.view.state.doc, placed = problems.filter(p => p.start !== null && p.start <= length);
    this.view.dispatch(codemirror.setDiagnostics(this.view.state, placed.map(p => ({
      from: Math.min(p.start, Math.max(0, length - 1)), to: Math.min(Math.max(p.end, p.start + 1), length), severity: p.severity, message: p.message,
      renderMessage: () => el('div', {}, el('strong', {}, ...explained(p.message, {})), ...(p.help ? [el('p', {}, ...explained(p.help, {}))] : [])),
      actions: p.fix ? [{name: 'fix', apply: p.fix}] : [],
    }))));
  }

  /** A problem is underlined here: its tooltip says enough. */
  wrong(pos) {
    let found = false;
    codemirror.forEachDiagnostic(this.view.state, (_, from, to) => { found ||= from <= pos && pos <= to; });
    return found;
  }

  /** Makes the edits of a correction, if the text is still the one that they are for. */
  fix(edits, text) {
    if (text !== this.text) return;
    this.view.dispatch({changes: edits.map(({start, end, text: insert}) => ({from: start, to: end, insert})), scrollIntoView: true, userEvent: 'input.fix'});
    this.view.focus();
  }
}
