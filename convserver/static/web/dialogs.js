// The command palette and the help: what opens and closes them.

const isApple = /Mac|iPhone|iPad/.test(navigator.platform);
const palette = document.getElementById("palette");
const help = document.getElementById("help");
const openers = { palette: openPalette, help: openHelp };

/** Show every key, as this machine writes it. */
function openHelp() {
  if (isApple) for (const key of help.querySelectorAll("[data-mod]")) key.textContent = `⌘ ${key.dataset.mod}`;
  help.showModal();
}

/** A first page goes without the palette's scripts: what is typed before they are here counts all the same. */
async function openPalette() {
  const field = palette.querySelector("input");
  let isEntered = false;
  const heard = ({ key }) => (isEntered ||= key === "Enter");
  field.addEventListener("keydown", heard);
  palette.addEventListener("close", () => (isEntered = false), { once: true }); // it may be opened again by then
  field.value = "";
  palette.showModal();
  field.focus();
  try {
    const { opened } = await import("./palette.js");
    if (palette.open) opened(palette, isEntered);
  } catch {
    palette.querySelector(".note").textContent = "Can't reach the server.";
  }
  field.removeEventListener("keydown", heard);
}

function fetchParts() {
  import("./palette.js").catch(() => {});
  if (palette.dataset.style) document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: palette.dataset.style }));
  delete palette.dataset.style;
}

function open(name) {
  fetchParts();
  if (!document.querySelector("dialog:modal")) openers[name]();
}

document.addEventListener("keydown", (event) => {
  const isAsked = (isApple ? event.metaKey : event.ctrlKey) || (event.metaKey && !event.ctrlKey);
  if (event.key.toLowerCase() !== "k" || !isAsked || event.shiftKey || event.altKey) return;
  event.preventDefault();
  if (palette.open) palette.close();
  else open("palette");
});
document.addEventListener("key", ({ detail: key }) => key === "?" && open("help"));
document.addEventListener("open-dialog", ({ detail: name }) => open(name));
document.addEventListener("click", ({ target }) => {
  const opener = target.closest?.("[data-opens]");
  if (opener) open(opener.dataset.opens);
  if (target.matches?.("dialog[open]")) target.close(); // beside its content: on what lies behind it
});
// Once somebody is at the page the palette is fetched, and there when the server is not.
for (const sign of ["keydown", "pointerdown"]) document.addEventListener(sign, fetchParts, { once: true });
for (const opener of document.querySelectorAll("[data-opens]")) opener.hidden = false;
