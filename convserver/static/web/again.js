// Another answer in one step: what its page would ask first is sent at once.

import { csrf } from "./csrf.js";
import { uuid } from "./uuid.js";

/** Send what a link to `…/again?answer=…` asks for, and go to the branch. */
export function again(link) {
  const { pathname, searchParams } = new URL(link.href);
  const form = document.createElement("form");
  form.method = "post";
  form.action = pathname;
  for (const [name, value] of [["answer", searchParams.get("answer")], ["id", uuid()], ["csrfmiddlewaretoken", csrf()]]) {
    const field = document.createElement("input");
    [field.type, field.name, field.value] = ["hidden", name, value];
    form.append(field);
  }
  document.body.append(form);
  form.submit();
}
