// Where one is in the list: its filters stand in the page's address, its scroll place is kept by the tab.

const form = document.getElementById("filters");
const scroller = document.querySelector("#sidebar .scroll");
const home = new URL(document.body.dataset.home, location.href).pathname;

/** The filters that are set, as an address writes them. */
function filters() {
  // The order is kept by a cookie.
  const set = [...new FormData(form)].filter(([name, value]) => value && name !== "order");
  return new URLSearchParams(set).toString();
}

/** Return an address with the filters: the first page has them as they are, every other page as one value. */
function withFilters(address) {
  const url = new URL(address, location.href);
  const text = filters();
  if (url.pathname === home) url.search = text;
  else if (text) url.searchParams.set("list", text);
  else url.searchParams.delete("list");
  return url.href;
}

const key = () => `list place ${filters()}`;

function save() {
  if (!scroller.clientHeight) return; // not shown on this page
  try {
    sessionStorage.setItem(key(), scroller.scrollTop);
  } catch {
    // Where storage is denied the list begins at its top.
  }
}

function kept() {
  try {
    return Number(sessionStorage.getItem(key()));
  } catch {
    return 0;
  }
}

/** Go back to the place, fetching the rows up to it; the row of this page's conversation is in view in any case. */
function restore() {
  const top = kept();
  const step = () => {
    scroller.scrollTop = top;
    const isThere = scroller.scrollTop >= top - 1 || !scroller.querySelector("#rows > .more");
    if (isThere) stop();
  };
  const stop = () => {
    document.removeEventListener("htmx:afterSettle", step);
    scroller.querySelector(".open[aria-current]")?.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("htmx:afterSettle", step);
  for (const sign of ["wheel", "pointerdown", "keydown"]) addEventListener(sign, () => document.removeEventListener("htmx:afterSettle", step), { once: true, capture: true });
  step();
}

function carry({ target }) {
  const link = target.closest?.("#sidebar .open, #sidebar > header .button, a.back");
  if (link) link.href = withFilters(link.href);
}

if (form && scroller) {
  for (const sign of ["click", "auxclick", "contextmenu"]) document.addEventListener(sign, carry, true);
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (detail.elt !== form || !detail.successful) return;
    history.replaceState(history.state, "", withFilters(location.href));
    scroller.scrollTop = 0;
  });
  form.querySelector("[data-clear]").addEventListener("click", (click) => {
    click.preventDefault();
    for (const field of form.querySelectorAll("input, select:not([name=order])")) field.type === "checkbox" ? (field.checked = false) : (field.value = "");
    form.requestSubmit();
  });
  addEventListener("pagehide", save);
  addEventListener("pageshow", ({ persisted }) => persisted && restore());
  restore();
}
