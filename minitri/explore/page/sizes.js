// ---- sizes.js: the sizes that a program is compiled for ------------------------------------------
// answer.named = {M: 'size', B: 'axes', k: 'int'}: what may have one. An empty field is any size.

const PLACEHOLDERS = {size: 'any', axes: 'any', int: 'number'};
const HINTS = {size: 'a size, as in 512', axes: 'sizes of all axes, as in 2,4', int: 'a number, as in 3'};

class Sizes {
  constructor(changed) {
    Object.assign(this, {changed, named: null, values: {}}); // null: not known yet
    this.fields = el('div', {class: 'fields'});
    this.said = el('span', {class: 'hint', role: 'status'});
    this.clear = el('button', {'data-tip': 'compile for any sizes', onclick: () => this.any()}, 'any sizes');
    this.node = el('section', {class: 'sizes', 'aria-label': 'sizes', hidden: true}, this.fields, this.clear, this.said);
  }

  any() {
    this.values = {};
    for (const input of this.fields.querySelectorAll('input')) input.value = '';
    this.tell();
    this.changed();
    this.fields.querySelector('input')?.focus();
  }

  /** The sizes of another program: {M: 512, B: [2, 4]}. */
  set(values) {
    this.named = null;
    this.values = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Array.isArray(value) ? value.join() : String(value)]));
  }

  /** A field for each name. */
  show(named) {
    if (JSON.stringify(named) !== JSON.stringify(this.named)) {
      this.named = named;
      renew(this.fields, ...Object.keys(named).map(name => el('label', {'data-tip': HINTS[named[name]]}, name, el('input', {name, value: this.values[name] ?? '',
        placeholder: PLACEHOLDERS[named[name]], inputmode: 'numeric', autocomplete: 'off', oninput: e => this.typed(e.target)}))));
    }
    this.tell();
  }

  typed({name, value}) {
    this.values[name] = value.trim();
    this.tell();
    this.changed();
  }

  /** The fields that are filled, with their values; undefined for what is no size. */
  get filled() {
    const given = Object.keys(this.values).filter(name => this.values[name] !== '' && (!this.named || name in this.named));
    return given.map(name => [name, parsedSize(this.values[name], this.named?.[name])]);
  }

  get request() { return Object.fromEntries(this.filled.filter(([, value]) => value !== undefined)); }

  /** Says what the program is compiled for. */
  tell() {
    const {filled} = this, wrong = filled.filter(([, value]) => value === undefined).map(([name]) => name);
    for (const input of this.fields.querySelectorAll('input')) input.setAttribute('aria-invalid', wrong.includes(input.name));
    this.clear.hidden = !filled.length;
    this.said.textContent = wrong.length ? `${wrong.join(', ')}: ${HINTS[this.named?.[wrong[0]] ?? 'size']}` : filled.length ? 'compiled for these sizes only' : 'compiled for any sizes';
    this.node.hidden = !Object.keys(this.named ?? {}).length;
  }
}

/** '512' → 512, '2,4' → [2, 4]; undefined for anything else. */
function parsedSize(text, kind) {
  if (!/^\d{1,15}(\s*,\s*\d{1,15})*\s*,?$/.test(text)) return undefined;
  const axes = text.split(',').filter(part => part.trim()).map(Number);
  return kind === 'axes' || text.includes(',') ? axes : axes[0];
}
