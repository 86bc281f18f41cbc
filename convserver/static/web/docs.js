// Shows the OpenAPI document of this server, and lets its requests be tried out.
"use strict";

const place = document.getElementById("docs");

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
