// Uploads a file in pieces, each acknowledged with where the next one begins, and shows how far an import is.

import { csrf } from "./csrf.js";

const IMPORTS = "/api/native/imports";
const NO_ID = "0".repeat(32); // in the address of an import's page
const LOOK_MS = 1000;
const AGAIN_MS = [500, 1000, 2000, 4000, 8000, 8000, 8000, 8000];
const UNITS = ["bytes", "KB", "MB", "GB"];

const form = document.getElementById("import-form");
const run = document.getElementById("import-run");

const bytes = (count) => {
  let unit = 0;
  for (; count >= 1024 && unit < UNITS.length - 1; unit++) count /= 1024;
  return `${unit ? count.toFixed(1) : count} ${UNITS[unit]}`;
};

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

class Refused extends Error {}

/** Ask, again and again while the network or the server is away; throw Refused with what the server says. */
async function ask(path, { signal, waits = AGAIN_MS, ...options } = {}) {
  for (let tried = 0; ; tried++) {
    let answer;
    try {
      answer = await fetch(IMPORTS + path, { ...options, signal, headers: { "X-CSRFToken": csrf(), ...options.headers } });
    } catch (error) {
      if (signal?.aborted || tried >= waits.length) throw error;
    }
    if (answer && ((answer.status < 500 || answer.status === 507) && answer.status !== 429 || tried >= waits.length)) return told(answer);
    say("The connection is interrupted. Trying again…");
    await pause(waits[tried]);
  }
}

async function told(answer) {
  const body = answer.status === 204 ? {} : await answer.json().catch(() => ({}));
  if (answer.ok) return body;
  if (answer.status === 409 && "received" in body) return body; // where the next piece begins
  throw new Refused(body.detail ?? `The server answered with ${answer.status}.`);
}

function say(words) {
  document.getElementById("upload-words").textContent = words;
}

function complain(words) {
  const problem = document.getElementById("upload-problem");
  problem.hidden = !words;
  problem.textContent = words;
}

const begun = new Map(); // what this page has begun, by file and owner: its id

/** Return how the file is to be imported. */
function chosen() {
  const { format, labels, timezone } = form.elements;
  return {
    format: format.value,
    labels: labels.value.split(",").map((label) => label.trim()).filter(Boolean),
    timezone: timezone.value.trim() || "UTC",
  };
}

/** Return the import of this file that was begun before and not sent whole, or begin one. */
async function begin(file, signal) {
  const { owner } = form.elements;
  const listed = [...document.querySelectorAll("[data-upload]")].find(
    ({ dataset }) => dataset.name === file.name && Number(dataset.size) === file.size);
  const key = `${file.name}/${file.size}/${owner?.value}`;
  const id = listed?.dataset.upload ?? begun.get(key);
  if (id) {
    const known = await ask(`/${id}`, { signal }).catch((error) => {
      if (!(error instanceof Refused)) throw error; // it was removed meanwhile
    });
    if (known?.state === "uploading") return known;
  }
  const made = await ask("", {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({
      file_name: file.name,
      size: file.size,
      ...chosen(),
      ...(owner ? { owner: owner.value.trim() } : {}),
    }),
  });
  begun.set(key, made.id);
  return made;
}

async function upload(file, signal) {
  const bar = document.getElementById("upload-bar");
  const piece = Number(form.dataset.piece);
  say("Beginning…");
  const made = await begin(file, signal);
  let { received } = made;
  const began = performance.now();
  const before = received;
  while (received < file.size) {
    show();
    const body = file.slice(received, received + piece);
    const headers = { "Content-Type": "application/octet-stream" };
    const stored = await ask(`/${made.id}/pieces?offset=${received}`, { method: "PUT", body, signal, headers });
    if (stored.code && stored.received === received) throw new Refused(stored.detail);
    received = stored.received;
  }
  show();
  // What is chosen by now, which may be something else than when the upload was begun.
  const headers = { "Content-Type": "application/json" };
  await ask(`/${made.id}/start`, { method: "POST", signal, headers, body: JSON.stringify(chosen()) });
  return made.id;

  function show() {
    bar.value = (100 * received) / file.size;
    const rate = (received - before) / (performance.now() - began);
    const left = rate > 0 && received < file.size ? `, ${seconds((file.size - received) / rate / 1000)} left` : "";
    say(`${bytes(received)} of ${bytes(file.size)} uploaded${left}`);
  }
}

const seconds = (count) => (count < 90 ? `${Math.ceil(count)} s` : `${Math.ceil(count / 60)} min`);

function prepare() {
  form.elements.timezone.value = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  let under = null;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const file = form.elements.file.files[0];
    if (!file || under) return;
    complain("");
    if (!file.size) return complain("The file is empty.");
    if (file.size > Number(form.dataset.most)) return complain(`The file has ${bytes(file.size)}, and the limit is ${bytes(Number(form.dataset.most))}.`);
    under = new AbortController();
    document.getElementById("upload").hidden = false;
    form.querySelector("[type=submit]").disabled = true;
    try {
      const id = await upload(file, under.signal);
      removeEventListener("beforeunload", warn);
      location.assign(form.dataset.run.replace(NO_ID, id));
    } catch (error) {
      complain(under.signal.aborted
        ? "Cancelled. What was uploaded is kept for 24 hours: choose the file again to continue, or remove it from the list."
        : error instanceof Refused ? error.message : "The server cannot be reached. Choose “Upload and import” to go on where it stopped.");
      document.getElementById("upload").hidden = true;
      form.querySelector("[type=submit]").disabled = false;
      await list();
    } finally {
      under = null;
    }
  });
  document.getElementById("upload-cancel").addEventListener("click", () => under?.abort());
  addEventListener("beforeunload", warn);

  function warn(event) {
    if (under) event.preventDefault();
  }
}

/** Load the list again: what was begun is found there when the same file is chosen again. */
async function list() {
  const fresh = await load();
  const [old, now] = [document.getElementById("import-runs"), fresh?.getElementById("import-runs")];
  if (now && old) old.replaceWith(now);
  else if (now) form.closest("section").after(now.closest("section"));
}

async function load() {
  const answer = await fetch(location.href).catch(() => undefined);
  if (!answer?.ok) return undefined;
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

async function watch() {
  while ("open" in run.dataset) {
    await pause(LOOK_MS);
    const fresh = (await load())?.getElementById("import-run");
    if (!fresh) continue;
    if (!("open" in fresh.dataset)) {
      delete run.dataset.open;
      const button = document.getElementById("import-remove");
      button.textContent = button.dataset.ended;
      button.value = "forget";
    }
    run.replaceChildren(...fresh.childNodes);
  }
}

if (form) prepare();
if (run) watch();
