// What the agent was asked before this page was loaded, and has given up on.

/** The seqs of such messages in the page. */
export function givenUp(root, status, progress) {
  const { turnBegan, turnAskedAfter, answered } = root.dataset;
  if (!["stopped", "error"].includes(status)) return [];
  const after = progress.of(-1).name === "answered" ? Number(turnBegan) : Number(turnAskedAfter);
  const articles = [...root.querySelectorAll("#events article.message.user")];
  return articles.map(({ dataset }) => Number(dataset.seq)).filter((seq) => seq > after && seq <= Number(answered));
}
