// What this device keeps of a draft while the server cannot be reached, and of what another one wrote.

export class Mirror {
  constructor(user, id) {
    this.draftKey = `draft ${user} ${id}`;
    this.copyKey = `draft copy ${user} ${id}`;
  }

  get draft() {
    return read(this.draftKey);
  }

  /** Keep it; where images or files are too large for a browser's storage, the rest, marked as partial. */
  set draft(draft) {
    const isNothing = !draft.text && !draft.images.length && !draft.files?.length && !draft.isDirty;
    const isKept = !isNothing && (write(this.draftKey, draft) || write(this.draftKey, { ...draft, images: [], files: [], isPartial: true }));
    if (!isKept) remove(this.draftKey); // an older one would win at the next load
  }

  get copy() {
    return read(this.copyKey);
  }

  set copy(copy) {
    if (copy) write(this.copyKey, copy);
    else remove(this.copyKey);
  }
}

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? undefined;
  } catch {
    return undefined;
  }
}

function remove(key) {
  try {
    localStorage.removeItem(key);
  } catch {
    // Where storage is denied there is nothing.
  }
}

function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
