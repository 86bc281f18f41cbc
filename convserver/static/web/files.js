// Files of a message that are no images: uploaded and read by the server, and shown above the box.

import { csrf } from "./csrf.js";

const FILE_MAX_BYTES = 15 * 1024 * 1024; // of one request
const TEXT_MAX_CHARS = 200_000; // of one file, as the server takes it
const FILES_MAX = 20;
const UPLOAD_MS = 300_000;
const PASTED = "Pasted text.txt";

/** Return {file}, as a `message` has it, or {problem}. Without the `id` of a conversation it is read when one is there. */
export async function read(file, id, files) {
  if (files.length >= FILES_MAX) return { problem: `${file.name}: a message can have ${FILES_MAX} files.` };
  if (file.size > FILE_MAX_BYTES) return await beginning(file);
  return id ? await uploaded(file, id) : { file: { name: file.name, size: file.size, waiting: file } };
}

/** Store it in the conversation's workspace. */
async function uploaded(file, id) {
  const address = `/api/native/conversations/${encodeURIComponent(id)}/files?name=${encodeURIComponent(file.name)}`;
  try {
    const headers = { "Content-Type": "application/octet-stream", "X-CSRFToken": csrf() };
    const answer = await fetch(address, { method: "POST", headers, body: file, signal: AbortSignal.timeout(UPLOAD_MS) });
    const said = await answer.json();
    return answer.ok ? { file: said } : { problem: `${file.name} could not be attached: ${said.detail}` };
  } catch {
    return { problem: `${file.name} could not be attached: it can't be read, or the server can't be reached.` };
  }
}

/** Of a text that is too large to be kept, models get the beginning all the same. */
async function beginning(file) {
  const tooLarge = `${file.name} is too large: a file can have ${size(FILE_MAX_BYTES)}`;
  try {
    const bytes = await file.slice(0, TEXT_MAX_CHARS).arrayBuffer();
    // What is no text has bytes that no text has; a character at the end may be cut.
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
    if (text.includes("\0")) throw new TypeError("This is no text.");
    const note = `Only its beginning is here, and the file itself is not kept: it is larger than ${size(FILE_MAX_BYTES)}.`;
    return { file: { name: file.name, size: file.size, text, note } };
  } catch {
    return { problem: `${tooLarge}.` };
  }
}

/** Upload what waits for the conversation `id`. Return the files, or {problem}. */
export async function uploadWaiting(files, id) {
  const done = [];
  for (const each of files) {
    const { file, problem } = each.waiting ? await uploaded(each.waiting, id) : { file: each };
    if (problem) return { files: [...done, ...files.slice(done.length)], problem };
    done.push(file);
  }
  return { files: done };
}

/** Return a pasted text as a file; undefined for one that is longer than a file's text. */
export function pasted(text, files) {
  if (text.length > TEXT_MAX_CHARS || files.length >= FILES_MAX) return undefined;
  return { name: PASTED, size: new Blob([text]).size, text };
}

/** How a file stands above the box, with buttons that remove it, or put it back as text. */
export function item(file, remove, putBack) {
  const box = document.createElement("li");
  box.className = "file";
  const name = document.createElement("bdi");
  name.textContent = file.name;
  const facts = document.createElement("small");
  const pages = file.pages == null ? "" : `, ${file.pages} page${file.pages === 1 ? "" : "s"}`;
  facts.textContent = ` ${size(file.size)}${pages}${file.note ? `. ${file.note}` : ""}`;
  box.append(name, facts);
  if (file.name === PASTED && !file.is_kept) box.append(button("Put back as text", "Put back as text", putBack));
  box.append(button("×", `Remove ${file.name}`, remove));
  return box;
}

function button(words, label, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = words;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

/** As the server's pages say it. */
function size(bytes) {
  if (bytes < 1024) return `${bytes} byte${bytes === 1 ? "" : "s"}`;
  return bytes < 1024 ** 2 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1024 ** 2).toFixed(1)} MB`;
}
