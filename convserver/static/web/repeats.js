// A message that is sent once more because it was not answered: its words are in the page already, and shown once.

const SAID = "article.message";

/** Show of each repeated message in the page, or on its way, that it is one. */
export function fold(root) {
  let last;
  for (const article of root.querySelectorAll(`:is(#events, #message-queue) ${SAID}`)) {
    if (article.matches(".user")) {
      const said = words(article);
      if (said === last) mark(article);
      last = said;
    } else if (!article.querySelector(":scope > .note")) last = undefined; // answered: what follows is another question
  }
}

function mark(article) {
  if (article.matches(".again")) return;
  article.classList.add("again");
  const note = document.createElement("p");
  note.className = "quiet";
  note.textContent = "Sent again";
  bodyOf(article).before(note);
}

/** What was said is plain text in an element of another kind where it is too long for Markdown. */
function bodyOf(article) {
  return article.querySelector(":scope > :is(.body, .long, .output)") ?? article.lastElementChild;
}

/** What was said, with its images. */
function words(article) {
  const images = [...article.querySelectorAll("img")].map(({ src }) => src);
  return JSON.stringify([bodyOf(article).textContent.trim(), images]);
}
