// What becomes of requests that fail: nobody asks anything before this is here.

document.addEventListener("htmx:responseError", ({ detail }) => say(detail.xhr.responseText));
document.addEventListener("htmx:sendError", () => say("Can't reach the server. Nothing was changed."));
document.addEventListener("htmx:timeout", () => say("The server didn't answer. Reload the page to see whether it worked."));

function say(words) {
  const isText = words && words.length < 300 && !words.includes("<");
  document.dispatchEvent(new CustomEvent("toast", { detail: isText ? words : "That didn't work. Nothing was changed." }));
}
