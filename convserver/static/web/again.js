// Links to `…/again` without their page: another answer is asked for at once, and a message is edited where it is.

import { csrf } from "./csrf.js";
import { uuid } from "./uuid.js";

document.addEventListener("click", (click) => {
  const link = click.target.closest?.("a[data-again], a[data-edit]");
  if (!link || click.ctrlKey || click.metaKey || click.shiftKey) return;
  click.preventDefault();
  if ("edit" in link.dataset) import("./edit.js").then(({ edit }) => edit(link), () => location.assign(link.href));
  else send(new URL(link.href));
});

function send({ pathname, searchParams }) {
  const form = document.createElement("form");
  form.method = "post";
  form.action = pathname;
  const fields = { answer: searchParams.get("answer"), id: uuid(), csrfmiddlewaretoken: csrf() };
  for (const [name, value] of Object.entries(fields)) {
    const field = document.createElement("input");
    [field.type, field.name, field.value] = ["hidden", name, value];
    form.append(field);
  }
  document.body.append(form);
  form.submit();
}
