// Plans in the log: all that one was between two messages of the user is one card, however many stretches it came in.

let newest; // the card of the newest plan in the page

/** Show each plan by its first card, with the states of the cards that follow; those are hidden and keep their own. */
export function merge(events) {
  const runs = [];
  let run;
  for (const article of events.querySelectorAll(":scope > .stretch > article:is(.plan, .message.user)")) {
    if (!article.matches(".plan")) run = undefined;
    else if (run) run.push(article);
    else runs.push((run = [article]));
  }
  for (const each of runs) show(each, each === runs.at(-1));
  for (const [older] of runs.slice(0, -1)) fold(older);
}

/** The card that shows what this element is of, opened there; the element itself where it is of no plan. */
export function shownBy(element) {
  const article = element?.closest("article.plan");
  if (!article) return element;
  const host = article.host ?? article;
  const seq = element.dataset.seq;
  const state = host.querySelector(`.plan-state[data-seq="${seq}"]`);
  const folded = state?.closest(".earlier");
  if (folded) folded.open = true;
  return folded ? state : host;
}

/** The seqs of the calls in the page whose results have been shown as plans. */
export function answered(events) {
  const causes = [...events.querySelectorAll(".plan-state[data-cause]")].map(({ dataset }) => dataset.cause);
  return causes.filter((seq) => events.querySelector(`article.tool_call[id="e${seq}"]`));
}

function show(run, isNewest) {
  const [host, ...others] = run;
  host.hidden = false;
  for (const each of run) each.host = host;
  for (const each of others) each.hidden = true;
  const states = distinct(run.flatMap(own));
  const key = states.map(({ dataset }) => dataset.seq).join(" ");
  const before = host.dataset.states ?? own(host).map(({ dataset }) => dataset.seq).join(" ");
  host.dataset.states = key;
  if (key !== before) put(host, states.map((state) => (own(host).includes(state) ? state : copy(state))));
  if (isNewest && (key !== before || (newest && newest !== host))) tell(host);
  if (isNewest) newest = host;
}

/** The states that an article came with, oldest first. */
function own(article) {
  article.states ??= [...article.querySelectorAll(".plan-state")].sort(bySeq);
  return article.states;
}

/** Each state once: a result says again what its call has said. */
function distinct(states) {
  const found = new Map();
  let last;
  for (const state of states.sort(bySeq)) {
    const { seq, cause } = state.dataset;
    if (found.has(seq) || found.has(cause) || repeats(state, last)) continue;
    found.set(seq, state);
    last = state;
  }
  return [...found.values()];
}

/** Whether a result that does not name its call says what that has said. */
function repeats(state, before) {
  const [list, other] = [state, before].map((each) => each?.querySelector(".tasks")?.innerHTML);
  return state.dataset.kind === "tool_result" && list !== undefined && list === other;
}

function put(host, states) {
  const now = host.querySelector(":scope > .now");
  const earlier = host.querySelector(":scope > .earlier") ?? folding(host);
  const last = states.at(-1);
  now.querySelector(":scope > summary").textContent = last.querySelector(".words").textContent;
  now.querySelector(":scope > .plan-state")?.remove();
  now.append(last);
  const count = states.length - 1;
  earlier.hidden = !count;
  earlier.querySelector("summary").textContent = `${count} earlier ${count === 1 ? "state" : "states"}`;
  earlier.querySelector("ol").replaceChildren(...states.slice(0, -1).map(item));
}

function item(state) {
  const made = document.createElement("li");
  made.append(state);
  return made;
}

function folding(host) {
  const made = document.createElement("details");
  made.className = "earlier";
  made.append(document.createElement("summary"), document.createElement("ol"));
  host.append(made);
  return made;
}

function copy(state) {
  const made = state.cloneNode(true);
  made.removeAttribute("id"); // which its own card has
  return made;
}

/** A plan that is not the newest is folded, once. */
function fold(host) {
  if (host.isFolded) return;
  host.isFolded = true;
  host.querySelector(":scope > .now").open = false;
}

/** Have the newest state read aloud. */
function tell(host) {
  document.getElementById("heard").textContent = `Plan: ${host.querySelector(":scope > .now > summary").textContent}`;
}

const bySeq = (one, other) => one.dataset.seq - other.dataset.seq;
