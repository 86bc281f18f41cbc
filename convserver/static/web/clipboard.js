// The way into the clipboard, and a word where it is barred.

/** Put a text into it; say whether it is there, and to the user if it is not. */
export async function copy(text) {
  const isCopied = await (navigator.clipboard?.writeText(text).then(() => true, () => false) ?? copyAsOfOld(text));
  if (!isCopied) document.dispatchEvent(new CustomEvent("toast", { detail: "Nothing was copied: the browser does not allow it." }));
  return isCopied;
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
