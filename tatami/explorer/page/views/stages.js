// Stages side by side: a line's origins and what became of it are marked in every open pane.

import { editsAddress } from "../ask.js";
import { choice, el, say, show } from "../dom.js";
import { LinePane } from "../lines.js";

const MOST_PANES = 4;

export class StagesView {
  constructor(app) {
    this.app = app;
    this.made = new Map();
    this.panes = [];
    this.row = el("div", { class: "panes" });
    this.status = el("p", { class: "status", id: "marked" });
    this.tools = el("div", { class: "tools" });
    this.node = el("section", { class: "view stages", "aria-label": "stages side by side" }, this.tools, this.row);
    this.shownPanes = "";
    this.shownThing = null;
  }

  names() {
    return this.app.page.stages.map((s) => s.name);
  }

  /** The stages that are open, from the address; at first the model, its Regions and the code. */
  open() {
    const all = this.names();
    const asked = this.app.state
      .get("panes")
      .split(",")
      .filter((n) => all.includes(n));
    if (asked.length) return asked.slice(0, MOST_PANES);
    const code = all.includes("cu") ? "cu" : all.includes("c") ? "c" : all[all.length - 1];
    return [...new Set(["frontend", "region", code].filter((n) => all.includes(n)))];
  }

  update() {
    const open = this.open();
    const key = open.join(",");
    if (key !== this.shownPanes) {
      this.shownPanes = key;
      this.build(open);
    }
    const thing = this.app.state.number("thing");
    if (thing !== this.shownThing) {
      this.shownThing = thing;
      this.mark(thing);
    }
  }

  build(open) {
    this.panes = open.map((name) => {
      const number = this.names().indexOf(name);
      if (!this.made.has(name)) {
        const stage = this.app.page.stages[number];
        this.made.set(name, new LinePane(name, stage.lines, (line) => this.pick(number, line)));
      }
      return this.made.get(name);
    });
    show(
      this.row,
      this.panes.map((pane, k) => this.frame(pane, k, open)),
    );
    const other = this.names().filter((n) => !open.includes(n));
    show(
      this.tools,
      el(
        "span",
        { class: "legend" },
        el("i", { class: "m-self" }),
        "chosen",
        el("i", { class: "m-origin" }),
        "it comes from",
        el("i", { class: "m-became" }),
        "became of it",
      ),
      this.status,
      el("span", { class: "grow" }),
      open.length < MOST_PANES && other.length
        ? choice("add a stage", [["", "+ stage"], ...other.map((n) => [n, n])], "", (n) => this.set([...open, n]))
        : "",
    );
    this.shownThing = null;
    requestAnimationFrame(() => this.panes.forEach((p) => p.draw()));
  }

  frame(pane, k, open) {
    const all = this.names();
    const search = el("input", {
      type: "search",
      placeholder: "find",
      "aria-label": `find in ${pane.name}`,
      onkeydown: (e) => {
        if (e.key !== "Enter") return;
        e.preventDefault();
        const found = pane.find(e.target.value, e.shiftKey);
        e.target.classList.toggle("none", !found);
        if (!found) say(`nothing in ${pane.name} has ${e.target.value}`);
      },
    });
    return el(
      "div",
      { class: "pane", role: "group", "aria-label": `stage ${pane.name}`, "data-stage": pane.name },
      el(
        "header",
        {},
        choice(
          `stage of pane ${k + 1}`,
          all.filter((n) => n === pane.name || !open.includes(n)).map((n) => [n, n]),
          pane.name,
          (n) => this.set(open.map((o) => (o === pane.name ? n : o))),
        ),
        this.check(pane),
        el("span", { class: "grow" }),
        search,
        editsAddress() && pane.name !== "source"
          ? el(
              "button",
              { title: "edit the document", onclick: () => this.edit(pane.name), "aria-label": `edit ${pane.name}` },
              "✎",
            )
          : "",
        el("button", { title: "fold all", onclick: () => pane.foldAll(true), "aria-label": `fold ${pane.name}` }, "⊟"),
        el("button", { title: "unfold all", onclick: () => pane.foldAll(false), "aria-label": `unfold ${pane.name}` }, "⊞"),
        open.length > 1
          ? el(
              "button",
              {
                title: "close",
                onclick: () => this.set(open.filter((o) => o !== pane.name)),
                "aria-label": `close ${pane.name}`,
              },
              "×",
            )
          : "",
      ),
      pane.node,
    );
  }

  /** The result of playback for a stage: a mark, which leads to the output that differs. */
  check(pane) {
    const found = (this.app.page.checks || []).find((c) => c.stage === pane.name);
    if (!found) return "";
    if (found.differs)
      return el(
        "button",
        {
          class: "differs",
          title: found.differs,
          onclick: () => {
            pane.find(found.output);
            say(found.differs);
          },
        },
        "✗ differs",
      );
    return el(
      "span",
      { class: "agrees", title: found.skipped || `relative error ${(found.error ?? 0).toExponential(1)}` },
      found.skipped ? "not run" : "✓ agrees",
    );
  }

  /** Edit the document of a stage, at the chosen thing if it is of that stage. */
  edit(name) {
    const thing = this.app.state.number("thing");
    const { stage, label } = this.app.page.things;
    const own = thing >= 0 && this.names()[stage[thing]] === name;
    this.app.state.set({ view: "edit", document: name, find: own ? `"${label[thing]}"` : "" }, true);
  }

  set(open) {
    this.app.state.set({ panes: open.join(",") });
  }

  pick(stage, line) {
    this.app.state.set({ thing: this.app.page.stages[stage].things[line] });
  }

  mark(thing) {
    const marks = this.app.links.marks(thing);
    const names = this.names();
    for (const pane of this.panes) pane.setMarks(marks[names.indexOf(pane.name)]);
    if (thing < 0) {
      show(
        this.status,
        el("span", { class: "quiet" }, "Choose a line: what it comes from and what became of it is marked in every pane."),
      );
      return;
    }
    const { stage, label } = this.app.page.things;
    const total = marks.reduce((n, m) => n + m.size, 0);
    show(
      this.status,
      el("b", {}, label[thing]),
      ` of ${names[stage[thing]]}: ${total} lines in ${marks.filter((m) => m.size).length} stages `,
      el("button", { class: "plain", onclick: () => this.app.state.set({ thing: "" }) }, "clear"),
    );
    say(this.status.textContent);
  }

  redraw() {
    for (const pane of this.panes) pane.draw();
  }
}
