// What is looked at: the view and its parts. It stands in the fragment of the address, so that a link leads back to it.

export class State {
  /** `view`: the one to begin with. */
  constructor(view) {
    this.first = { view };
    this.values = { ...this.first };
    this.listeners = [];
    this.read();
    window.addEventListener("hashchange", () => {
      if (location.hash.slice(1) !== this.text()) {
        this.read();
        this.tell();
      }
    });
  }

  read() {
    this.values = { ...this.first, ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))) };
  }

  text() {
    return new URLSearchParams(
      Object.entries(this.values).filter(([, v]) => v !== "" && v !== null && v !== undefined),
    ).toString();
  }

  get(name, otherwise = "") {
    return this.values[name] ?? otherwise;
  }

  number(name, otherwise = -1) {
    const value = Number.parseInt(this.values[name], 10);
    return Number.isNaN(value) ? otherwise : value;
  }

  /** Change values and tell the views. `step`: a new entry of the browser's history, for a change of view. */
  set(changes, step = false) {
    Object.assign(this.values, changes);
    const address = `#${this.text()}`;
    try {
      if (step) history.pushState(null, "", address);
      else history.replaceState(null, "", address);
    } catch {
      /* a page inside a notebook has no address of its own */
    }
    this.tell();
  }

  listen(listener) {
    this.listeners.push(listener);
  }

  tell() {
    for (const listener of this.listeners) listener();
  }
}

window.addEventListener("popstate", () => window.dispatchEvent(new HashChangeEvent("hashchange")));
