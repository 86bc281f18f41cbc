// A temporary conversation: the server hears when its page is left, and when it is open again.

import { csrf } from "./csrf.js";

const { action } = document.getElementById("temporary");
const tell = (act) => navigator.sendBeacon(action, new URLSearchParams({ act, csrfmiddlewaretoken: csrf() }));

// Loading the page again leaves it, too: `opened` then takes that back.
addEventListener("pagehide", () => tell("left"));
addEventListener("pageshow", () => tell("opened"));
