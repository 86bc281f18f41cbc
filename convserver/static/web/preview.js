// Code of an event that runs below itself, in a frame of its own.

/** Run the code of a link, or take its frame away again. */
export function follow(link) {
  const figure = link.closest("figure");
  const shown = figure.querySelector(".preview");
  link.setAttribute("aria-expanded", String(!shown));
  link.textContent = shown ? "Run" : "Close";
  if (shown) return shown.remove();
  const frame = document.createElement("iframe");
  frame.className = "preview";
  frame.title = "Preview";
  frame.sandbox = "allow-scripts";
  frame.referrerPolicy = "no-referrer";
  frame.src = `${link.href}?frame`;
  figure.append(frame);
}
