// Short notices at the foot of the window, read aloud once.

const SHOWN_MS = 10_000;

// Above where one writes and decides, however high that is.
const foot = document.querySelector("#conversation .foot");
if (foot) new ResizeObserver(() => document.getElementById("toasts").style.setProperty("--foot", `${foot.offsetHeight}px`)).observe(foot);

export function toast(words) {
  const box = document.createElement("div");
  box.className = "toast";
  const text = document.createElement("bdi");
  text.textContent = words;
  const close = document.createElement("button");
  close.type = "button";
  close.className = "plain icon";
  close.setAttribute("aria-label", "Dismiss");
  close.textContent = "×";
  close.addEventListener("click", () => box.remove());
  box.append(text, close);
  document.getElementById("toasts").append(box);
  setTimeout(() => box.remove(), SHOWN_MS);
}

document.addEventListener("toast", ({ detail }) => toast(detail));
