// The files of a conversation beside it, or over it where there is no room: the same pages as without scripts.

const panel = document.getElementById("beside");
const opener = document.getElementById("files");
let address = opener.href; // of the page that it shows
let asked; // the newest request

/** Show the files in the panel, or close the panel if it is open. */
function toggle() {
  if (!panel.hidden) return close();
  for (const sheet of document.querySelectorAll("link[data-files], link[data-calls]")) sheet.disabled = false;
  panel.hidden = false;
  opener.setAttribute("aria-expanded", "true");
  return show(address);
}

/** Show the page of a link in the panel, and open it if it is closed; the link to the files also closes it. */
export function follow(link) {
  if (link === opener) return toggle();
  address = link.href;
  return panel.hidden ? toggle() : show(address);
}

// Whatever the agent does, it may have changed files.
new MutationObserver(() => {
  const isWorking = document.querySelector("#agent-state .dot.running");
  if (!panel.hidden && !isWorking && !panel.contains(document.activeElement)) show(address);
}).observe(document.getElementById("agent-state"), { attributes: true, subtree: true, attributeFilter: ["class"] });

function show(page) {
  return htmx.ajax("GET", page, { source: panel, target: panel, swap: "innerHTML" });
}

function close() {
  panel.hidden = true;
  opener.setAttribute("aria-expanded", "false");
  opener.focus();
}

panel.addEventListener("htmx:configRequest", ({ detail }) => (asked = detail));
panel.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.requestConfig !== asked) return (detail.shouldSwap = false);
  detail.shouldSwap = true; // a refusal is a page as well, with its sentence
  detail.isError = false;
  detail.selectOverride = ".files"; // also where the link that was clicked is not in the page any more
  if (detail.requestConfig.verb === "get") address = detail.pathInfo.finalRequestPath;
});
panel.addEventListener("htmx:afterSettle", () => {
  const heading = panel.querySelector("h1");
  heading?.setAttribute("tabindex", "-1");
  if (document.activeElement === document.body || panel.contains(document.activeElement)) heading?.focus();
});
panel.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented) return;
  event.preventDefault();
  close();
});
panel.addEventListener("click", ({ target }) => target.closest("[data-close]") && close());
panel.addEventListener("dragover", (event) => event.dataTransfer.types.includes("Files") && event.preventDefault());
panel.addEventListener("drop", (event) => {
  const field = panel.querySelector('input[type="file"]');
  if (!field || !event.dataTransfer.files.length) return;
  event.preventDefault();
  field.files = event.dataTransfer.files;
  field.form.requestSubmit();
});
