// The page while the server is away: what waits on this device, and more for the conversation that was asked for.

import { UnsentStore } from "./unsent_store.js";
import { uuid } from "./uuid.js";

const TRY_MS = 5000;

const user = localStorage.getItem("user");
const [, id] = location.pathname.match(/\/c\/([^/]+)$/) ?? [];
const UUID = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;
const conversation = id && stored(decodeURIComponent(id));
const form = document.getElementById("write");

/** The id as the server stores it: a UUID of any spelling has one form. */
function stored(id) {
  return UUID.test(id) ? id.replaceAll("-", "").toLowerCase() : id;
}

/** Load the page that was asked for once the server answers. */
async function look() {
  const answer = await fetch(location.href, { method: "HEAD", cache: "no-store", redirect: "manual" }).catch(() => undefined);
  if (answer && ![502, 504].includes(answer.status)) location.reload();
}

async function show() {
  const store = new UnsentStore(user, conversation ?? "");
  const all = await store.everyOne();
  const here = all.filter(({ place }) => place === store.place);
  const list = document.getElementById("messages");
  list.replaceChildren(...here.map(({ text }) => Object.assign(document.createElement("li"), { textContent: text })));
  const others = all.length - here.length;
  const said = others === 1 ? "1 message for another conversation waits as well." : `${others} messages for other conversations wait as well.`;
  document.getElementById("elsewhere").textContent = others ? said : "";
  document.getElementById("waiting").hidden = !all.length;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = document.getElementById("text");
  const state = document.getElementById("state");
  try {
    await new UnsentStore(user, conversation).add({ id: uuid(), text: text.value.trim(), images: [] });
    text.value = "";
    state.textContent = "Your message is kept on this device.";
    await show();
  } catch (problem) {
    state.textContent = `Your message could not be kept: ${problem.message}`;
  }
});
document.getElementById("again").addEventListener("click", look);
addEventListener("online", look);
setInterval(look, TRY_MS);
form.hidden = !(user && conversation);
if (user) show().catch(console.warn);
