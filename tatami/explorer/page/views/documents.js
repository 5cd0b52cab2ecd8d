// The document of a stage as text to edit: the server's verifier refuses it, or the page shows what became of it.

import { ask, saveFile } from "../ask.js";
import { read } from "../data.js";
import { choice, el, say, show } from "../dom.js";
import { TextEditor } from "../editor.js";
import { acceptance, refusal } from "./changes.js";

const DECISIONS = "decisions";
const FIRST = ["plan", "frontend"]; // the document that is shown at first: a page from a later stage has no plan

export class DocumentsView {
  constructor(app) {
    this.app = app;
    this.open = new Map(); // name -> { text: as it came, file, edited }
    this.shown = "";
    this.busy = false;
    this.editor = new TextEditor(
      "document",
      () => this.changed(),
      () => this.compile(),
    );
    this.tools = el("div", { class: "tools" });
    this.answer = el("div", { class: "answer", role: "region", "aria-label": "answer", "aria-live": "polite", tabindex: "0" });
    this.node = el(
      "section",
      { class: "view documents", "aria-label": "edit a document" },
      this.tools,
      el("div", { class: "split" }, this.editor.node, this.answer),
    );
    this.makeTools();
    window.addEventListener("beforeunload", (e) => {
      if (this.isEdited()) e.preventDefault();
    });
  }

  names() {
    return [...this.app.page.stages.map((s) => s.name).filter((n) => n !== "source"), DECISIONS];
  }

  makeTools() {
    const button = (text, act, title) => el("button", { onclick: act, title, disabled: true }, text);
    this.pick = choice(
      "document",
      this.names().map((n) => [n, n]),
      "",
      (n) => this.app.state.set({ document: n }),
    );
    this.status = el("span", { class: "quiet" });
    this.search = el("input", {
      type: "search",
      placeholder: "find",
      "aria-label": "find in the document",
      onkeydown: (e) => {
        if (e.key !== "Enter") return;
        e.preventDefault();
        const found = this.editor.find(e.target.value);
        e.target.classList.toggle("none", !found);
        if (!found) say(`nothing in ${this.shown} has ${e.target.value}`);
      },
    });
    this.buttons = {
      compile: button("check and compile", () => this.compile(), "Ctrl+Enter in the text"),
      undo: button("undo edits", () => this.undo(), "back to the document as it came"),
      whole: button("save document", () => this.save(), "with constants and earlier stages inside: it restarts alone"),
      text: button("save text", () => saveFile(this.now().file, this.editor.text), "as it stands: for the folder of a dump"),
    };
    show(
      this.tools,
      this.pick,
      this.status,
      this.search,
      el("span", { class: "grow" }),
      Object.values(this.buttons),
    );
  }

  now() {
    return this.open.get(this.shown);
  }

  isEdited() {
    if (this.now()) this.now().edited = this.editor.text;
    return [...this.open.values()].some((d) => d.edited !== d.text);
  }

  update() {
    const all = this.names();
    const wanted = this.app.state.get("document");
    const name = all.includes(wanted) ? wanted : FIRST.find((n) => all.includes(n)) ?? all[0];
    this.pick.value = name;
    if (name !== this.shown) this.show(name);
  }

  async show(name) {
    if (this.now()) this.now().edited = this.editor.text;
    this.shown = name;
    this.editor.text = "";
    this.editor.area.readOnly = true;
    this.enable();
    show(this.answer);
    if (!this.open.has(name)) {
      this.status.textContent = "reading …";
      const found = await this.asked({ ask: "document", stage: name });
      if (found?.document !== undefined && !found.faults?.length)
        this.open.set(name, { text: found.document, file: found.file, edited: found.document });
      if (this.shown !== name) return; // another one was chosen meanwhile
      if (!this.open.has(name)) {
        this.status.textContent = "";
        show(this.answer, this.told(found));
        return;
      }
    }
    this.editor.area.readOnly = false;
    this.editor.text = this.now().edited;
    this.changed();
    show(
      this.answer,
      el("h2", { class: "part" }, this.now().file),
      el(
        "p",
        { class: "quiet" },
        name === DECISIONS
          ? "What was decided in this compilation. An edit compiles the model with other decisions."
          : "The file of a dump. An edit restarts the compiler from this stage; constants and earlier stages stay as they are.",
      ),
      el("p", { class: "quiet" }, "Ctrl+Enter checks and compiles; F8 goes to the next fault. Nothing is run or written."),
    );
    const mark = this.app.state.get("find");
    if (mark) {
      this.app.state.set({ find: "" });
      this.editor.find(mark);
    }
  }

  changed() {
    const edited = this.now() && this.editor.text !== this.now().text;
    this.status.textContent = edited ? "edited" : `${this.editor.lines} lines`;
    this.enable();
  }

  enable() {
    const ready = Boolean(this.now()) && !this.busy;
    for (const b of Object.values(this.buttons)) b.disabled = !ready;
    this.buttons.undo.disabled ||= this.editor.text === this.now()?.text;
  }

  undo() {
    this.editor.text = this.now().text;
    this.changed();
    this.editor.area.focus();
  }

  /** The server's answer, or one that says why there is none. */
  async asked(request) {
    this.busy = true;
    this.enable();
    try {
      return await ask(request);
    } catch (error) {
      return { error: `no answer: ${error.message}` };
    } finally {
      this.busy = false;
      this.enable();
    }
  }

  told(found) {
    if (found.error) return el("p", { class: "fault", role: "alert" }, found.error);
    return refusal(found, (line) => this.editor.go(line));
  }

  async compile() {
    if (!this.now() || this.busy) return;
    const name = this.shown;
    show(this.answer, el("p", { class: "quiet" }, "compiling …"));
    const found = await this.asked({ ask: "stage", stage: name, text: this.editor.text });
    const page = found.page ? await read(found.page) : null;
    if (this.shown !== name) return;
    if (page) {
      this.editor.clearFaults();
      const names = page.stages.map((s) => s.name);
      const planned = name === DECISIONS || !names.includes("plan") || names.indexOf(name) < names.indexOf("plan");
      show(this.answer, acceptance(this.app, page, { notes: found.notes, planned }));
    } else {
      show(this.answer, this.told(found));
      const placed = (found.faults ?? []).flatMap((f, k) =>
        found.places?.[k] ? [[found.places[k].line, `${f.code} ${f.kind}: ${f.why}`]] : [],
      );
      this.editor.setFaults(placed);
    }
    say(this.answer.textContent.slice(0, 300));
  }

  async save() {
    const name = this.shown;
    const found = await this.asked({ ask: "save", stage: name, text: this.editor.text });
    if (found.document) {
      saveFile(found.file, found.document);
      say(`${found.file} is saved by the browser`);
    } else show(this.answer, this.told(found));
  }

  redraw() {
    this.editor.draw();
  }
}
