// The help: every key, as this machine writes them.

export class Help {
  constructor(dialog, { isApple }) {
    this.dialog = dialog;
    if (!isApple) return;
    for (const key of dialog.querySelectorAll("[data-mod]")) key.textContent = `⌘ ${key.dataset.mod}`;
  }

  open() {
    this.dialog.showModal();
  }
}
