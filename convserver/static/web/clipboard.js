// The way into the clipboard, and a word where it is barred.

/** Put a text into it; say whether it is there, and to the user if it is not. */
export async function copy(text) {
  const isCopied = await (navigator.clipboard?.writeText(text).then(() => true, () => false) ?? copyAsOfOld(text));
  if (!isCopied) document.dispatchEvent(new CustomEvent("toast", { detail: "Could not copy: the browser does not allow it." }));
  return isCopied;
}

/** Put a text into it that is still to come: some browsers allow that only if it is begun at the click. */
export async function copyWhenThere(text) {
  const blob = text.then((words) => new Blob([words], { type: "text/plain" }));
  blob.catch(() => undefined); // told below
  const isCopied = window.ClipboardItem && (await navigator.clipboard?.write([new ClipboardItem({ "text/plain": blob })]).then(() => true, () => false));
  if (isCopied) return true;
  try {
    return await copy(await text);
  } catch {
    document.dispatchEvent(new CustomEvent("toast", { detail: "Nothing was copied: the server cannot be reached." }));
    return false;
  }
}

/** The way of a page that is no secure context. */
function copyAsOfOld(text) {
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  return isCopied;
}
