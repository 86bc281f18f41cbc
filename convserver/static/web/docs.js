// Shows the OpenAPI document of this server, and lets its requests be tried out.
"use strict";

const place = document.getElementById("docs");

const dark = matchMedia("(prefers-color-scheme: dark)");
const showTheme = () => {
  const { classList, dataset } = document.documentElement;
  classList.toggle("dark-mode", dataset.theme ? dataset.theme === "dark" : dark.matches);
};
dark.addEventListener("change", showTheme);
showTheme();

SwaggerUIBundle({
  domNode: place,
  url: place.dataset.document,
  deepLinking: true,
  validatorUrl: null, // nothing leaves this server
  requestInterceptor: (request) => {
    if (place.dataset.csrfToken && request.method !== "GET") {
      request.headers["X-CSRFToken"] = place.dataset.csrfToken; // for whoever came by a login
    }
    return request;
  },
});
