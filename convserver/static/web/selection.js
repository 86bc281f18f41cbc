// Choosing conversations in the list, and what is done to all that were chosen; fetched when somebody begins.

import { csrf } from "./csrf.js";
import { toast } from "./toasts.js";

const AT_A_TIME = 200; // the server takes so many ids
const EXPORT_MAX = 2_000; // and so many in one export
const ANSWER_MS = 120_000; // agents may have to be stopped first

const sidebar = document.getElementById("sidebar");
const form = document.getElementById("filters");
const { batch, exports, labels } = form.dataset;
const boxes = () => [...sidebar.querySelectorAll(".pick")];

const chosen = new Set();
let isOn = false;
let isAll = false; // all that match, not only those that are shown
let isBusy = false;
let anchor; // where a range begins
let bar;

/** Choose a row, or not any more; without one, begin to choose, or end it. */
export function pick(row) {
  if (!row && isOn) return end();
  if (!isOn) begin();
  row?.querySelector(":scope > .pick")?.click();
}

function begin() {
  isOn = true;
  document.querySelector("link[data-selection]").disabled = false;
  bar ??= made();
  sidebar.querySelector("footer").before(bar);
  sidebar.classList.add("selecting");
  sidebar.querySelectorAll(".row").forEach(equip);
  rows.observe(sidebar.querySelector(".scroll"), { childList: true, subtree: true });
  tell();
  if (!sidebar.contains(document.activeElement) || !document.activeElement.closest(".row")) boxes()[0]?.focus();
}

function end() {
  isOn = false;
  rows.disconnect();
  clear();
  bar.remove();
  sidebar.classList.remove("selecting");
  boxes().forEach((box) => box.remove());
  document.querySelector("[data-selects]")?.focus();
}

function clear() {
  isAll = false;
  chosen.clear();
  for (const box of boxes()) box.checked = false;
  tell();
}

const rows = new MutationObserver((records) => {
  for (const { addedNodes } of records) {
    for (const node of addedNodes) {
      if (!node.querySelectorAll) continue;
      for (const row of node.matches(".row") ? [node] : node.querySelectorAll(".row")) equip(row);
    }
  }
  for (const id of chosen) if (!document.getElementById(`row-${id}`)) chosen.delete(id);
  tell();
});

function equip(row) {
  if (row.querySelector(":scope > .pick")) return;
  const box = document.createElement("input");
  box.type = "checkbox";
  box.className = "pick";
  box.checked = isAll ? isInList(row) : chosen.has(row.dataset.id);
  box.setAttribute("aria-label", `Select ${row.querySelector(".title").textContent}`);
  row.prepend(box);
}

/** Say whether the row is one of the list itself: those of an opened family are not among all that match. */
const isInList = (row) => !row.closest(".within");

function set(box, isChosen) {
  box.checked = isChosen;
  const { id } = box.closest(".row").dataset;
  if (isChosen) chosen.add(id);
  else chosen.delete(id);
}

sidebar.addEventListener("click", (event) => {
  const box = event.target.closest?.(".pick");
  if (!box) return;
  if (isAll) leaveAll();
  const all = boxes();
  const [from, to] = [all.indexOf(anchor), all.indexOf(box)].sort((one, other) => one - other);
  if (event.shiftKey && from >= 0) all.slice(from, to + 1).forEach((each) => set(each, box.checked));
  else set(box, box.checked);
  anchor = box;
  tell();
});

/** One was taken out of all that match: what is shown besides stays chosen. */
function leaveAll() {
  isAll = false;
  for (const box of boxes()) if (box.checked) chosen.add(box.closest(".row").dataset.id);
}

sidebar.addEventListener("keydown", (event) => {
  if (!isOn) return;
  if (event.key === "Escape" && !event.target.closest(".actions[open]")) {
    event.preventDefault();
    if (chosen.size || isAll) return clear();
    return end();
  }
  const box = event.target.closest?.(".pick");
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!box || !step) return;
  event.preventDefault();
  event.stopPropagation();
  const all = boxes();
  const next = all[all.indexOf(box) + step];
  if (!next) return;
  if (event.shiftKey) [box, next].forEach((each) => set(each, true));
  next.focus();
  anchor = event.shiftKey ? anchor ?? box : next;
  tell();
}, true);

function made() {
  const node = document.createElement("section");
  node.className = "selection";
  node.setAttribute("aria-label", "Selected conversations");
  node.innerHTML = `<p role="status"></p>
    <div class="buttons"><button type="button" class="plain" data-do="all">Select all</button>
    <button type="button" data-do="archive">Archive</button>
    <button type="button" data-do="label">Label…</button>
    <button type="button" data-do="export">Export</button>
    <button type="button" class="bad" data-do="delete">Delete</button>
    <button type="button" class="plain icon" data-do="end" aria-label="Stop selecting" title="Stop selecting (Esc)">×</button></div>
    <form class="naming" hidden><input name="name" list="known-labels" maxlength="601" required autocomplete="off" aria-label="Label" placeholder="Label, or name: value">
    <button type="submit" class="primary" value="label">Add</button>
    <button type="submit" value="unlabel">Remove</button></form>`;
  node.addEventListener("click", ({ target }) => act(target.closest("[data-do]")?.dataset.do));
  node.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    run(event.submitter.value, new FormData(event.target).get("name"));
  });
  return node;
}

function act(what) {
  if (!what || isBusy) return;
  if (what === "end") return end();
  if (what === "all") return all();
  if (what === "label") return name();
  if (what === "export") return download();
  run(what);
}

function tell(words) {
  if (!bar) return;
  const count = isAll ? isAll.words : String(chosen.size);
  bar.querySelector("[role=status]").textContent = words ?? `${count} selected`;
  const isNone = !isAll && !chosen.size;
  for (const button of bar.querySelectorAll("button")) {
    const { do: what } = button.dataset;
    button.disabled = isBusy || (isNone && what !== "all" && what !== "end");
  }
  const archive = bar.querySelector('[data-do^="archive"], [data-do^="unarchive"]');
  const isArchived = form.elements.archived?.checked;
  archive.dataset.do = isArchived ? "unarchive" : "archive";
  archive.textContent = isArchived ? "Unarchive" : "Archive";
}

/** Choose all that the filters let through, those that are not shown as well. */
async function all() {
  const filters = filtersOfList();
  const asked = new URLSearchParams(filters);
  const answer = await fetch(`${batch}?${asked}`, { signal: AbortSignal.timeout(ANSWER_MS) }).catch(() => undefined);
  if (!answer?.ok || answer.redirected) return toast("The conversations could not be counted. Try again.");
  const { count, has_more } = await answer.json();
  isAll = { count, filters, words: `All ${count.toLocaleString("en")}${has_more ? "+" : ""}` };
  for (const box of boxes()) box.checked = isInList(box);
  tell();
}

/** What the list shows: what the form asks for, or the sub-conversations of one conversation. */
function filtersOfList() {
  const filters = new FormData(form);
  const { parent } = sidebar.querySelector(".rows[data-parent]:not(.within *)")?.dataset ?? {};
  if (parent) filters.set("parent", parent);
  return filters;
}

async function name() {
  const naming = bar.querySelector(".naming");
  naming.hidden = !naming.hidden;
  if (naming.hidden) return;
  naming.querySelector("input").focus();
  if (document.getElementById("known-labels")) return;
  const answer = await fetch(labels).catch(() => undefined);
  if (answer?.ok && !answer.redirected) form.querySelector(".known").innerHTML = await answer.text();
}

/** The forms that say what was chosen, one for each request. */
function* requests(fields) {
  if (isAll) {
    const body = new FormData();
    for (const [key, value] of isAll.filters) body.append(key, value);
    body.append("all", "true");
    for (const [key, value] of Object.entries(fields)) body.append(key, value);
    return yield body;
  }
  const ids = [...chosen];
  for (let at = 0; at < ids.length; at += AT_A_TIME) {
    const body = new FormData();
    for (const [key, value] of Object.entries(fields)) body.append(key, value);
    for (const id of ids.slice(at, at + AT_A_TIME)) body.append("id", id);
    yield body;
  }
}

const DOING = { archive: "Archiving", unarchive: "Unarchiving", delete: "Deleting", label: "Labelling", unlabel: "Removing the label from" };
const DONE = { archive: "Archived", unarchive: "Unarchived", delete: "Deleted", label: "Labelled", unlabel: "Removed the label from" };

async function run(action, label = "") {
  isBusy = true;
  const sum = { changed: 0, refused: 0, why: "", undo: [] };
  let problem = "";
  try {
    for (const body of requests({ action, name: label })) {
      do {
        tell(`${DOING[action]} ${sum.changed} of ${isAll ? isAll.words.toLowerCase() : chosen.size}…`);
        const answer = await post(body);
        add(sum, answer);
        if (answer.next) body.set("page_id", answer.next);
        else body.delete("page_id");
      } while (body.has("page_id"));
    }
  } catch (error) {
    problem = error.message;
  }
  isBusy = false;
  bar.querySelector(".naming").hidden = true;
  if (problem) toast(problem);
  if (sum.refused) toast(`${conversations(sum.refused)} not changed: ${sum.why}`);
  if (sum.changed) offerUndo(`${DONE[action]} ${conversations(sum.changed)}`, sum.undo);
  else if (!problem && !sum.refused) toast("Nothing to change.");
  if (!problem) clear();
  else tell();
}

function add(sum, { changed, refused, why, undo }) {
  sum.changed += changed;
  sum.refused += refused;
  sum.why ||= why;
  if (undo) sum.undo.push(undo);
}

async function post(body) {
  let answer;
  try {
    answer = await fetch(batch, { method: "POST", body, headers: { "X-CSRFToken": csrf() }, signal: AbortSignal.timeout(ANSWER_MS) });
  } catch {
    throw new Error("The connection was lost. Some conversations may already be changed: reload the list to check.");
  }
  if (answer.redirected) return location.reload();
  if (answer.ok) return answer.json();
  const words = await answer.text();
  throw new Error(words && words.length < 300 && !words.includes("<") ? words : "The server could not do this. Try again.");
}

const conversations = (count) => `${count.toLocaleString("en")} conversation${count === 1 ? "" : "s"}`;

function offerUndo(words, tokens) {
  const box = document.createElement("div");
  box.className = "toast undo";
  box.dataset.undo = "";
  box.innerHTML = `<span></span><form><button type="submit" aria-keyshortcuts="z">Undo <kbd aria-hidden="true">z</kbd></button></form>
    <button type="button" class="plain icon" data-dismiss aria-label="Dismiss">×</button>`;
  box.querySelector("span").textContent = words;
  box.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    box.querySelector("[type=submit]").disabled = true;
    try {
      while (tokens.length) {
        const body = new FormData();
        body.append("undo", tokens.at(-1));
        await post(body);
        tokens.pop();
      }
      box.remove();
    } catch (error) {
      box.querySelector("[type=submit]").disabled = false;
      toast(error.message);
    }
  });
  document.getElementById("toasts").append(box);
}

/** Ask for all that were chosen by one form: a browser gives up a download for the next. */
function download() {
  if (!isAll && chosen.size > EXPORT_MAX) return toast(`At most ${EXPORT_MAX.toLocaleString("en")} selected conversations can be exported at once. Select fewer, or all.`);
  const fields = isAll ? [...isAll.filters, ["all", "true"]] : [["id", [...chosen].join(" ")]];
  const sent = document.createElement("form");
  sent.method = "post";
  sent.action = exports;
  for (const [key, value] of [...fields, ["csrfmiddlewaretoken", csrf()]]) {
    const field = document.createElement("input");
    [field.type, field.name, field.value] = ["hidden", key, value];
    sent.append(field);
  }
  document.body.append(sent);
  sent.submit();
  sent.remove();
}
