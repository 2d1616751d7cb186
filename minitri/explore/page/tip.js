// ---- tip.js: a line of explanation beside what the pointer or the keyboard is on -----------------
// Whatever has `data-tip` has one: a stage in the rail, an instruction, a button.

class Tip {
  constructor(app) {
    this.node = el('div', {class: 'tip', role: 'tooltip', id: 'tip', hidden: true});
    app.append(this.node);
    const on = (name, act) => app.addEventListener(name, act);
    on('pointerover', e => e.pointerType === 'mouse' && this.soon(e.target));
    on('focusin', e => e.target.matches(':focus-visible') && this.soon(e.target));
    for (const name of ['pointerdown', 'keydown', 'wheel', 'focusout']) app.addEventListener(name, () => this.hide(), {passive: true});
    app.addEventListener('pointerleave', () => this.hide());
  }

  soon(target) {
    const about = target.closest?.('[data-tip]');
    if (about === this.about) return;
    this.hide();
    this.about = about;
    if (about) this.timer = setTimeout(() => this.show(about), 250);
  }

  hide() {
    clearTimeout(this.timer);
    this.about?.removeAttribute('aria-describedby');
    this.about = null;
    this.node.hidden = true;
  }

  /** Below what it explains, or above it where there is no room. */
  show(about) {
    if (!about.isConnected) return;
    const {left, top, bottom} = about.getBoundingClientRect();
    this.node.textContent = about.dataset.tip;
    this.node.hidden = false;
    about.setAttribute('aria-describedby', 'tip');
    const {offsetWidth: width, offsetHeight: height} = this.node;
    this.node.style.left = `${Math.max(6, Math.min(left, innerWidth - width - 6))}px`;
    this.node.style.top = `${bottom + height + 8 < innerHeight ? bottom + 5 : Math.max(4, top - height - 5)}px`;
  }
}
