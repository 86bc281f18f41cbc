// Light, dark or as the system has it: at once, and kept by the server in a cookie.

import { csrf } from "./csrf.js";

export async function chooseTheme(name, { address }) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  const answer = await fetch(address, {
    method: "POST",
    headers: { Accept: "application/json", "X-CSRFToken": csrf() },
    body: new URLSearchParams({ theme: name }),
  }).catch(() => undefined);
  if (!answer?.ok || answer.redirected) document.dispatchEvent(new CustomEvent("toast", { detail: "The theme could not be saved, so it applies to this page only." }));
}
