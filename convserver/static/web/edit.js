// A message is edited where it is: the form of the page "Edit and send again", in the place of its words.

/** Show the form of a link in the message that the link is about; follow the link where that fails. */
export async function edit(link) {
  const article = link.closest("article");
  const menu = link.closest("details");
  menu.open = false;
  if (article.querySelector("form.editing")) return;
  const form = await formOf(link.href).catch(() => null);
  if (!form) return location.assign(link.href);
  const shown = [...article.children].filter((part) => part.matches(".body, .output, .long"));
  const text = form.querySelector("textarea");
  form.className = "editing";
  // Several messages may be edited at once, each under a name of its own.
  text.id = `edit-${article.dataset.seq}`;
  Object.assign(form.querySelector("label"), { className: "sr-only", htmlFor: text.id, textContent: "Edited message" });
  const cancel = document.createElement("button");
  Object.assign(cancel, { type: "button", className: "plain", textContent: "Cancel" });
  form.querySelector(".buttons").append(cancel);
  for (const part of shown) part.hidden = true;
  article.querySelector("header").after(form);
  text.rows = Math.min(12, text.value.split("\n").length + 1);
  text.focus();
  text.setSelectionRange(text.value.length, text.value.length);

  const leave = () => {
    form.remove();
    for (const part of shown) part.hidden = false;
    menu.querySelector("summary").focus();
  };
  cancel.addEventListener("click", leave);
  text.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") {
      event.preventDefault();
      return leave();
    }
    const isTouch = matchMedia("(pointer: coarse)").matches;
    if (event.key !== "Enter" || ((event.shiftKey || event.altKey || isTouch) && !event.ctrlKey && !event.metaKey)) return;
    event.preventDefault();
    form.requestSubmit();
  });
  // The second submission of a double click finds the branch of the first, but not its page.
  form.addEventListener("submit", (event) => ("sent" in form.dataset ? event.preventDefault() : (form.dataset.sent = "")));
}

async function formOf(address) {
  const answer = await fetch(address);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  return page.querySelector("form:has(textarea[name=text]):has([name=message])");
}
