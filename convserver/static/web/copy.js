// What can be copied: a message, a block of code, the address of an event.

import { copy, copyWhenThere } from "./clipboard.js";

const COPIED_MS = 2_000;
const ANSWER_MS = 15_000; // a request may be dead without a word

const status = document.createElement("p");
status.className = "sr-only";
status.setAttribute("role", "status");
document.body.append(status);

/** Copy what a control stands for, and say so. */
export async function copyBy(control) {
  if (await copied(control)) tell(control);
}

/** Copy what a control stands for; say whether it is in the clipboard. */
function copied(control) {
  if (control.matches("a")) return copy(new URL(location.pathname + control.getAttribute("href"), location.href).href);
  const code = control.closest(".code")?.querySelector("pre");
  const message = control.closest(".event.message");
  if (message && !code) return copyWhenThere(source(message));
  return copy((code ?? control.parentElement.querySelector("pre")).textContent);
}

/** Return a message as it was written, not as it is shown. */
async function source({ dataset: { seq } }) {
  const { events } = document.getElementById("conversation").dataset;
  const answer = await fetch(`${events}/${seq}/output`, { signal: AbortSignal.timeout(ANSWER_MS) });
  if (!answer.ok || answer.redirected) throw new Error(`The server answered ${answer.status}.`);
  return answer.text();
}

function tell(control) {
  status.textContent = "Copied";
  const words = control.textContent;
  if (words) control.textContent = "Copied";
  control.classList.add("done");
  setTimeout(() => {
    status.textContent = "";
    if (words) control.textContent = words;
    control.classList.remove("done");
    const menu = control.closest(".tools .event-menu");
    if (menu) menu.open = false;
  }, COPIED_MS);
}
