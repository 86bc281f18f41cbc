// What the agent was asked before this page was loaded, and has given up on.

/** The states of an agent that does not go on with its last turn; a restarted server is still settling the one that is starting. */
const GIVEN_UP = ["stopped", "error", "interrupted", "evicted", "cut", "starting"];

/** The seqs of such messages in the page. */
export function givenUp(root, status, progress) {
  const { turnBegan, turnAskedAfter, answered } = root.dataset;
  if (!GIVEN_UP.includes(status)) return [];
  const after = progress.of(-1).name === "answered" ? Number(turnBegan) : Number(turnAskedAfter);
  const articles = [...root.querySelectorAll("#events article.message.user")];
  return articles.map(({ dataset }) => Number(dataset.seq)).filter((seq) => seq > after && seq <= Number(answered));
}
