// What the user said at a place of the log, as it was sent.

/** The {text, images} of the message at `seq`. Throws if the server cannot say. */
export async function saidAt(id, seq) {
  const answer = await fetch(`/api/native/conversations/${encodeURIComponent(id)}/events?after=${seq - 1}&limit=1`);
  if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
  const [{ text, event }] = (await answer.json()).events;
  const parts = event.llm_message?.content ?? [];
  const texts = parts.filter(({ type }) => type === "text").map((part) => part.text);
  const images = event.args?.image_urls ?? parts.flatMap(({ image_urls: urls }) => urls ?? []);
  return { text: event.args?.content ?? (texts.length ? texts.join("\n") : text), images };
}
