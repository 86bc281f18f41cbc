// The command palette: a field, and below it what fits to it. It remembers nothing.

import { conversationAddress, go } from "./addresses.js";
import { commands } from "./commands.js";

const REST_MS = 120; // after the last key, before the server is asked
const FOUND_MAX = 8;
const SHOWN_FIRST = 6; // commands, while nothing is typed

class Palette {
  constructor(dialog) {
    this.dialog = dialog;
    this.field = dialog.querySelector("input");
    this.list = dialog.querySelector('[role="listbox"]');
    this.note = dialog.querySelector(".note");
    this.field.addEventListener("input", () => this.typed());
    this.field.addEventListener("keydown", (event) => this.pressed(event));
    this.list.addEventListener("click", ({ target }) => this.take(this.options.indexOf(target.closest('[role="option"]'))));
    this.list.addEventListener("pointermove", ({ target }) => this.choose(this.options.indexOf(target.closest('[role="option"]')), false));
    // A press on an option must not take the focus out of the field.
    this.list.addEventListener("pointerdown", (event) => event.preventDefault());
    dialog.addEventListener("close", () => this.forget());
  }

  get options() {
    return [...this.list.querySelectorAll('[role="option"]')];
  }

  opened() {
    this.offered = commands(this.dialog.dataset); // what can be done on the page as it stands
    this.found = [];
    this.show();
    this.look();
  }

  forget() {
    clearTimeout(this.timer);
    this.question?.abort();
    this.field.value = "";
    this.list.replaceChildren();
    this.note.textContent = "";
  }

  typed() {
    this.isChosen = false;
    this.question?.abort(); // its answer would be to what is not there any more
    this.show();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), REST_MS);
  }

  pressed(event) {
    const last = this.options.length - 1;
    const next = { ArrowDown: this.chosen >= last ? 0 : this.chosen + 1, ArrowUp: this.chosen <= 0 ? last : this.chosen - 1 }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      this.choose(next);
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.take(this.chosen);
    }
  }

  /** Ask for conversations whose title has what is typed; the newest while nothing is. */
  async look() {
    this.question?.abort();
    const question = (this.question = new AbortController());
    const text = this.field.value.trim();
    const query = new URLSearchParams({ limit: FOUND_MAX, ...(text && { title: text }) });
    try {
      const answer = await fetch(`${this.dialog.dataset.conversations}?${query}`, { signal: question.signal });
      if (question.signal.aborted) return;
      if (!answer.ok) return this.say(answer.status === 401 ? "You have been logged out." : `The server returned an error (${answer.status}).`);
      const { conversations } = await answer.json();
      if (question.signal.aborted) return;
      this.found = conversations.map(({ id, title, repository }) => ({ id, title, more: repository, run: () => go(conversationAddress(id)) }));
      this.show({ keepsChoice: true });
    } catch {
      if (!question.signal.aborted) this.say("Can't reach the server to find conversations.");
    }
  }

  show({ keepsChoice = false } = {}) {
    const text = this.field.value.trim();
    const chosen = keepsChoice && this.isChosen ? this.taken[this.chosen] : undefined;
    const fitting = this.offered.filter((command) => fits(command, text));
    const groups = [
      ["Commands", text ? fitting : fitting.slice(0, SHOWN_FIRST)],
      [text ? "Conversations" : "Recent conversations", this.found.filter(({ title }) => !text || !keepsChoice ? contains(title, text) : true)],
      ["Search", text && this.dialog.dataset.search ? [this.everywhere(text)] : []],
    ];
    if (text && !fitting.length) groups.unshift(...groups.splice(1, 1)); // what is typed is no command
    this.taken = groups.flatMap(([, members]) => members);
    let place = 0;
    this.list.replaceChildren(...groups.filter(([, members]) => members.length).map(([name, members]) => group(name, members.map((member) => option(member, place++)))));
    this.point(Math.max(0, this.taken.findIndex(({ id, title }) => id === chosen?.id && title === chosen?.title)), false);
    this.say(this.taken.length || !this.offered.length ? "" : "No results.", this.taken.length);
  }

  everywhere(text) {
    return { title: `Search all messages for “${text}”`, run: () => go(`${this.dialog.dataset.search}?${new URLSearchParams({ q: text })}`) };
  }

  say(words, count) {
    this.note.textContent = words || (this.field.value.trim() ? `${count} result${count === 1 ? "" : "s"}` : "");
    this.note.classList.toggle("sr-only", !words);
  }

  /** Point where a hand does: only that is kept when more is found. */
  choose(place, scrolls) {
    this.isChosen = true;
    this.point(place, scrolls);
  }

  point(place, scrolls = true) {
    const options = this.options;
    if (place < 0 && options.length) return;
    this.chosen = place;
    options.forEach((each, index) => each.setAttribute("aria-selected", String(index === place)));
    const now = options[place];
    if (now) this.field.setAttribute("aria-activedescendant", now.id);
    else this.field.removeAttribute("aria-activedescendant");
    if (scrolls) now?.scrollIntoView({ block: "nearest" });
    if (scrolls && place === 0) this.list.scrollTop = 0;
  }

  take(place) {
    const taken = this.taken[place];
    if (!taken) return;
    this.dialog.close();
    taken.run();
  }
}

let palette;

/** Fill the dialog that was opened; `isEntered` once Enter was pressed in it. */
export function opened(dialog, isEntered) {
  palette ??= new Palette(dialog);
  palette.opened();
  if (isEntered) palette.take(palette.chosen);
}

const contains = (title, text) => title.toLowerCase().includes(text.toLowerCase());

/** Whether each word that is typed begins one of the command's. */
function fits({ title, words }, text) {
  const all = ` ${title} ${words ?? ""}`.toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => all.includes(` ${word}`));
}

function group(name, options) {
  const box = document.createElement("div");
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", name);
  const label = document.createElement("p");
  label.className = "group";
  label.setAttribute("aria-hidden", "true");
  label.textContent = name;
  box.append(label, ...options);
  return box;
}

function option({ title, more, key }, place) {
  const box = document.createElement("div");
  box.setAttribute("role", "option");
  box.id = `palette-option-${place}`;
  const text = document.createElement("bdi");
  text.textContent = title;
  box.append(text);
  if (more) {
    const quiet = document.createElement("bdi");
    quiet.className = "quiet";
    quiet.textContent = more;
    box.append(quiet);
  }
  if (key) {
    const hint = document.createElement("kbd");
    hint.textContent = key;
    hint.setAttribute("aria-hidden", "true");
    box.append(hint);
  }
  return box;
}
