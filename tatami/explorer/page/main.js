// The page: the views, the tabs between them, the keys that work everywhere.

import { editsAddress } from "./ask.js";
import { CompareView } from "./views/compare.js";
import { read } from "./data.js";
import { DecisionsView } from "./views/decisions.js";
import { differing } from "./diff.js";
import { DocumentsView } from "./views/documents.js";
import { el, say, show } from "./dom.js";
import { GraphView } from "./views/graph.js";
import { KernelsView } from "./views/kernels.js";
import { Links } from "./links.js";
import { MemoryView } from "./views/memory.js";
import { StagesView } from "./views/stages.js";
import { State } from "./state.js";
import { TimeView } from "./views/time.js";
import { TuningView } from "./views/tuning.js";

const VIEWS = [
  ["stages", "Stages", StagesView],
  ["kernels", "Kernels", KernelsView],
  ["model", "Model", GraphView],
  ["memory", "Memory", MemoryView],
  ["time", "Time", TimeView],
  ["decisions", "Decisions", DecisionsView],
  ["compare", "Compare", CompareView],
];
const TUNING = ["tuning", "Tuning", TuningView];
const EDIT = ["edit", "Edit", DocumentsView];
const KEYS = [
  ["1 … 9", "the views"],
  ["/", "find"],
  ["t", "dark or light"],
  ["?", "this list"],
  ["↑ ↓ Page Home End", "move in a text"],
  ["Enter", "mark what a line comes from and what became of it"],
  ["n, p", "next and previous marked line"],
  ["f", "fold here"],
  ["arrows, + − 0", "in the model: along edges, zoom, fit"],
  ["f, s, Enter", "in the model: fold the frame, show in stages, show the kernel"],
];
const EDIT_KEYS = [
  ["Ctrl+Enter", "in a document: check and compile"],
  ["F8, Shift+F8", "in a document: next and previous fault"],
];

class App {
  static differing = differing; // for tests in a console

  constructor(page) {
    this.page = page;
    const served = Boolean(editsAddress());
    this.offered = [...VIEWS, ...(page.tunings?.length ? [TUNING] : []), ...(served ? [EDIT] : [])];
    this.state = new State(page.tunings?.length ? "tuning" : "stages");
    this.links = new Links(page);
    this.views = new Map();
    this.theme(stored() ?? "");
    document.title = `${page.model} · Tatami explorer`;
    this.main = el("main", { id: "main" });
    this.tabs = this.offered.map(([name, title], k) =>
      el(
        "button",
        {
          role: "tab",
          id: `tab-${name}`,
          "aria-controls": "main",
          "data-view": name,
          title: `key ${k + 1}`,
          onclick: () => this.go(name),
          onkeydown: (e) => this.tabKey(e, k),
        },
        title,
      ),
    );
    this.help = el(
      "dialog",
      { "aria-label": "keys" },
      el("h2", {}, "Keys"),
      el(
        "dl",
        { class: "keys" },
        [...KEYS, ...(served ? EDIT_KEYS : [])].map(([k, what]) => [el("dt", {}, k), el("dd", {}, what)]),
      ),
      el("button", { onclick: () => this.help.close() }, "close"),
    );
    const sizes = Object.entries(page.sizes)
      .map(([n, v]) => `${n}=${v}`)
      .join(" ");
    show(
      document.getElementById("page"),
      el(
        "header",
        { class: "top" },
        el("h1", {}, el("span", { class: "mark", "aria-hidden": "true" }), page.model),
        el("span", { class: "quiet" }, [page.target, sizes].filter(Boolean).join(" · ")),
        el("nav", { role: "tablist", "aria-label": "views" }, this.tabs),
        el("span", { class: "grow" }),
        page.warnings?.length
          ? el(
              "button",
              { class: "warn", onclick: () => this.go("decisions") },
              `${page.warnings.length} warning${page.warnings.length > 1 ? "s" : ""}`,
            )
          : "",
        el("button", { onclick: () => this.turn(), "aria-label": "dark or light", title: "dark or light (t)" }, "◐"),
        el("button", { onclick: () => this.help.showModal(), "aria-label": "keys", title: "keys (?)" }, "?"),
      ),
      this.main,
      this.help,
    );
    document.addEventListener("keydown", (e) => this.key(e));
    this.state.listen(() => this.update());
    this.update();
  }

  update() {
    const found = this.offered.find(([n]) => n === this.state.get("view")) ?? VIEWS[0];
    const [name, title, View] = found;
    if (!this.views.has(name)) this.views.set(name, new View(this));
    const view = this.views.get(name);
    for (const tab of this.tabs) {
      const chosen = tab.dataset.view === name;
      tab.setAttribute("aria-selected", chosen);
      tab.tabIndex = chosen ? 0 : -1;
    }
    if (this.main.firstChild !== view.node) {
      show(this.main, view.node);
      say(`view ${title}`);
    }
    view.update();
  }

  go(name) {
    this.state.set({ view: name, kernel: name === "kernels" ? "" : this.state.get("kernel") }, true);
  }

  /** Show a thing of the model in its graph. */
  showNode(thing) {
    for (const [name, nodes] of Object.entries(this.page.graphs)) {
      const at = nodes.findIndex((n) => n.thing === thing);
      if (at >= 0) {
        this.state.set({ view: "model", graph: name, node: at }, true);
        return;
      }
    }
  }

  /** Show another compilation next to this one. */
  compareWith(page) {
    if (!this.views.has("compare")) this.views.set("compare", new CompareView(this));
    this.views.get("compare").put(page);
    this.state.set({ view: "compare", stage: "" }, true);
  }

  tabKey(e, k) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (!by) return;
    e.preventDefault();
    const tab = this.tabs[(k + by + this.tabs.length) % this.tabs.length];
    tab.focus();
    this.go(tab.dataset.view);
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select, dialog")) return;
    const number = Number(e.key);
    if (number >= 1 && number <= this.offered.length) this.go(this.offered[number - 1][0]);
    else if (e.key === "t") this.turn();
    else if (e.key === "?") this.help.showModal();
    else if (e.key === "/") (e.target.closest(".pane") ?? this.main).querySelector("input[type=search]")?.focus();
    else return;
    e.preventDefault();
  }

  turn() {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
    this.theme(dark ? "light" : "dark");
    for (const view of this.views.values()) view.redraw?.();
  }

  theme(name) {
    if (name) document.documentElement.dataset.theme = name;
    try {
      if (name) localStorage.setItem("tatami-theme", name);
    } catch {
      /* a page from a file may have no storage */
    }
  }
}

function stored() {
  try {
    return localStorage.getItem("tatami-theme");
  } catch {
    return null;
  }
}

read(document.getElementById("data").textContent)
  .then((page) => {
    window.explorer = new App(page);
  })
  .catch((error) => {
    show(
      document.getElementById("page"),
      el("p", { class: "empty", role: "alert" }, `This page cannot be shown: ${error.message}`),
    );
  });
