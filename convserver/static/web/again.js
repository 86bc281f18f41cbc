// Another answer in one step: what the page of a link to `…/again?answer=…` would ask first is sent at once.

import { csrf } from "./csrf.js";
import { uuid } from "./uuid.js";

document.addEventListener("click", (click) => {
  const link = click.target.closest?.("a[data-again]");
  if (!link || click.ctrlKey || click.metaKey || click.shiftKey) return;
  click.preventDefault();
  send(new URL(link.href));
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
