// Calls of tools in the log: their stylesheets, and the results and plans that came in several stretches.

import { answered, merge, shownBy } from "./plans.js";

const STYLE_MS = 3_000; // what calls say counts more than how it looks

/** Resolved when the stylesheets of calls, code and output are there, or late. */
export async function styled() {
  const links = [...document.querySelectorAll("link[data-calls]")].filter((link) => link.disabled);
  const all = links.map((link) => new Promise((done) => {
    for (const sign of ["load", "error"]) link.addEventListener(sign, done, { once: true });
    link.disabled = false;
  }));
  await Promise.race([Promise.all(all), new Promise((done) => setTimeout(done, STYLE_MS))]);
}

export { shownBy };

const asked = new Set(); // the calls that were fetched again because their results had come

/** Put results whose call is in the page, but came with another stretch, into the call's card; return the seqs of calls that are to be fetched again. */
export function pair(events) {
  const done = [];
  // Whatever its kind: a call that was cut off or could not be made is answered by an error.
  for (const article of events.querySelectorAll(":scope > .stretch > article:has(> .result)")) {
    const results = callOf(article, events)?.querySelector(":scope > .results");
    if (!results) continue;
    article.remove();
    let result = results.querySelector(`[data-seq="${article.dataset.seq}"]`);
    if (!result) {
      result = article.querySelector(".result");
      Object.assign(result.dataset, article.dataset);
      result.id = article.id;
      results.append(result);
      if (result.matches(".done")) done.push(...planned(results));
    }
    result.article = article; // where it stands if the call goes
  }
  merge(events);
  const again = [...done, ...answered(events)].filter((seq) => !asked.has(seq));
  for (const seq of again) asked.add(seq);
  return again.map(Number);
}

/** The seq of a call that has changed the plan, now that it is done. */
function planned({ parentElement: call }) {
  return call.matches(".tasks") ? [call.dataset.seq] : [];
}

function callOf({ dataset: { cause, call } }, events) {
  if (cause !== undefined) return document.getElementById(`e${cause}`);
  return call && events.querySelector(`article.tool_call[data-call="${CSS.escape(call)}"]`);
}

/** Keep what came with the next stretch, and is shown in the one that goes. */
export function leave(dropped, next) {
  for (const result of dropped.querySelectorAll(".results > .result")) giveBack(result, next);
  const events = dropped.parentElement;
  queueMicrotask(() => merge(events)); // once it has gone, another card shows the plan
}

/** Put a result that came with this stretch back into its place there: its call goes, and not it. */
function giveBack(result, stretch) {
  const { article } = result;
  const seq = Number(article?.dataset.seq);
  if (!(seq >= Number(stretch.dataset.first))) return;
  result.removeAttribute("id");
  if (!article.querySelector(".result")) article.append(result);
  stretch.insertBefore(article, [...stretch.children].find(({ dataset }) => Number(dataset.seq) > seq) ?? null);
}
