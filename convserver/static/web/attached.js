// The images and files above the box of a composer.

import { joined } from "./draft.js";
import * as files from "./files.js";
import * as images from "./images.js";

/** Take a file into what is being written; return what is wrong with it, if anything. */
export async function add(composer, chosen) {
  const isImage = /^image\/(png|jpeg|gif|webp)$/.test(chosen.type);
  if (!isImage) composer.note(`Reading ${chosen.name}…`);
  const { image, file, problem } = await (isImage ? images.read(chosen, composer.images) : files.read(chosen, composer.id, composer.files));
  if (image) composer.images = [...composer.images, image];
  if (file) composer.files = [...composer.files, file];
  return problem;
}

/** Keep a long text as a file, out of the box, where it would be in the way. */
export function paste(composer, text) {
  const file = files.pasted(text, composer.files);
  if (!file) return composer.insert(text);
  composer.files = [...composer.files, file];
  composer.changedAttached();
}

/** Upload what waits for the conversation `id`; return what is wrong, if anything. */
export async function upload(composer, id) {
  const { files: uploaded, problem } = await files.uploadWaiting(composer.files, id);
  composer.files = uploaded;
  composer.showAttached();
  return problem;
}

/** Show what is attached; what stands there goes. */
export function show(composer) {
  const { style } = composer.list.dataset;
  if (style && !document.querySelector(`link[href="${style}"]`)) document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: style }));
  const remove = (kind, index) => {
    composer[kind] = composer[kind].filter((_, each) => each !== index);
    composer.changedAttached();
    composer.focus();
  };
  const putBack = (index) => {
    composer.text.value = joined(composer.text.value, composer.files[index].text);
    composer.changed();
    remove("files", index);
  };
  composer.list.replaceChildren(
    ...composer.images.map((source, index) => images.item(source, index, () => remove("images", index))),
    ...composer.files.map((file, index) => files.item(file, () => remove("files", index), () => putBack(index))),
  );
}
