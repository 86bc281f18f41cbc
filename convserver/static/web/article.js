// The parts of a message that the server has not rendered: they look like those of one that it has.

export function head(author) {
  const header = document.createElement("header");
  const name = document.createElement("bdi");
  name.className = "author";
  name.textContent = author;
  header.append(name);
  return header;
}

export function body(text) {
  const made = document.createElement("div");
  made.className = "body plain";
  made.dir = "auto";
  made.textContent = text;
  return made;
}
