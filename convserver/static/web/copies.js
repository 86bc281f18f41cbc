// What another device has written in this box: offered to be used, rarely.

import { joined } from "./draft.js";

/** Offer it; nothing to take the offer away. */
export function offer(composer, copy) {
  const box = composer.form.querySelector(".conflict");
  box.hidden = !copy;
  if (!copy) return composer.draft.dropCopy();
  box.querySelector("p").textContent = `You have another draft from a different device: “${excerpt(copy.text)}”`;
  box.querySelector('[data-action="take-copy"]').onclick = () => take(composer, copy);
  box.querySelector('[data-action="drop-copy"]').onclick = () => offer(composer);
}

function take(composer, { text, images = [], files = [] }) {
  composer.put({ text: joined(composer.text.value, text), images: [...composer.images, ...images], files: [...composer.files, ...files] }, true);
  offer(composer);
  composer.focus();
}

const excerpt = (text) => (text.length > 140 ? `${text.slice(0, 140)}…` : text || "attachments");
