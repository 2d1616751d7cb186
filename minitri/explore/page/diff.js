// ---- diff.js: what a pass changed; two programs at one stage -------------------------------------

/** Lines of a text after a patch: [[start, end, new lines], …]. */
function patched(lines, patch) {
  const result = [];
  let at = 0;
  for (const [start, end, added] of patch) {
    result.push(...lines.slice(at, start), ...added);
    at = end;
  }
  return [...result, ...lines.slice(at)];
}

/** A patch as lines to show: what stays near a change, what goes, what comes. */
function difference(lines, patch, context = 4) {
  const rows = [];
  let at = 0, after = 0;
  let kept = []; // lines that stay, until the next change
  const fold = (first, last) => {
    const head = first ? 0 : context, tail = last ? 0 : context, hidden = kept.length - head - tail;
    if (hidden > 1) kept.splice(head, hidden, {text: `… ${hidden} lines the same`, kind: 'folded'});
    rows.push(...kept);
    kept = [];
  };
  const same = texts => texts.forEach(text => kept.push({text: `  ${text}`, number: ++after}));
  for (const [start, end, added, renumbered] of patch) {
    same(lines.slice(at, start));
    at = end;
    if (renumbered) { same(added); continue; }
    fold(!rows.length, false);
    for (let k = start; k < end; k++) rows.push(changed(`- ${lines[k]}`, 'gone', `- ${added[k - start] ?? ''}`));
    added.forEach((text, k) => rows.push({...changed(`+ ${text}`, 'new', `+ ${lines.slice(start, end)[k] ?? ''}`), number: after + k + 1}));
    after += added.length;
  }
  same(lines.slice(at));
  fold(!rows.length, true);
  return rows;
}

/** A line of a difference; where its counterpart has the same beginning and end, the middle is marked. */
function changed(text, kind, other) {
  let first = 2, last = 0;
  const most = Math.min(text.length, other.length);
  while (first < most && text[first] === other[first]) first++;
  while (last < most - first && text.at(-1 - last) === other.at(-1 - last)) last++;
  if (first + last < (text.length - 2) * 0.3) return {text, kind};
  const parts = [[text.slice(0, first), ''], [text.slice(first, text.length - last), 'word-changed'], [text.slice(text.length - last), '']];
  return {text, kind, pieces: parts.filter(([part]) => part).map(([part, mark]) => ({text: part, kind: mark, covers: []}))};
}

EXTRA.push((program, at, links) => !program.passes?.length ? [] : [{id: 'passes', apart: true,
  make: () => new Passes(program, at, links)}]);

class Passes {
  constructor(program, at, links) {
    Object.assign(this, {at, links, all: program.passes, before: []});
    let lines = [];
    for (const p of this.all) {
      if (p.fresh) lines = [];
      this.before.push(lines);
      lines = patched(lines, p.patch);
    }
    this.list = el('div', {class: 'passlist', role: 'listbox', 'aria-label': 'passes'});
    this.head = el('div', {class: 'passhead'});
    this.body = el('div', {class: 'passbody'});
    this.hidden = true;
    this.node = el('div', {class: 'passes'}, this.list, el('div', {class: 'column'}, this.head, this.body));
    this.show(Math.max(0, this.all.findIndex(p => p.name === 'simplify' && p.patch.length)));
  }

  get visible() { return this.all.map((_, k) => k).filter(k => !this.hidden || this.all[k].patch.length); }

  drawList() {
    const rows = [];
    let group = '';
    for (const k of this.visible) {
      const p = this.all[k];
      if (p.group !== group) rows.push(el('h3', {}, group = p.group));
      const [gone, come] = size(p.patch);
      rows.push(el('button', {role: 'option', 'aria-selected': k === this.number, class: p.patch.length ? '' : 'idle', 'data-tip': p.name, onclick: () => this.show(k)},
        el('span', {}, p.name), el('i', {}, p.patch.length ? `−${gone} +${come}` : 'nothing')));
    }
    const idle = this.all.filter(p => !p.patch.length).length;
    if (idle) rows.push(el('button', {class: 'quiet', onclick: () => { this.hidden = !this.hidden; this.drawList(); }},
      this.hidden ? `${plural(idle, 'pass').replace(/passs/, 'passes')} changed nothing: show` : 'hide what changed nothing'));
    renew(this.list, ...rows);
  }

  show(number) {
    this.number = number;
    const p = this.all[number];
    this.drawList();
    this.head.replaceChildren(el('b', {}, p.name), ` → ${p.stage}`, p.where ? el('code', {}, p.where) : '', el('p', {}, ...withCode(p.about)),
      ...p.rules.map(fired));
    this.view?.close();
    const before = this.before[number], other = before.length > 0 && !shares(before, p.patch);
    const rows = !before.length || other ? patched(before, p.patch).map((text, k) => ({text, number: k + 1})) : difference(before, p.patch);
    this.view = new TextView(this.at, rows, this.links, {label: `after ${p.name}`, wrapped: true});
    if (other) this.head.append(el('p', {class: 'hint'}, 'Another language: the whole text after the pass.'));
    this.body.replaceChildren(this.view.node);
  }

  step(by) {
    const {visible} = this, k = visible.indexOf(this.number);
    this.show(visible[(k + by + visible.length) % visible.length]);
  }

  light() {}
  hold() {}
  following(by) { this.view.following(by); }
  wrap() { this.view.wrap(); }
  search(text) { return this.view.search(text); }
  get whole() { return this.view.whole; }
  close() { this.view.close(); }
}

/** A rule that fired: how often, what it does, where it is defined; unfolded, what it made of what. */
function fired({name, count, about, where, cases}) {
  return el('details', {class: 'rule'}, el('summary', {}, el('b', {}, name), ` × ${count} `, el('span', {}, ...withCode(about)), el('code', {}, where)),
    ...cases.map(([before, after]) => el('div', {class: 'case'}, el('code', {}, before), ' → ', el('code', {}, after))));
}

/** [lines that go, lines that come]. */
function size(patch) {
  return patch.reduce(([gone, come], [start, end, added, renumbered]) => renumbered ? [gone, come] : [gone + end - start, come + added.length], [0, 0]);
}

/** Whether a fifth of the lines stay: else it is another language. */
function shares(before, patch) {
  return before.length - size(patch)[0] > Math.max(1, before.length / 5);
}

/** A stage of one program against the same stage of another. */
EXTRA.push((program, at, links, page) => page.document.diffs && at > 0 ? [{id: 'diff', apart: true,
  make: () => new Compared(page, at, links)}] : []);

class Compared {
  constructor(page, at, links) {
    const diffs = page.document.diffs[at - 1], stages = Object.keys(diffs), differ = stages.filter(s => diffs[s].length);
    Object.assign(this, {page, at, links});
    this.choice = el('select', {'aria-label': 'stage', onchange: e => this.show(e.target.value)}, ...stages.map(s => el('option', {value: s}, diffs[s].length ? s : `${s}: the same`)));
    this.said = el('span', {class: 'hint'});
    this.body = el('div', {class: 'passbody'});
    this.node = el('div', {class: 'column'}, el('div', {class: 'choice'}, this.choice, this.said), this.body);
    this.show(differ.find(s => stages.indexOf(s) >= stages.indexOf('triton')) ?? differ[0] ?? stages[0]);
  }

  show(stage) {
    this.choice.value = stage;
    const {page, at} = this, patch = page.document.diffs[at - 1][stage], [gone, come] = size(patch);
    const first = page.programs[0].stages.find(s => s.name === stage).text.replace(/\n+$/, '').split('\n');
    this.said.textContent = patch.length ? ` −${gone} +${come} against ${page.programs[0].label || facts(page.programs[0])}` : ' the same';
    this.view?.close();
    this.view = new TextView(at, difference(first, patch), this.links, {label: `difference at ${stage}`, wrapped: true});
    this.body.replaceChildren(this.view.node);
  }

  light() {}
  step(by) { this.view.step(by); }
  hold() {}
  following(by) { this.view.following(by); }
  wrap() { this.view.wrap(); }
  search(text) { return this.view.search(text); }
  get whole() { return this.view.whole; }
  close() { this.view.close(); }
}
