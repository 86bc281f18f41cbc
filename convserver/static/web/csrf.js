// The token that shows that a page of ours asks: a login in another tab gives all tabs a new one.

export const csrf = () => /(?:^|;\s*)csrftoken=([^;]+)/.exec(document.cookie)?.[1] ?? document.body.dataset.csrf;

document.addEventListener("submit", ({ target }) => {
  const field = target.elements?.csrfmiddlewaretoken;
  if (field) field.value = csrf();
}, true);
document.addEventListener("htmx:configRequest", ({ detail: { headers, parameters } }) => {
  headers["X-CSRFToken"] = csrf();
  if (parameters.csrfmiddlewaretoken) parameters.csrfmiddlewaretoken = csrf(); // a form's own counts first
});
