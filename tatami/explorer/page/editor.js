// An editor of a text: a text area with numbered lines, of which those with a fault are marked.

import { el, say, show } from "./dom.js";

const ROW = 18; // pixels of a line; the style sheet says the same
const ABOVE = 6; // pixels above the first line

export class TextEditor {
  /** `changed()` is called after every edit, `send()` for Ctrl+Enter. */
  constructor(label, changed, send) {
    this.faults = new Map(); // line -> text
    this.lines = 1;
    this.gutter = el("div", { class: "numbers", "aria-hidden": "true" });
    this.bars = el("div", { class: "bars", "aria-hidden": "true" });
    this.area = el("textarea", {
      "aria-label": label,
      wrap: "off",
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
      onscroll: () => this.draw(),
      oninput: () => {
        this.count();
        this.clearFaults();
        changed();
      },
      onkeydown: (e) => {
        if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) send();
        else if (e.key === "F8") this.nextFault(e.shiftKey);
        else return;
        e.preventDefault();
      },
    });
    this.node = el("div", { class: "editor" }, this.gutter, el("div", { class: "sheet-of-text" }, this.bars, this.area));
    new ResizeObserver(() => this.draw()).observe(this.area);
  }

  get text() {
    return this.area.value;
  }

  set text(value) {
    this.area.value = value;
    this.area.setSelectionRange(0, 0);
    this.area.scrollTop = this.area.scrollLeft = 0;
    this.count();
    this.clearFaults();
  }

  count() {
    const text = this.area.value;
    let lines = 1;
    for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines++;
    this.lines = lines;
    this.draw();
  }

  clearFaults() {
    this.faults = new Map();
    this.area.removeAttribute("aria-invalid");
    this.draw();
  }

  /** Mark lines with faults, [line, text] each, and bring the first into sight. */
  setFaults(faults) {
    this.faults = new Map(faults);
    if (this.faults.size) {
      this.area.setAttribute("aria-invalid", "true");
      this.go(Math.min(...this.faults.keys()));
    } else this.clearFaults();
  }

  draw() {
    const top = this.area.scrollTop;
    const first = Math.max(0, Math.floor((top - ABOVE) / ROW));
    const last = Math.min(this.lines, Math.ceil((top + this.area.clientHeight) / ROW));
    const place = (line) => `top: ${ABOVE + line * ROW - top}px`;
    const numbers = [];
    for (let line = first; line < last; line++)
      numbers.push(el("div", { class: this.faults.has(line) ? "bad" : "", style: place(line) }, line + 1));
    show(this.gutter, numbers);
    show(
      this.bars,
      [...this.faults].map(([line]) => el("div", { class: "bad", style: place(line) })),
    );
  }

  /** [start, end] of a line in the text. */
  range(line) {
    const text = this.area.value;
    let start = 0;
    for (let k = 0; k < line; k++) {
      const end = text.indexOf("\n", start);
      if (end < 0) break;
      start = end + 1;
    }
    const end = text.indexOf("\n", start);
    return [start, end < 0 ? text.length : end];
  }

  /** Put the cursor on a line and bring it into sight. */
  go(line) {
    const [start, end] = this.range(line);
    const indent = this.area.value.slice(start, end).search(/\S/);
    this.select(start + Math.max(0, indent), start + Math.max(0, indent), line);
  }

  select(start, end, line) {
    this.area.focus({ preventScroll: true });
    this.area.setSelectionRange(start, end);
    this.area.scrollTop = ABOVE + line * ROW - this.area.clientHeight / 3;
    this.area.scrollLeft = 0;
    this.draw();
    if (this.faults.has(line)) say(`line ${line + 1}: ${this.faults.get(line)}`);
  }

  lineOf(offset) {
    return this.area.value.slice(0, offset).split("\n").length - 1;
  }

  nextFault(back) {
    const order = [...this.faults.keys()].sort((a, b) => a - b);
    if (!order.length) return;
    const now = this.lineOf(this.area.selectionStart);
    const next = back ? order.findLast((l) => l < now) : order.find((l) => l > now);
    this.go(next ?? (back ? order[order.length - 1] : order[0]));
  }

  /** Select the next place of a text after the cursor; false if there is none. */
  find(text) {
    const all = this.area.value;
    const at = all.indexOf(text, this.area.selectionEnd);
    const found = at >= 0 ? at : all.indexOf(text);
    if (!text || found < 0) return false;
    this.select(found, found + text.length, this.lineOf(found));
    return true;
  }
}
