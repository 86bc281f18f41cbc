// Settings work without this: it applies a theme at once, and says that a question to a model is under way.

import { chooseTheme } from "./theme.js";

const look = document.querySelector("form[data-theme-form]");
look.querySelector(".buttons").hidden = true;
look.addEventListener("change", ({ target }) => chooseTheme(target.value, { address: look.action }));

const device = document.querySelector("[data-device]");
if (navigator.serviceWorker && globalThis.Notification) import("./notifications.js").then((it) => it.offer(device), console.warn);

document.addEventListener("submit", ({ submitter }) => {
  if (!submitter?.dataset.busy) return;
  submitter.textContent = submitter.dataset.busy;
  submitter.setAttribute("aria-disabled", "true"); // a disabled one would not be part of the form
});
addEventListener("pageshow", ({ persisted }) => persisted && location.reload());

// What was said on the way here is read at the top of its section.
document.querySelector(".said, .new-token, .field .error")?.scrollIntoView({ block: "center" });
document.querySelector("[aria-invalid]")?.focus({ preventScroll: true });
