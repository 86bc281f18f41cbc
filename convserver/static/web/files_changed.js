// What a turn has changed in the files: the server knows it a moment after the end of the turn.

const WAITS_MS = [700, 2000, 6000];

/** Show it below the turn that ended with the event `seq`, once the server has it. */
export async function showChanged(root, seq) {
  if (!root.querySelector("#events .tool_call")) return; // only tools change files
  const page = `${root.dataset.events.replace(/events$/, "changed-files")}?seq=${seq}`;
  for (const wait of WAITS_MS) {
    await new Promise((done) => setTimeout(done, wait));
    const answer = await fetch(page).catch(() => undefined);
    if (answer?.status !== 200) continue;
    const line = await answer.text();
    const last = [...root.querySelectorAll("#events article[data-seq]")].filter(({ dataset }) => Number(dataset.seq) <= seq).at(-1);
    if (!last || root.querySelector(`[data-files-of="${seq}"]`)) return;
    const log = root.querySelector("#log");
    const isPinned = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    last.insertAdjacentHTML("afterend", line);
    if (isPinned) log.scrollTop = log.scrollHeight;
    return;
  }
}
