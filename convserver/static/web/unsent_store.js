// What was sent and not stored yet: it survives a reload and a crash, and goes out in order, once.

const DATABASE = "convserver";
const STORE = "outgoing";

function opened() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => {
      const store = request.result.createObjectStore(STORE, { keyPath: "order", autoIncrement: true });
      store.createIndex("place", "place");
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** The messages of one user for one conversation, the oldest first. */
export class UnsentStore {
  constructor(user, conversation) {
    this.place = `${user} ${conversation}`;
  }

  /** Do something with the store; resolved once that is on the disk, with the last request's result. */
  async within(mode, act) {
    const transaction = await this.begin(mode).catch(() => this.begin(mode));
    const request = act(transaction.objectStore(STORE));
    return new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = () => reject(transaction.error ?? request.error);
    });
  }

  /** Begin a transaction; what is closed by now is opened anew the next time. */
  async begin(mode) {
    try {
      this.database ??= opened();
      return (await this.database).transaction(STORE, mode, { durability: "strict" });
    } catch (problem) {
      this.database = undefined;
      throw problem;
    }
  }

  /** Keep a message. */
  add(message) {
    return this.within("readwrite", (store) => store.add({ ...message, place: this.place }));
  }

  all() {
    return this.within("readonly", (store) => store.index("place").getAll(this.place));
  }

  /** The messages of the user for all conversations. */
  everyOne() {
    const first = `${this.place.split(" ")[0]} `;
    return this.within("readonly", (store) => store.index("place").getAll(IDBKeyRange.bound(first, `${first}\uffff`)));
  }

  /** Note why the server does not store it: it is not sent again unasked. */
  refuse(id, refusal) {
    return this.change(id, (store, message) => store.put({ ...message, refusal }));
  }

  remove(id) {
    return this.change(id, (store, { order }) => store.delete(order));
  }

  async change(id, act) {
    const message = (await this.all()).find((kept) => kept.id === id);
    if (message) await this.within("readwrite", (store) => act(store, message));
  }
}
