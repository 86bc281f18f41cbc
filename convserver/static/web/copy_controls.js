// Buttons and links that copy, and thumbs: what they do is fetched once somebody is at the page, and there when the server is not.

let copying; // its module, once it is here

const fetched = async () => (copying ??= await import("./copy.js"));

document.addEventListener("click", (click) => {
  const thumb = click.target.closest?.("a.thumb");
  if (!thumb || click.ctrlKey || click.metaKey || click.shiftKey) return;
  click.preventDefault();
  import("./thumbs.js").then(({ rate }) => rate(thumb), () => location.assign(thumb.href));
});
document.addEventListener("click", async (click) => {
  const control = click.target.closest?.("button.copy, a.copy-link");
  if (!control) return;
  click.preventDefault();
  // Some browsers allow a copy only in the click itself.
  if (copying) return copying.copyBy(control);
  try {
    (await fetched()).copyBy(control);
  } catch {
    document.dispatchEvent(new CustomEvent("toast", { detail: "Nothing was copied: the server can't be reached." }));
  }
});
for (const sign of ["keydown", "pointermove", "pointerdown"]) document.addEventListener(sign, () => fetched().catch(() => {}), { once: true });
