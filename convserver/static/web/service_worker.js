// Between the pages and the network: while the server is away, one page of this device is there. Answers with
// anybody's data are never kept.

const KEPT = "offline";
const PAGE = "offline"; // beside this script
const STATIC = new URL("../static/web/", location).href;
const NAMED = new RegExp('<(?:link|script)[^>]*?(?:href|src)="([^"]+)"', "g");
const AWAY = [502, 504]; // what a proxy says without the server behind it

let isAway = false; // the last page could not be loaded, so that what it needs is taken from here

self.addEventListener("install", (event) => event.waitUntil(keep().then(() => self.skipWaiting())));
self.addEventListener("activate", (event) => event.waitUntil(self.registration.navigationPreload?.enable()));

/** Keep the page and all that it names. */
async function keep() {
  const page = await fetch(PAGE, { cache: "reload", credentials: "omit" });
  if (!page.ok) throw new Error(`${PAGE}: ${page.status}`);
  const html = await page.clone().text();
  const named = [...html.matchAll(NAMED)].map(([, address]) => new URL(address, page.url).href);
  const cache = await caches.open(KEPT);
  for (const request of await cache.keys()) await cache.delete(request);
  await cache.put(PAGE, page);
  await cache.addAll(named.map((address) => new Request(address, { cache: "reload" })));
}

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET") return;
  if (request.mode === "navigate" && request.destination === "document") event.respondWith(page(event));
  else if (isAway && request.url.startsWith(STATIC)) event.respondWith(fetch(request).catch(() => kept(request)));
});

async function page({ request, preloadResponse }) {
  try {
    const answer = (await preloadResponse) ?? (await fetch(request));
    isAway = AWAY.includes(answer.status);
    return isAway ? kept(PAGE) : answer;
  } catch {
    isAway = true;
    return kept(PAGE);
  }
}

async function kept(request) {
  return (await (await caches.open(KEPT)).match(request, { ignoreVary: true })) ?? Response.error();
}

// A notification leads to its conversation, in a window that is there if there is one.
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data));
});

async function open(address) {
  const windows = await self.clients.matchAll({ type: "window" });
  const there = windows.find(({ url }) => url.split("#")[0] === address) ?? windows[0];
  if (!there) return self.clients.openWindow(address);
  await there.focus();
  if (there.url.split("#")[0] !== address) await there.navigate(address);
}
