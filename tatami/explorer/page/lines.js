// A pane of text: thousands of lines, of which those in sight are elements. Lines are marked, folded by indentation and searched.

import { el } from "./dom.js";
import { languageOf, span } from "./colours.js";

const EXTRA = 20; // lines drawn above and below those in sight

let panes = 0;

export class LinePane {
  /** `pick(line)` is called when a line is chosen. */
  constructor(name, lines, pick) {
    this.name = name;
    this.lines = lines;
    this.pick = pick;
    this.language = languageOf(name);
    this.id = `pane${panes++}`;
    this.marks = new Map();
    this.differs = new Set();
    this.folded = new Set();
    this.rows = new Map();
    this.active = 0;
    this.sheet = el("div", { class: "sheet" });
    this.ruler = el("canvas", {
      class: "ruler",
      "aria-hidden": "true",
      onclick: (e) => this.scrollToShare(e.offsetY / this.ruler.clientHeight),
    });
    this.box = el(
      "div",
      {
        class: "lines",
        role: "listbox",
        tabindex: "0",
        "aria-label": `lines of ${name}`,
        onscroll: () => this.draw(),
        onkeydown: (e) => this.key(e),
        onclick: (e) => this.click(e),
      },
      this.sheet,
    );
    this.node = el("div", { class: "line-pane" }, this.box, this.ruler);
    this.refold();
    new ResizeObserver(() => {
      this.measure();
      if (this.waits && this.box.clientHeight) this.bringMark();
      this.draw();
    }).observe(this.box);
  }

  measure() {
    const probe = el("div", { class: "line" }, "0");
    this.sheet.append(probe);
    this.height = probe.getBoundingClientRect().height || 18;
    probe.remove();
    this.sheet.style.height = `${this.shown.length * this.height}px`;
  }

  /** Work out which lines can fold, and which are shown. */
  refold() {
    if (!this.ends) {
      this.ends = new Map();
      const stack = [];
      const depth = (text) => (text.trim() ? text.length - text.trimStart().length : null);
      let last = 0;
      this.lines.forEach((text, k) => {
        const d = depth(text);
        if (d === null) return;
        while (stack.length && stack[stack.length - 1][1] >= d) {
          const [start] = stack.pop();
          if (last > start + 1) this.ends.set(start, last);
        }
        stack.push([k, d]);
        last = k;
      });
      for (const [start] of stack) if (last > start + 1) this.ends.set(start, last);
    }
    this.shown = [];
    for (let k = 0; k < this.lines.length; k++) {
      this.shown.push(k);
      if (this.folded.has(k)) k = this.ends.get(k);
    }
    this.width = this.lines.reduce((most, text) => Math.max(most, text.length), 0);
    this.sheet.style.minWidth = `${this.width + 8}ch`;
    if (this.height) this.sheet.style.height = `${this.shown.length * this.height}px`;
  }

  fold(line) {
    if (!this.ends.has(line)) return;
    if (!this.folded.delete(line)) this.folded.add(line);
    this.refold();
    this.draw();
  }

  foldAll(fold) {
    this.folded = new Set(fold ? this.ends.keys() : []);
    this.refold();
    this.box.scrollTop = 0;
    this.draw();
  }

  draw() {
    if (!this.height) this.measure();
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.height) - EXTRA);
    const last = Math.min(this.shown.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / this.height) + EXTRA);
    const wanted = new Set(this.shown.slice(first, last));
    for (const [k, row] of this.rows)
      if (!wanted.has(k)) {
        row.remove();
        this.rows.delete(k);
      }
    for (let place = first; place < last; place++) this.row(place);
    this.box.setAttribute("aria-activedescendant", this.rows.has(this.active) ? `${this.id}-${this.active}` : "");
    this.drawRuler();
  }

  /** Make or update the element of a line; one that is in sight stays the same element, so that a click or a selection lasts. */
  row(place) {
    const k = this.shown[place];
    const mark = this.marks.get(k);
    const shut = this.folded.has(k);
    let row = this.rows.get(k);
    if (row && row.dataset.shut !== String(shut)) {
      row.remove();
      row = undefined;
    }
    if (!row) {
      const can = this.ends.has(k);
      row = el(
        "div",
        { role: "option", id: `${this.id}-${k}`, "data-line": k, "data-shut": String(shut) },
        el("span", { class: "gutter", "aria-hidden": "true" }, k + 1),
        el("span", { class: `fold${can ? " can" : ""}`, "aria-hidden": "true" }, can ? (shut ? "▸" : "▾") : ""),
        el(
          "span",
          { class: "code", ...(this.lines[k].trim() ? {} : { role: "img", "aria-label": "empty line" }) },
          span(this.lines[k], this.language),
          shut ? el("span", { class: "cut" }, ` … ${this.ends.get(k) - k} lines`) : "",
        ),
      );
      this.rows.set(k, row);
      this.sheet.append(row);
    }
    row.className = ["line", mark && `m-${mark}`, k === this.active && "active", this.differs.has(k) && "differs"]
      .filter(Boolean)
      .join(" ");
    row.setAttribute("aria-selected", mark === "self");
    row.style.top = `${place * this.height}px`;
  }

  drawRuler() {
    const c = this.ruler;
    const high = c.clientHeight;
    c.width = 10;
    c.height = Math.max(1, high);
    const pen = c.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const total = Math.max(1, this.lines.length);
    const put = (line, colour) => {
      pen.fillStyle = colour;
      pen.fillRect(0, (line / total) * high, 10, Math.max(2, high / total));
    };
    for (const k of this.differs) put(k, style.getPropertyValue("--differs"));
    for (const [k, mark] of this.marks) put(k, style.getPropertyValue(`--${mark}-line`));
  }

  scrollToShare(share) {
    this.box.scrollTop = share * this.sheet.offsetHeight - this.box.clientHeight / 2;
  }

  /** Mark lines; bring the first mark into sight if none is. */
  setMarks(marks, bring = true) {
    this.marks = marks;
    const order = [...marks.keys()].sort((a, b) => a - b);
    this.order = order;
    this.waits = bring && order.length > 0; // a pane that has no place yet brings its mark once it has one
    if (this.waits && this.box.clientHeight) this.bringMark();
    this.draw();
  }

  bringMark() {
    this.waits = false;
    const top = this.box.scrollTop / this.height;
    const seen = this.box.clientHeight / this.height;
    const self = this.order.find((k) => this.marks.get(k) === "self");
    const inSight = (k) => {
      const p = this.placeOf(k);
      return p >= top && p <= top + seen - 1;
    };
    if (self !== undefined ? !inSight(self) : !this.order.some(inSight)) this.bring(self ?? this.order[0]);
  }

  placeOf(line) {
    let low = 0,
      high = this.shown.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.shown[mid] < line) low = mid + 1;
      else high = mid;
    }
    return low;
  }

  activePlace() {
    return this.placeOf(this.active);
  }

  /** Bring a line into sight, opening what folds it away. */
  bring(line) {
    for (const start of [...this.folded]) if (start < line && line <= this.ends.get(start)) this.folded.delete(start);
    this.refold();
    if (!this.height) this.measure();
    this.box.scrollTop = this.placeOf(line) * this.height - this.box.clientHeight / 3;
    this.draw();
  }

  click(event) {
    const row = event.target.closest("[data-line]");
    if (!row) return;
    const line = Number(row.dataset.line);
    this.active = line;
    if (event.target.classList.contains("fold")) this.fold(line);
    else this.pick(line);
  }

  go(line) {
    this.active = line;
    const place = this.activePlace();
    const top = place * this.height;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + this.height > this.box.scrollTop + this.box.clientHeight)
      this.box.scrollTop = top + this.height - this.box.clientHeight;
    this.draw();
  }

  key(event) {
    const place = this.activePlace();
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 1);
    const to = (p) => this.go(this.shown[Math.min(Math.max(0, p), this.shown.length - 1)]);
    const next = (order) => order !== undefined && this.go(order);
    const act = {
      ArrowDown: () => to(place + 1),
      ArrowUp: () => to(place - 1),
      PageDown: () => to(place + page),
      PageUp: () => to(place - page),
      Home: () => to(0),
      End: () => to(this.shown.length - 1),
      Enter: () => this.pick(this.active),
      " ": () => this.pick(this.active),
      f: () => this.fold(this.active),
      n: () => next((this.order || []).find((k) => k > this.active)),
      p: () => next((this.order || []).findLast((k) => k < this.active)),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  /** The next line from the active one on that holds the text, made active; false if none does. */
  find(text, back = false) {
    const low = text.toLowerCase();
    const total = this.lines.length;
    for (let i = 1; i <= total; i++) {
      const k = (this.active + (back ? -i : i) + total * 2) % total;
      if (this.lines[k].toLowerCase().includes(low)) {
        this.bring(k);
        this.go(k);
        return true;
      }
    }
    return false;
  }
}
