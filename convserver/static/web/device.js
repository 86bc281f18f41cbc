// This browser as a device: what it keeps for the time without a server, and whether it says what agents do.

const { user, home, worker, conversation } = document.body.dataset;
const WORDS = { waiting_for_confirmation: "Needs your approval", idle: "Done", finished: "Done", error: "Failed", stuck: "Stuck" };
const stood = new Map(); // the last known status of each conversation by its id

/** Keep a page for the time without a server; that page knows who was here last. */
export function keepShell() {
  localStorage.setItem("user", user);
  document.querySelector("form[data-log-out]")?.addEventListener("submit", () => localStorage.removeItem("user"));
  return navigator.serviceWorker.register(worker, { scope: home });
}

/** Say that an agent asks, or has ended, unless somebody looks at this window. */
export async function notify({ id, title, loop: { execution_status: status } }) {
  const before = stood.get(id);
  stood.set(id, status);
  if (before === undefined || before === status || !WORDS[status]) return;
  if (document.visibilityState === "visible" && document.hasFocus()) return;
  const there = await navigator.serviceWorker.ready;
  const address = new URL(conversation.replace("conversation_id", encodeURIComponent(id)), location.href).href;
  await there.showNotification(title, { body: WORDS[status], tag: id, data: address, icon: document.querySelector('link[rel="icon"]').href });
}
