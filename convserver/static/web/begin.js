// The first message of a conversation that does not exist yet.

import { BackOff } from "./back_off.js";
import { Composer } from "./composer.js";
import { csrf } from "./csrf.js";
import { UnsentStore } from "./unsent_store.js";
import { uuid } from "./uuid.js";

const RETRY_MS = 3000; // after the first failure
const ANSWER_MS = 30_000;
const POST_MS = 120_000; // of megabytes
const KEPT_MS = 5_000; // a browser that does not say so by then has kept nothing

const form = document.getElementById("composer");
const { user, conversation } = document.body.dataset;
const id = form.elements.id.value;
const composer = new Composer(form, { user, id: "", ready: create, onSend: begin });
if (!document.querySelector("[data-undo] [autofocus]")) composer.focus(); // what was just deleted can be undone by a key
addEventListener("pageshow", ({ persisted }) => persisted && location.reload()); // its conversation has begun

/** Make the conversation, trying until it is there, and return its id: what was written stays in the box so long. */
async function create() {
  composer.note("Starting…");
  let again;
  const tries = new BackOff(() => again(), RETRY_MS);
  const rest = () => {
    tries.failed();
    return new Promise((over) => (again = over));
  };
  for (let problem; (problem = await problemOfCreating()); await rest()) composer.note(problem);
  return id;
}

async function problemOfCreating() {
  try {
    const answer = await ask("", { id, temporary: form.elements.temporary.checked }, ANSWER_MS);
    if (answer.ok || answer.status === 409) return await problemOfChoosing(); // made by an earlier try
    if (answer.status === 401) return "You have been logged out. Your message is kept here.";
    return `The server returned an error (${answer.status}). Retrying…`;
  } catch {
    return "Can't reach the server. Your message is kept here and will be sent when the server is back.";
  }
}

/** Choose the agent and the model, if the form does. */
async function problemOfChoosing() {
  const { agent, model } = form.elements;
  const options = { agent: agent.value, model: model.value.trim() };
  if (!options.agent && !options.model) return undefined;
  const answer = await ask(`/${id}/options`, options, ANSWER_MS, "PATCH");
  if (answer.ok) return undefined;
  const { detail } = await answer.json();
  return detail;
}

function ask(what, body, wait, method = "POST") {
  return fetch(`/api/native/conversations${what}`, {
    method,
    headers: { "Content-Type": "application/json", "X-CSRFToken": csrf() },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(wait),
  });
}

/** Keep the message like any that is on its way: the conversation's page sends it until it is stored. */
async function begin(said) {
  const message = { ...said, id: uuid() };
  try {
    await keep(message).catch(() => post(message));
    location.assign(conversation.replace("conversation_id", id));
  } catch (problem) {
    document.dispatchEvent(new CustomEvent("take-back", { detail: message }));
    composer.note(`Your message could not be sent: ${problem.message}`);
  }
}

function keep(message) {
  const late = new Promise((_, refuse) => setTimeout(refuse, KEPT_MS));
  return Promise.race([new UnsentStore(user, id).add(message), late]);
}

/** Send it from here; under its id it is stored once, should the browser have kept it after all. */
async function post({ id: message, text, images, files }) {
  composer.note("Sending…");
  const answer = await ask(`/${id}/events`, { type: "message", id: message, text, images, files }, POST_MS);
  if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
}
