// The copy button of a block of code.

document.addEventListener("click", async ({ target }) => {
  const button = target.closest?.("button.copy");
  if (!button) return;
  const code = button.closest(".code")?.querySelector("pre") ?? button.parentElement.querySelector("pre");
  const { copy } = await import("./clipboard.js");
  if (!(await copy(code.textContent))) return;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 2000);
});
