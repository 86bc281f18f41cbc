// A temporary conversation: the server hears when its page is left, and when it is open again.

import { csrf } from "./csrf.js";

const { action } = document.getElementById("temporary");
const tell = (act) => navigator.sendBeacon(action, new URLSearchParams({ act, csrfmiddlewaretoken: csrf() }));

// Its own pages, such as that of its limits, do not leave it.
let isStaying = false;
const isOwn = (address) => new URL(address, location.href).pathname.startsWith(`${location.pathname}/`);
document.addEventListener("click", ({ target }) => (isStaying = isOwn(target.closest?.("a[href]")?.href ?? "")));
document.addEventListener("submit", ({ target }) => (isStaying = isOwn(target.action)));

// Loading the page again leaves it, too: `opened` then takes that back.
addEventListener("pagehide", () => isStaying || tell("left"));
addEventListener("pageshow", () => {
  isStaying = false;
  tell("opened");
});
