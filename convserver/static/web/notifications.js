// Whether this device says that an agent asks or has ended.

/** Show the choice, and hold what is chosen in this browser. */
export function offer(card) {
  const box = card.querySelector("input");
  const said = card.querySelector("[role=status]");
  card.hidden = false;
  box.checked = Boolean(localStorage.notify) && Notification.permission === "granted";
  box.addEventListener("change", async () => {
    const isAllowed = box.checked && (await Notification.requestPermission()) === "granted";
    said.textContent = box.checked && !isAllowed ? "This browser doesn't allow notifications of this site. Allow them in its settings, then try again." : "";
    box.checked = isAllowed;
    if (isAllowed) localStorage.notify = "yes";
    else delete localStorage.notify;
  });
}
