// What every page with the list has.

import "./composing.js";
import "./toasts.js";
import "./copy_controls.js";
import "./csrf.js";
import "./keys.js";
import "./list.js";
import "./menus.js";
import "./dialogs.js";

if (navigator.serviceWorker) addEventListener("load", () => import("./device.js").then((it) => it.keepShell()).catch(console.warn));
