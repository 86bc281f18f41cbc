// Calls of tools in the log: their stylesheets, and the results that came with another stretch than their call.

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

/** Put results whose call is in the page, but came with another stretch, into the call's card. */
export function pair(events) {
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
    }
    result.article = article; // where it stands if the call goes
  }
}

function callOf({ dataset: { cause, call } }, events) {
  if (cause !== undefined) return document.getElementById(`e${cause}`);
  return call && events.querySelector(`article.tool_call[data-call="${CSS.escape(call)}"]`);
}

/** Put a result that came with this stretch back into its place there: its call goes, and not it. */
export function giveBack(result, stretch) {
  const { article } = result;
  const seq = Number(article?.dataset.seq);
  if (!(seq >= Number(stretch.dataset.first))) return;
  result.removeAttribute("id");
  if (!article.querySelector(".result")) article.append(result);
  stretch.insertBefore(article, [...stretch.children].find(({ dataset }) => Number(dataset.seq) > seq) ?? null);
}
