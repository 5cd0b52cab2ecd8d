// Two compilations side by side: another page is opened from a file, and nothing leaves the machine.

import { choice, el, say, show, table } from "../dom.js";
import { read } from "../data.js";
import { differing } from "../diff.js";
import { nameOf, timeOf } from "../figures.js";
import { LinePane } from "../lines.js";
import { seconds } from "../numbers.js";

export class CompareView {
  constructor(app) {
    this.app = app;
    this.node = el("section", { class: "view compare", "aria-label": "compare" });
    this.other = null;
    this.file = "";
    this.fault = "";
    this.shown = null;
  }

  update() {
    const key = `${this.app.state.get("stage")}|${this.file}|${this.other ? 1 : 0}|${this.fault}`;
    if (key === this.shown) return;
    this.shown = key;
    const pick = el(
      "span",
      { class: "file" },
      el("input", { type: "file", id: "other", accept: ".html", onchange: (e) => this.open(e.target.files[0]) }),
      el("label", { for: "other" }, this.other ? "choose another page …" : "choose a page …"),
    );
    if (!this.other) {
      show(
        this.node,
        el(
          "div",
          { class: "empty" },
          el("h2", {}, "Compare with another page"),
          el(
            "p",
            {},
            "Choose a page that tatami explore wrote: the same model before an edit, for another target, or of another revision. It is read in the browser.",
          ),
          el("p", {}, pick),
          this.fault ? el("p", { class: "fault", role: "alert" }, this.fault) : "",
        ),
      );
      return;
    }
    const one = this.app.page,
      two = this.other;
    const both = one.stages.filter((s) => two.stages.some((t) => t.name === s.name)).map((s) => s.name);
    const changed = new Map(both.map((n) => [n, this.sets(n)]));
    const name = both.includes(this.app.state.get("stage"))
      ? this.app.state.get("stage")
      : (both.find((n) => changed.get(n)[0].size + changed.get(n)[1].size) ?? both[0]);
    const titles = this.titles();
    const panes = [one, two].map((page, k) => {
      const pane = new LinePane(name, page.stages.find((s) => s.name === name).lines, () => {});
      pane.differs = changed.get(name)[k];
      return el(
        "div",
        { class: "pane" },
        el(
          "header",
          {},
          el("b", {}, titles[k]),
          el("span", { class: "quiet" }, ` ${pane.differs.size} of ${pane.lines.length} lines differ`),
        ),
        pane.node,
      );
    });
    show(
      this.node,
      el(
        "div",
        { class: "tools" },
        choice(
          "stage to compare",
          both.map((n) => [n, `${n} (${changed.get(n)[0].size + changed.get(n)[1].size})`]),
          name,
          (n) => this.app.state.set({ stage: n }),
        ),
        el("span", { class: "grow" }),
        pick,
      ),
      this.kernels(one, two),
      el("div", { class: "panes" }, panes),
    );
    say(`${changed.get(name)[0].size} lines of ${name} differ`);
  }

  sets(name) {
    const [a, b] = [this.app.page, this.other].map((p) => p.stages.find((s) => s.name === name).lines);
    return differing(a, b);
  }

  // Titles of the columns: the file of each page, its model and target.
  titles() {
    const here = decodeURIComponent(location.pathname.split("/").pop()) || "this page";
    return [
      [this.app.page, here],
      [this.other, this.file],
    ].map(([page, file]) => `${file}: ${page.model} · ${page.target}`);
  }

  put(page) {
    this.other = page;
    this.file = "as edited";
    this.fault = "";
    this.shown = null;
  }

  async open(file) {
    if (!file) return;
    try {
      const found = new DOMParser().parseFromString(await file.text(), "text/html").getElementById("data");
      if (!found) throw new Error("it is not a page of tatami explore");
      this.other = await read(found.textContent);
      if (this.other.schema !== this.app.page.schema)
        throw new Error(`it has schema ${this.other.schema}, this page ${this.app.page.schema}`);
      this.file = file.name;
      this.fault = "";
      this.shown = null;
      this.update(); // a page of another maker may lack what is shown
      return;
    } catch (error) {
      this.other = null;
      this.fault = `${file.name} cannot be compared: ${error.message}`;
    }
    this.shown = null;
    this.update();
  }

  kernels(one, two) {
    const named = (page) => new Map(page.kernels.filter((k) => k.program !== "setup").map((k) => [nameOf(k), k]));
    const [a, b] = [named(one), named(two)];
    const plan = (k) => (k?.choices ?? []).map((c) => c.plan).join("; ");
    const rows = [...new Set([...a.keys(), ...b.keys()])].filter(
      (n) => !a.has(n) || !b.has(n) || plan(a.get(n)) !== plan(b.get(n)) || a.get(n).sources.join() !== b.get(n).sources.join(),
    );
    const whole = (page) => page.whole ?? page.kernels.reduce((sum, k) => sum + (k.program === "main" ? (timeOf(k) ?? 0) : 0), 0);
    const cell = (k) =>
      k ? [plan(k) || k.kind, el("span", { class: "quiet" }, ` ${seconds(timeOf(k))}`)] : el("i", { class: "quiet" }, "none");
    return el(
      "details",
      { open: rows.length > 0 && rows.length < 12 },
      el(
        "summary",
        {},
        `${rows.length} of ${new Set([...a.keys(), ...b.keys()]).size} kernels changed; kernels take ${seconds(whole(one))} and ${seconds(whole(two))}`,
      ),
      rows.length
        ? table(
            ["kernel", ...this.titles()],
            rows.map((n) =>
              el("tr", {}, el("th", { scope: "row" }, n), el("td", {}, cell(a.get(n))), el("td", {}, cell(b.get(n)))),
            ),
          )
        : "",
    );
  }
}
