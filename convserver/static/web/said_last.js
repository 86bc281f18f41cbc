// What the user said at a place of the log, as it was sent.

/** The {text, images, files} of the message at `seq`. Throws if the server cannot say. */
export async function saidAt(id, seq) {
  const answer = await fetch(`/api/native/conversations/${encodeURIComponent(id)}/events?after=${seq - 1}&limit=1`);
  if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
  const [{ text, event }] = (await answer.json()).events;
  const parts = event.llm_message?.content ?? [];
  const texts = parts.filter(({ type }) => type === "text").map((part) => part.text);
  const images = event.args?.image_urls ?? parts.flatMap(({ image_urls: urls }) => urls ?? []);
  return { text: event.args?.content ?? (texts.length ? texts.join("\n") : text), images, files: (event.extended_content ?? []).flatMap(fileIn) };
}

// As the server writes it (conversations/dialects/attached.py).
const HEADER = /^The user attached ("(?:[^"\\\n]|\\.)*") \((\d{1,15}) bytes?(?:, (\d{1,9}) pages?)?(; in the workspace under this name)?\)\.(?: ([^\n]*))?(?:\n\n([^]*))?$/;

function fileIn({ text }) {
  const found = HEADER.exec(text ?? "");
  if (!found) return [];
  const [, name, size, pages, isKept, note = "", given = ""] = found;
  return [{ name: JSON.parse(name), size: Number(size), text: given, pages: pages ? Number(pages) : null, note, is_kept: !!isKept }];
}
