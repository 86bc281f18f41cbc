// What every page with the list has.

import "./toasts.js";
import "./copy.js";
import "./csrf.js";
import "./keys.js";
import "./list.js";
import "./dialogs.js";
