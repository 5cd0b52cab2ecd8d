// The model's graph on a canvas: pan, zoom, fold, search; every action by keyboard too.

import { choice, el, say, show } from "./dom.js";
import { drawingOf, FOLD_BEYOND, groupsOf } from "./model.js";
import { nameOf } from "./kernels.js";

const HUES = [212, 28, 145, 280, 350, 90, 190, 50, 320, 165, 240, 10];
const MOST_FOUND = 200;

export class GraphView {
  constructor(app) {
    this.app = app;
    this.canvas = el("canvas", { tabindex: "0", role: "application", "aria-label": "model graph: arrows follow edges, plus and minus zoom, Enter folds or shows a kernel, 0 fits all" });
    this.search = el("input", { type: "search", placeholder: "search name, operator, dtype", "aria-label": "search the model", "aria-controls": "found", oninput: () => this.find(), onkeydown: (e) => { if (e.key === "Enter") this.results[0] !== undefined && this.select(this.results[0]); if (e.key === "ArrowDown") { e.preventDefault(); this.list.querySelector("button")?.focus(); } } });
    this.list = el("ul", { class: "found", id: "found", "aria-label": "found nodes" });
    this.side = el("aside", { class: "side", "aria-label": "the chosen node" });
    this.tools = el("div", { class: "tools" });
    this.node = el("section", { class: "view graph", "aria-label": "model graph" }, this.tools, el("div", { class: "split" }, el("div", { class: "stage" }, this.canvas), this.side));
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
    if (!names.length) { show(this.node, el("p", { class: "empty" }, "This compilation was started from a later stage: it has no model to show.")); return; }
    this.graph = names.includes(state.get("graph")) ? state.get("graph") : names[0];
    const hasPaths = this.nodes().some((n) => n.path?.length);
    this.grouping = state.get("group") || (hasPaths ? "module" : "kernel");
    const key = `${this.graph}|${this.grouping}`;
    if (key !== this.key) {
      this.key = key;
      this.tree = groupsOf(this.nodes(), this.grouping, page.kernels);
      this.opened.clear();
      this.foldFrom = this.nodes().length > FOLD_BEYOND;
      this.lay();
      this.buildTools(names, hasPaths);
      requestAnimationFrame(() => { this.fit(true); this.showChosen(); });
    } else this.showChosen();
  }

  showChosen() {
    const chosen = this.app.state.number("node");
    if (chosen !== this.chosen) {
      this.chosen = chosen;
      if (chosen >= 0 && chosen < this.nodes().length) { this.reveal(chosen); this.panel(chosen); } else { this.chosen = -1; this.panel(-1); }
    }
    this.draw();
  }

  buildTools(names, hasPaths) {
    const { state } = this.app;
    show(this.tools, this.search,
      names.length > 1 ? choice("graph", names.map((n) => [n, n]), this.graph, (g) => state.set({ graph: g, node: "" })) : "",
      choice("frames", [...(hasPaths ? [["module", "by module"]] : []), ["kernel", "by kernel"], ["none", "no frames"]], this.grouping, (g) => state.set({ group: g })),
      el("button", { onclick: () => this.foldAll(false) }, "unfold all"), el("button", { onclick: () => this.foldAll(true) }, "fold all"),
      el("button", { onclick: () => { this.fit(); this.draw(); } }, "fit"),
      el("span", { class: "grow" }),
      el("span", { class: "quiet" }, `${this.nodes().length} nodes, ${new Set(this.nodes().map((n) => n.kernel ?? -1)).size - (this.nodes().some((n) => (n.kernel ?? -1) < 0) ? 1 : 0)} kernels`));
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
    if (text) this.nodes().forEach((n, k) => { if (this.results.length < MOST_FOUND && `${n.name} ${n.op} ${n.type} ${(n.path || []).join("/")}`.toLowerCase().includes(text)) this.results.push(k); });
    this.matched = new Set(this.results);
    this.panel(this.chosen ?? -1);
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
    for (let g = this.tree.home[k]; g.parent; g = g.parent) if (!this.isOpen(g)) { this.opened.set(g.id, true); changed = true; }
    if (changed) this.lay();
    const b = this.drawing.boxes.get(`n:${k}`);
    if (!b) return;
    const [w, h] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (this.scale < 0.6) this.scale = 0.9;
    const sx = ((b.left + b.right) / 2) * this.scale + this.x, sy = ((b.upper + b.lower) / 2) * this.scale + this.y;
    if (changed || sx < 60 || sy < 60 || sx > w - 60 || sy > h - 60) {
      this.x = w / 2 - ((b.left + b.right) / 2) * this.scale;
      this.y = h / 2 - ((b.upper + b.lower) / 2) * this.scale;
    }
  }

  panel(k) {
    const nodes = this.nodes();
    const found = this.results.length ? [el("h3", {}, `${this.results.length}${this.results.length === MOST_FOUND ? "+" : ""} found`), show(this.list, this.results.slice(0, 50).map((r) => el("li", {}, el("button", { class: "plain", onclick: () => this.select(r) }, nodes[r].op, " ", el("span", { class: "quiet" }, nodes[r].name)))))] : this.search.value.trim() ? el("p", { class: "quiet" }, "nothing found") : "";
    if (k < 0) { show(this.side, found, el("p", { class: "quiet" }, "Choose a node: its kernel, its place in the model's source and its neighbours stand here.")); return; }
    const n = nodes[k];
    const kernel = n.kernel >= 0 ? this.app.page.kernels[n.kernel] : null;
    const users = nodes.flatMap((m, at) => ((m.inputs || []).includes(k) ? [at] : []));
    const link = (at) => el("li", {}, el("button", { class: "plain", onclick: () => this.select(at) }, nodes[at].op, " ", el("span", { class: "quiet" }, nodes[at].name)));
    const source = n.thing >= 0 ? this.app.page.things.origins[n.thing].map((t) => this.sourceLine(t)) : [];
    show(this.side, found, el("h2", {}, n.op), el("dl", { class: "facts tall" },
      [["name", n.name], ["type", n.type], ["module", (n.path || []).join(" / ")], ["source", source.join("\n")]].filter(([, v]) => v).map(([a, b]) => el("div", {}, el("dt", {}, a), el("dd", {}, b)))),
    kernel ? el("p", {}, el("button", { onclick: () => this.app.state.set({ view: "kernels", kernel: n.kernel }, true) }, `kernel ${nameOf(kernel)}`), " ", el("span", { class: "quiet" }, kernel.kind)) : "",
    n.thing >= 0 ? el("p", {}, el("button", { onclick: () => this.app.state.set({ view: "stages", thing: n.thing }, true) }, "show in stages")) : "",
    (n.inputs || []).length ? [el("h3", {}, "reads"), el("ul", { class: "found" }, n.inputs.map(link))] : "",
    users.length ? [el("h3", {}, "read by"), el("ul", { class: "found" }, users.slice(0, 30).map(link))] : "");
  }

  sourceLine(thing) {
    const place = this.app.links.place(thing);
    return place ? this.app.page.stages[place[0]].lines[place[1]].trim() : this.app.page.things.label[thing];
  }

  redraw() {
    this.draw();
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
    c.addEventListener("wheel", (e) => { e.preventDefault(); this.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), e.offsetX, e.offsetY); }, { passive: false });
    c.addEventListener("pointerdown", (e) => { grip = [e.offsetX, e.offsetY, this.x, this.y, false]; c.setPointerCapture(e.pointerId); });
    c.addEventListener("pointermove", (e) => {
      if (!grip) return;
      const [dx, dy] = [e.offsetX - grip[0], e.offsetY - grip[1]];
      if (Math.hypot(dx, dy) > 4) grip[4] = true;
      if (grip[4]) { this.x = grip[2] + dx; this.y = grip[3] + dy; this.draw(); }
    });
    c.addEventListener("pointerup", (e) => { if (grip && !grip[4]) this.click(e.offsetX, e.offsetY); grip = null; });
    c.addEventListener("dblclick", (e) => { const g = this.at(e.offsetX, e.offsetY)?.group; if (g) this.toggle(g); });
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
    const siblings = () => { const source = nodes[k]?.inputs?.[0]; return source === undefined ? nodes.flatMap((m, at) => ((m.inputs || []).length ? [] : [at])) : nodes.flatMap((m, at) => ((m.inputs || []).includes(source) ? [at] : [])); };
    const beside = (by) => { const s = siblings(); const at = s.indexOf(k); return s[(at + by + s.length) % s.length]; };
    const act = {
      "+": () => this.zoom(1.25), "=": () => this.zoom(1.25), "-": () => this.zoom(0.8), 0: () => { this.fit(); this.draw(); },
      ArrowDown: () => to(k < 0 ? 0 : users()[0]), ArrowUp: () => to(k < 0 ? 0 : nodes[k].inputs?.[0]), ArrowRight: () => to(k < 0 ? 0 : beside(1)), ArrowLeft: () => to(k < 0 ? 0 : beside(-1)),
      Enter: () => k >= 0 && nodes[k].kernel >= 0 && this.app.state.set({ view: "kernels", kernel: nodes[k].kernel }, true),
      f: () => { const g = k >= 0 && this.tree.home[k]; if (g?.parent) this.toggle(g); }, s: () => k >= 0 && this.app.state.set({ view: "stages", thing: nodes[k].thing }, true),
    }[e.key];
    if (!act || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    act();
  }

  // -- drawing ------------------------------------------------------------------------------------

  draw() {
    const c = this.canvas;
    const [w, h] = [c.clientWidth, c.clientHeight];
    if (!w || !h || !this.drawing) return;
    const dense = window.devicePixelRatio || 1;
    if (c.width !== Math.round(w * dense)) c.width = Math.round(w * dense);
    if (c.height !== Math.round(h * dense)) c.height = Math.round(h * dense);
    const pen = c.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const ink = (name) => style.getPropertyValue(name).trim();
    const colours = { ink: ink("--ink"), quiet: ink("--quiet"), line: ink("--rule"), paper: ink("--paper"), panel: ink("--panel"), accent: ink("--accent"), edge: ink("--edge"), dark: ink("--dark") === "1" };
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, w, h);
    pen.translate(this.x, this.y);
    pen.scale(this.scale, this.scale);
    const view = [-this.x / this.scale, -this.y / this.scale, (w - this.x) / this.scale, (h - this.y) / this.scale];
    const inSight = (b) => b.right >= view[0] && b.left <= view[2] && b.lower >= view[1] && b.upper <= view[3];
    const letters = this.scale > 0.42;
    for (const f of this.drawing.frames) if (inSight(f)) this.frame(pen, f, colours, letters);
    this.edges(pen, colours, view);
    for (const b of this.drawing.boxes.values()) if (!b.children && inSight(b)) this.box(pen, b, colours, letters);
  }

  hue(kernel) {
    return HUES[kernel % HUES.length];
  }

  frame(pen, f, colours, letters) {
    const kernel = f.group.kernel >= 0 ? this.hue(f.group.kernel) : null;
    pen.fillStyle = kernel === null ? (colours.dark ? "rgba(148,163,184,.07)" : "rgba(15,23,42,.035)") : `hsla(${kernel},65%,50%,${colours.dark ? 0.13 : 0.09})`;
    pen.strokeStyle = kernel === null ? colours.line : `hsl(${kernel},55%,${colours.dark ? 55 : 50}%)`;
    pen.lineWidth = 1.2;
    pen.beginPath();
    pen.roundRect(f.left, f.upper, f.w, f.h, 9);
    pen.fill();
    pen.stroke();
    if (!letters) return;
    pen.fillStyle = colours.quiet;
    pen.font = "600 12px system-ui, sans-serif";
    pen.fillText(cut(`▾ ${f.group.name}${f.group.kernel >= 0 ? ` · ${this.app.page.kernels[f.group.kernel].kind}` : ""}`, f.w / 7), f.left + 10, f.upper + 17);
  }

  edges(pen, colours, view) {
    pen.lineWidth = 1 / Math.max(0.4, Math.min(1, this.scale));
    pen.strokeStyle = colours.edge;
    pen.beginPath();
    const tips = [], labels = [], chosen = [];
    const mine = this.chosen >= 0 ? this.drawing.idOf(this.chosen) : null;
    for (const e of this.drawing.edges) {
      const p = e.points;
      const top = p[0][1], low = p[p.length - 1][1];
      if (Math.max(top, low) < view[1] || Math.min(top, low) > view[3]) continue;
      if (e.from === mine || e.to === mine) { chosen.push(e); continue; }
      trace(pen, p);
      tips.push(p[p.length - 1]);
      if (this.scale > 0.75 && e.type) labels.push(e);
    }
    pen.stroke();
    if (this.scale > 0.25) tip(pen, tips, colours.edge);
    if (chosen.length) {
      pen.strokeStyle = colours.accent;
      pen.lineWidth *= 2;
      pen.beginPath();
      for (const e of chosen) trace(pen, e.points);
      pen.stroke();
      tip(pen, chosen.map((e) => e.points[e.points.length - 1]), colours.accent);
    }
    pen.font = "9.5px ui-monospace, monospace";
    pen.fillStyle = colours.quiet;
    pen.strokeStyle = colours.paper;
    pen.lineWidth = 3;
    for (const e of this.scale > 0.75 ? [...labels, ...chosen] : []) {
      const [x, y] = e.points[0];
      const short = /\[.*\]/.exec(e.type)?.[0] ?? "";
      pen.strokeText(cut(short, 26), x + 4, y + 13);
      pen.fillText(cut(short, 26), x + 4, y + 13);
    }
  }

  box(pen, b, colours, letters) {
    const n = b.node !== undefined ? this.nodes()[b.node] : null;
    const kernel = n ? n.kernel ?? -1 : b.group.kernel;
    const hue = kernel >= 0 ? this.hue(kernel) : null;
    const light = colours.dark ? 24 : 95;
    pen.fillStyle = n && (n.kind === "input" || n.kind === "output") ? colours.panel : hue === null ? colours.paper : `hsl(${hue},${colours.dark ? 30 : 75}%,${light}%)`;
    pen.strokeStyle = hue === null ? colours.line : `hsl(${hue},55%,${colours.dark ? 55 : 48}%)`;
    pen.lineWidth = n?.kind === "contraction" ? 2 : 1.1;
    if (b.node !== undefined && b.node === this.chosen) { pen.strokeStyle = colours.accent; pen.lineWidth = 3; } else if (b.node !== undefined && this.matched?.has(b.node)) { pen.strokeStyle = "#d97706"; pen.lineWidth = 3; }
    pen.beginPath();
    pen.roundRect(b.left, b.upper, b.w, b.h, n && (n.kind === "input" || n.kind === "output") ? 19 : 6);
    pen.fill();
    if (!n) { pen.stroke(); pen.beginPath(); pen.roundRect(b.left + 3, b.upper + 3, b.w - 6, b.h - 6, 4); }
    pen.stroke();
    if (!letters) return;
    pen.textAlign = "center";
    const middle = (b.left + b.right) / 2;
    pen.fillStyle = colours.ink;
    pen.font = "600 12px system-ui, sans-serif";
    pen.fillText(cut(n ? (n.op === "input" || n.op === "output" ? n.name : n.op) : `▸ ${b.group.name}`, b.w / 6.4), middle, b.upper + 17);
    pen.fillStyle = colours.quiet;
    pen.font = "10.5px ui-monospace, monospace";
    pen.fillText(cut(n ? n.type : `${b.group.total} node${b.group.total === 1 ? "" : "s"}`, b.w / 6.3), middle, b.upper + 32);
    pen.textAlign = "left";
  }
}

function cut(text, letters) {
  return text.length > letters ? `${text.slice(0, Math.max(1, Math.floor(letters) - 1))}…` : text;
}

function trace(pen, points) {
  pen.moveTo(points[0][0], points[0][1]);
  for (let i = 1; i < points.length; i++) {
    const [x0, y0] = points[i - 1], [x1, y1] = points[i];
    if (Math.abs(x0 - x1) < 0.5) pen.lineTo(x1, y1);
    else { const middle = (y0 + y1) / 2; pen.bezierCurveTo(x0, middle, x1, middle, x1, y1); }
  }
}

function tip(pen, tips, colour) {
  pen.fillStyle = colour;
  pen.beginPath();
  for (const [x, y] of tips) { pen.moveTo(x, y); pen.lineTo(x - 3.5, y - 7); pen.lineTo(x + 3.5, y - 7); }
  pen.fill();
}
