// Thumbs for an answer, in place: stored at the click, and then there is room to say why.

import { csrf } from "./csrf.js";

const say = (detail) => document.dispatchEvent(new CustomEvent("toast", { detail }));

export async function rate(thumb) {
  const query = new URL(thumb.href).searchParams;
  const article = thumb.closest("article");
  const isTakenBack = thumb.hasAttribute("aria-current");
  const rating = { polarity: query.get("polarity"), reason: article.querySelector(".why input")?.value ?? "" };
  if (!(await stored(query.get("seq"), isTakenBack ? undefined : rating))) return;
  for (const each of article.querySelectorAll(".thumb")) each.removeAttribute("aria-current");
  if (!isTakenBack) thumb.setAttribute("aria-current", "true");
  article.querySelector(".why")?.remove();
  if (!isTakenBack) askWhy(article, query.get("seq"), rating);
}

async function stored(seq, rating) {
  const { id } = document.getElementById("conversation").dataset;
  try {
    const answer = await fetch(`/api/native/conversations/${encodeURIComponent(id)}/feedback/${seq}`, {
      method: rating ? "PUT" : "DELETE",
      headers: { "Content-Type": "application/json", "X-CSRFToken": csrf() },
      body: rating && JSON.stringify(rating),
    });
    if (answer.ok) return true;
    say(`Your rating was not stored: the server answered ${answer.status}.`);
  } catch {
    say("Your rating was not stored: the server can't be reached.");
  }
  return false;
}

function askWhy(article, seq, rating) {
  const form = document.createElement("form");
  form.className = "why";
  const reason = Object.assign(document.createElement("input"), { placeholder: "Why? (optional)", maxLength: 2000, dir: "auto", value: rating.reason });
  reason.setAttribute("aria-label", "Why? (optional)");
  const save = Object.assign(document.createElement("button"), { type: "submit", textContent: "Save" });
  form.append(reason, save);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (await stored(seq, { ...rating, reason: reason.value })) close("Your rating is stored.");
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  });
  const close = (words) => {
    form.remove();
    article.querySelector(".thumb[aria-current]")?.focus();
    if (words) say(words);
  };
  article.append(form);
  reason.focus();
}
