// The window's title says how many conversations of the list are unread.

const title = document.querySelector("title");
const list = document.querySelector("#sidebar .scroll");

function count() {
  const unread = list.querySelectorAll(".row.unread").length;
  const plain = document.title.replace(/^\(\d+\) /, "");
  const words = unread ? `(${unread}) ${plain}` : plain;
  if (document.title !== words) document.title = words;
}

if (list && title) {
  let isDue = false;
  const soon = () => {
    if (isDue) return;
    isDue = true;
    queueMicrotask(() => {
      isDue = false;
      count();
    });
  };
  const changes = new MutationObserver(soon);
  changes.observe(list, { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] });
  changes.observe(title, { childList: true });
  count();
}
