// What the palette can do here: pages to go to, and what can be done with the conversation in front.

import { conversationAddress, go } from "./addresses.js";
import { copy } from "./clipboard.js";
import { chooseTheme } from "./theme.js";

const THEMES = { light: "Light theme", dark: "Dark theme", "": "System theme" };

/** All commands that can be given on this page now: {title, words, key, run}. */
export function commands(addresses) {
  return [...steering(), ...actions(), ...places(addresses), ...exports(), ...copies(), ...themes(addresses), ...rest()];
}

function places({ settings, admin }) {
  const { home, new: begin, search, deleted } = document.body.dataset;
  return [
    { title: "New conversation", words: "begin start chat", key: "n", run: () => go(begin) },
    { title: "All conversations", words: "home list", run: () => go(home) },
    { title: "Search all messages", words: "find text events", key: "f", run: () => go(search) },
    { title: "Deleted conversations", words: "trash restore undelete bin", run: () => go(deleted) },
    { title: "Settings", words: "model key tools mcp secrets tokens password account appearance", run: () => go(settings) },
    ...(admin ? [{ title: "Admin", words: "operator users", run: () => go(admin) }] : []),
  ];
}

function themes({ theme: address }) {
  const now = document.documentElement.dataset.theme ?? "";
  const others = Object.entries(THEMES).filter(([name]) => name !== now);
  return others.map(([name, title]) => ({ title, words: "appearance mode", run: () => chooseTheme(name, { address }) }));
}

function rest() {
  const logOut = document.querySelector("form[data-log-out]");
  return [
    { title: "Keyboard shortcuts", words: "help keys", key: "?", run: () => document.dispatchEvent(new CustomEvent("open-dialog", { detail: "help" })) },
    ...(logOut ? [{ title: "Log out", words: "sign out leave end", run: () => logOut.requestSubmit() }] : []),
  ];
}

/** What the page itself offers for the conversation in front, by its own buttons and links. */
const steering = () => offered(".controls button", ".next button", ".approval button");
const exports = () => offered(".menu .items > a");

function actions() {
  const rename = offered(".menu .rename button").map((command) => ({ ...command, words: "title name", run: askTitle }));
  return [...rename, ...offered(".menu .buttons button")];
}

/** A new name has to be typed: show where. */
function askTitle() {
  const menu = document.querySelector("#conversation .menu");
  menu.open = true;
  const field = menu.querySelector(".rename input");
  field.focus();
  field.select();
}

function offered(...places) {
  const all = () => [...document.querySelectorAll(places.map((place) => `#conversation ${place}`).join())].filter(isOffered);
  return all().map((control) => ({
    title: titleOf(control),
    words: control.title,
    key: keyOf(control),
    run: () => (control.isConnected ? control : all().find((each) => titleOf(each) === titleOf(control)))?.click(), // a menu may be a new one
  }));
}

function copies() {
  const id = document.getElementById("conversation")?.dataset.id;
  if (!id) return [];
  const link = new URL(conversationAddress(id), location.href).href;
  return [
    { title: "Copy link to conversation", words: "url address", run: () => copied(link, "Link copied") },
    { title: "Copy conversation ID", words: "clipboard", run: () => copied(id, "ID copied") },
  ];
}

function isOffered(control) {
  const isHidden = control.hidden || control.closest("[hidden]");
  return !isHidden && !control.disabled && control.textContent.trim();
}

const titleOf = (control) => control.textContent.trim();

const keyOf = (control) => /\((.)\)$/.exec(control.title)?.[1];

async function copied(text, words) {
  if (await copy(text)) document.dispatchEvent(new CustomEvent("toast", { detail: words }));
}
