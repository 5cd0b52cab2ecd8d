// The model's graph on a canvas: pan, zoom, fold, search; every action by keyboard too.

import { choice, el, say, show } from "../dom.js";
import { drawingOf, firstOpen, FOLD_BEYOND, groupsOf } from "./model.js";
import { nameOf } from "../figures.js";
import { Painter } from "./paint.js";
import { MOST_FOUND, NodePanel } from "./side.js";

export class GraphView {
  constructor(app) {
    this.app = app;
    this.canvas = el("canvas", {
      tabindex: "0",
      role: "application",
      "aria-label": "model graph: arrows follow edges, plus and minus zoom, Enter folds or shows a kernel, 0 fits all",
    });
    this.search = el("input", {
      type: "search",
      placeholder: "search name, operator, dtype",
      "aria-label": "search the model",
      oninput: () => this.find(),
      onkeydown: (e) => {
        if (e.key === "Enter") this.results[0] !== undefined && this.select(this.results[0]);
        if (e.key === "ArrowDown") {
          e.preventDefault();
          this.list.querySelector("button")?.focus();
        }
      },
    });
    this.list = el("ul", { class: "found", id: "found", "aria-label": "found nodes" });
    this.side = new NodePanel(this);
    this.tools = el("div", { class: "tools" });
    this.node = el(
      "section",
      { class: "view graph", "aria-label": "model graph" },
      this.tools,
      el("div", { class: "split" }, el("div", { class: "stage" }, this.canvas), this.side.node),
    );
    this.painter = new Painter(this);
    this.results = [];
    this.opened = new Map();
    this.key = null;
    this.scale = 1;
    this.x = 0;
    this.y = 0;
    this.listen();
  }

  nodes() {
    return this.app.page.graphs[this.graph] || [];
  }

  update() {
    const { page, state } = this.app;
    const names = Object.keys(page.graphs);
    if (!names.length) {
      show(this.node, el("p", { class: "empty" }, "This compilation was started from a later stage: it has no model to show."));
      return;
    }
    this.graph = names.includes(state.get("graph")) ? state.get("graph") : names[0];
    const hasPaths = this.nodes().some((n) => n.path?.length);
    this.grouping = state.get("group") || (hasPaths ? "module" : "kernel");
    const key = `${this.graph}|${this.grouping}`;
    if (key !== this.key) {
      this.key = key;
      this.tree = groupsOf(this.nodes(), this.grouping, page.kernels);
      this.opened.clear();
      this.foldFrom = this.nodes().length > FOLD_BEYOND;
      if (this.foldFrom) for (const group of firstOpen(this.tree)) this.opened.set(group.id, true);
      this.lay();
      this.buildTools(names, hasPaths);
      requestAnimationFrame(() => {
        this.fit(true);
        this.showChosen();
      });
    } else this.showChosen();
  }

  showChosen() {
    const chosen = this.app.state.number("node");
    if (chosen !== this.chosen) {
      this.chosen = chosen;
      if (chosen >= 0 && chosen < this.nodes().length) {
        this.reveal(chosen);
        this.side.show(chosen);
      } else {
        this.chosen = -1;
        this.side.show(-1);
      }
    }
    this.draw();
  }

  buildTools(names, hasPaths) {
    const { state } = this.app;
    show(
      this.tools,
      this.search,
      names.length > 1
        ? choice(
            "graph",
            names.map((n) => [n, n]),
            this.graph,
            (g) => state.set({ graph: g, node: "" }),
          )
        : "",
      choice(
        "frames",
        [...(hasPaths ? [["module", "by module"]] : []), ["kernel", "by kernel"], ["none", "no frames"]],
        this.grouping,
        (g) => state.set({ group: g }),
      ),
      el("button", { onclick: () => this.foldAll(false) }, "unfold all"),
      el("button", { onclick: () => this.foldAll(true) }, "fold all"),
      el(
        "button",
        {
          onclick: () => {
            this.fit();
            this.draw();
          },
        },
        "fit",
      ),
      el("span", { class: "grow" }),
      el(
        "span",
        { class: "quiet" },
        `${this.nodes().length} nodes, ${new Set(this.nodes().map((n) => n.kernel ?? -1)).size - (this.nodes().some((n) => (n.kernel ?? -1) < 0) ? 1 : 0)} kernels`,
      ),
    );
  }

  isOpen(group) {
    return this.opened.get(group.id) ?? !this.foldFrom;
  }

  lay() {
    this.drawing = drawingOf(this.nodes(), this.tree, this.app.page.kernels, (g) => this.isOpen(g));
    this.node.dataset.boxes = this.drawing.boxes.size - this.drawing.frames.length;
  }

  foldAll(fold) {
    this.opened.clear();
    this.foldFrom = fold;
    this.lay();
    this.fit();
    this.draw();
    say(fold ? "all groups folded" : "all groups unfolded");
  }

  /** Fold or unfold a group; it stays where it is on the screen. */
  toggle(group) {
    const before = this.drawing.boxes.get(`g:${group.id}`);
    const [sx, sy] = [before.left * this.scale + this.x, before.upper * this.scale + this.y];
    this.opened.set(group.id, !this.isOpen(group));
    this.lay();
    const after = this.drawing.boxes.get(`g:${group.id}`);
    this.x = sx - after.left * this.scale;
    this.y = sy - after.upper * this.scale;
    this.draw();
    say(`${group.name} ${this.isOpen(group) ? "unfolded" : "folded"}`);
  }

  find() {
    const text = this.search.value.trim().toLowerCase();
    this.results = [];
    if (text)
      this.nodes().forEach((n, k) => {
        if (
          this.results.length < MOST_FOUND &&
          `${n.name} ${n.op} ${n.type} ${(n.path || []).join("/")}`.toLowerCase().includes(text)
        )
          this.results.push(k);
      });
    this.matched = new Set(this.results);
    this.side.show(this.chosen ?? -1);
    this.draw();
    if (text) say(`${this.results.length}${this.results.length === MOST_FOUND ? " or more" : ""} nodes found`);
  }

  select(k) {
    this.app.state.set({ node: k, graph: this.graph });
    say(this.sentence(k));
  }

  sentence(k) {
    const n = this.nodes()[k];
    return `${n.op} ${n.name}, ${n.type}${n.kernel >= 0 ? `, kernel ${nameOf(this.app.page.kernels[n.kernel])}` : ""}`;
  }

  /** Open the groups around a node and bring it into the middle. */
  reveal(k) {
    let changed = false;
    for (let g = this.tree.home[k]; g.parent; g = g.parent)
      if (!this.isOpen(g)) {
        this.opened.set(g.id, true);
        changed = true;
      }
    if (changed) this.lay();
    const b = this.drawing.boxes.get(`n:${k}`);
    if (!b) return;
    const [w, h] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (this.scale < 0.6) this.scale = 0.9;
    const sx = ((b.left + b.right) / 2) * this.scale + this.x,
      sy = ((b.upper + b.lower) / 2) * this.scale + this.y;
    if (changed || sx < 60 || sy < 60 || sx > w - 60 || sy > h - 60) {
      this.x = w / 2 - ((b.left + b.right) / 2) * this.scale;
      this.y = h / 2 - ((b.upper + b.lower) / 2) * this.scale;
    }
  }

  // -- looking ------------------------------------------------------------------------------------

  /** All of the graph in sight; `readable`: as much of its upper end as can be read. */
  fit(readable = false) {
    const [w, h] = [this.canvas.clientWidth || 800, this.canvas.clientHeight || 600];
    const whole = Math.min((w - 24) / this.drawing.width, (h - 24) / this.drawing.height, 1.25);
    const wide = Math.min(1, (w - 24) / this.drawing.width);
    this.scale = Math.max(0.01, readable && whole < 0.75 && wide > 0.45 ? wide : whole);
    this.x = (w - this.drawing.width * this.scale) / 2;
    this.y = Math.max(12, (h - this.drawing.height * this.scale) / 2);
  }

  zoom(by, px = this.canvas.clientWidth / 2, py = this.canvas.clientHeight / 2) {
    const next = Math.min(4, Math.max(0.01, this.scale * by));
    this.x = px - ((px - this.x) * next) / this.scale;
    this.y = py - ((py - this.y) * next) / this.scale;
    this.scale = next;
    this.draw();
  }

  listen() {
    const c = this.canvas;
    let grip = null;
    c.addEventListener(
      "wheel",
      (e) => {
        e.preventDefault();
        this.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), e.offsetX, e.offsetY);
      },
      { passive: false },
    );
    c.addEventListener("pointerdown", (e) => {
      grip = [e.offsetX, e.offsetY, this.x, this.y, false];
      c.setPointerCapture(e.pointerId);
    });
    c.addEventListener("pointermove", (e) => {
      if (!grip) return;
      const [dx, dy] = [e.offsetX - grip[0], e.offsetY - grip[1]];
      if (Math.hypot(dx, dy) > 4) grip[4] = true;
      if (grip[4]) {
        this.x = grip[2] + dx;
        this.y = grip[3] + dy;
        this.draw();
      }
    });
    c.addEventListener("pointerup", (e) => {
      if (grip && !grip[4]) this.click(e.offsetX, e.offsetY);
      grip = null;
    });
    c.addEventListener("dblclick", (e) => {
      const g = this.at(e.offsetX, e.offsetY)?.group;
      if (g) this.toggle(g);
    });
    c.addEventListener("keydown", (e) => this.press(e));
    new ResizeObserver(() => this.drawing && this.draw()).observe(c);
  }

  at(px, py) {
    const [x, y] = [(px - this.x) / this.scale, (py - this.y) / this.scale];
    let found = null;
    for (const b of this.drawing.boxes.values()) {
      if (x < b.left || x > b.right || y < b.upper || y > b.lower) continue;
      if (b.children && y > b.upper + 22) continue; // inside an open frame only its title counts
      found = b;
    }
    return found;
  }

  click(px, py) {
    const b = this.at(px, py);
    if (b?.node !== undefined) this.select(b.node);
    else if (b?.group) this.toggle(b.group);
  }

  press(e) {
    const nodes = this.nodes();
    const k = this.chosen;
    const to = (at) => at !== undefined && this.select(at);
    const users = () => nodes.flatMap((m, at) => ((m.inputs || []).includes(k) ? [at] : []));
    const siblings = () => {
      const source = nodes[k]?.inputs?.[0];
      return source === undefined
        ? nodes.flatMap((m, at) => ((m.inputs || []).length ? [] : [at]))
        : nodes.flatMap((m, at) => ((m.inputs || []).includes(source) ? [at] : []));
    };
    const beside = (by) => {
      const s = siblings();
      const at = s.indexOf(k);
      return s[(at + by + s.length) % s.length];
    };
    const act = {
      "+": () => this.zoom(1.25),
      "=": () => this.zoom(1.25),
      "-": () => this.zoom(0.8),
      0: () => {
        this.fit();
        this.draw();
      },
      ArrowDown: () => to(k < 0 ? 0 : users()[0]),
      ArrowUp: () => to(k < 0 ? 0 : nodes[k].inputs?.[0]),
      ArrowRight: () => to(k < 0 ? 0 : beside(1)),
      ArrowLeft: () => to(k < 0 ? 0 : beside(-1)),
      Enter: () => k >= 0 && nodes[k].kernel >= 0 && this.app.state.set({ view: "kernels", kernel: nodes[k].kernel }, true),
      f: () => {
        const g = k >= 0 && this.tree.home[k];
        if (g?.parent) this.toggle(g);
      },
      s: () => k >= 0 && this.app.state.set({ view: "stages", thing: nodes[k].thing }, true),
    }[e.key];
    if (!act || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    act();
  }

  redraw() {
    this.draw();
  }

  draw() {
    this.painter.draw();
  }
}
