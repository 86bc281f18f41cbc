// The menu of models over the composer: the page of its link, in a dialog.

import { csrf } from "./csrf.js";

const SEARCH_MS = 150;
const opener = document.getElementById("model");
const dialog = document.createElement("dialog");
dialog.className = "model-menu";
dialog.setAttribute("aria-label", "Model");
document.body.append(dialog);
let asked = 0; // the number of the newest request
let timer;

export async function follow() {
  dialog.replaceChildren(line("Loading the models…"));
  dialog.showModal();
  await show(opener.href);
  dialog.querySelector('[type="search"]')?.focus();
}

/** Show the name that the page has now: a model for one message was used. */
export async function refresh() {
  const menu = menuIn(await pageOf(opener.href));
  if (menu) label(menu);
}

function line(words) {
  const said = document.createElement("p");
  said.setAttribute("role", "status");
  said.textContent = words;
  return said;
}

async function pageOf(address, options) {
  const answer = await fetch(address, options);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

const menuIn = (page) => page.querySelector(".models");

/** Load a page into the dialog; return its menu, or nothing where a newer request has come before. */
async function show(address, options) {
  const number = ++asked;
  try {
    const page = await pageOf(address, options);
    if (number !== asked) return;
    const menu = menuIn(page);
    if (!menu) throw new Error("no menu");
    await styles(page);
    menu.querySelector("[data-close]").hidden = false;
    label(menu);
    dialog.replaceChildren(menu);
    return menu;
  } catch {
    if (number === asked) dialog.replaceChildren(line("The models can't be loaded right now. Close this, and try again."));
  }
}

/** Wait for the stylesheets of the menu: a dialog that is drawn without them jumps. */
function styles(page) {
  const missing = [...page.querySelectorAll("link[data-models]")].filter((sheet) => !document.querySelector(`link[href="${sheet.getAttribute("href")}"]`));
  return Promise.all(missing.map((sheet) => new Promise((done) => {
    const link = document.createElement("link");
    Object.assign(link, { rel: "stylesheet", href: sheet.getAttribute("href"), onload: done, onerror: done });
    document.head.append(link);
  })));
}

function label({ dataset }) {
  opener.querySelector("bdi").textContent = dataset.label;
  opener.toggleAttribute("data-next", "next" in dataset);
}

/** Show what is found, and leave what is being typed alone. */
async function search(field) {
  const { value: q, selectionStart: at } = field;
  const address = new URL(opener.href);
  address.searchParams.set("q", q);
  const chosen = dialog.querySelector('[name="choice"]:checked')?.value;
  if (!(await show(address))) return;
  const again = dialog.querySelector('[type="search"]');
  again.focus();
  again.setSelectionRange(at, at);
  const radio = [...dialog.querySelectorAll('[name="choice"]')].find(({ value }) => value === chosen);
  if (radio) radio.checked = true;
}

dialog.addEventListener("input", ({ target }) => {
  if (target.type !== "search") return;
  clearTimeout(timer);
  timer = setTimeout(search, SEARCH_MS, target);
});
dialog.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { target: form, submitter } = event;
  if (form.method === "get") return search(form.elements.q);
  const body = new URLSearchParams(new FormData(form, submitter));
  const menu = await show(form.action, { method: "POST", body, headers: { "X-CSRFToken": csrf() } });
  if (!menu || menu.querySelector(".error")) return;
  const said = menu.querySelector(".said");
  if (["conversation", "next", "no-next"].includes(submitter.value)) {
    dialog.close();
    document.dispatchEvent(new CustomEvent("toast", { detail: said.textContent }));
    document.getElementById("text").focus();
  } else if (submitter.name === "favourite") [...menu.querySelectorAll(".star")].find(({ value }) => value === submitter.value)?.focus();
});
dialog.addEventListener("click", (event) => {
  if (event.target.closest("[data-close]")) return dialog.close();
  const link = event.target.closest("[data-fresh]");
  if (!link) return;
  event.preventDefault();
  show(link.href);
});
