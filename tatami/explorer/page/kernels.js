// The table of kernels, and the page of one: Region, plan, rejected plans, loops, code, and why it is a kernel of its own.

import { el, say, show } from "./dom.js";
import { planForm } from "./edit.js";
import { LinePane } from "./lines.js";
import { bytes, count, percent, seconds } from "./numbers.js";

/** Seconds of a kernel: measured, else estimated. */
export function timeOf(kernel) {
  return kernel.seconds ?? kernel.estimate ?? null;
}

/** True if times were measured. */
export function measured(page) {
  return page.kernels.some((k) => k.seconds !== undefined && k.seconds !== null);
}

/** Name of a kernel, with its program if that is not main. */
export function nameOf(kernel) {
  return kernel.program === "main" ? kernel.name : `${kernel.program}/${kernel.name}`;
}

export class KernelsView {
  constructor(app) {
    this.app = app;
    this.node = el("section", { class: "view kernels", "aria-label": "kernels" });
    this.shown = null;
  }

  update() {
    const key = ["kernel", "sort", "setup", "filter"].map((n) => this.app.state.get(n)).join("|");
    if (key === this.shown) return;
    this.shown = key;
    const number = this.app.state.number("kernel");
    if (number >= 0 && number < this.app.page.kernels.length) show(this.node, this.kernel(number));
    else if (this.node.querySelector("table.kernels") && this.filterOnly) this.fillTable();
    else show(this.node, this.table());
  }

  columns() {
    const page = this.app.page;
    const counted = page.kernels.filter((k) => k.program === "main");
    const total = counted.reduce((sum, k) => sum + (timeOf(k) ?? 0), 0);
    const timed = measured(page);
    const roof = (k) => (k.bound && k.seconds ? k.bound / k.seconds : null);
    return [
      ["kernel", (k) => k.number, (k) => nameOf(k), ""],
      ["kind", (k) => k.kind, (k) => k.kind, ""],
      ...(timed ? [["time", (k) => k.seconds, (k) => seconds(k.seconds), "n"]] : []),
      ["estimate", (k) => k.estimate, (k) => seconds(k.estimate), "n"],
      ["share", (k) => (k.program === "main" ? timeOf(k) : null), (k) => (k.program === "main" && timeOf(k) !== null && total ? [el("i", { class: "bar", style: `width:${(60 * timeOf(k)) / total}px` }), percent(timeOf(k) / total)] : ""), "n"],
      ...(timed ? [["of roofline", roof, (k) => percent(roof(k)), "n"]] : []),
      ["operations", (k) => k.flops, (k) => count(k.flops), "n"],
      ["bytes", (k) => k.bytes, (k) => bytes(k.bytes), "n"],
      ["plan", (k) => k.choices?.[0]?.plan ?? "", (k) => (k.choices?.length ? `${k.choices[0].plan}${k.choices.length > 1 ? ` and ${k.choices.length - 1} more` : ""}` : k.moves ? `copies: ${k.moves}` : ""), "wide"],
      ["computes", (k) => k.sources.join(), (k) => k.sources.join(", "), "wide"],
      ["separate from", (k) => (k.separate || []).length, (k) => [...new Set((k.separate || []).map((s) => s.other))].join(", "), "wide"],
    ];
  }

  table() {
    const columns = this.columns();
    const [by, way] = this.app.state.get("sort", "kernel,up").split(",");
    const sort = (name) => this.app.state.set({ sort: `${name},${name === by && way === "down" ? "up" : name === by ? "down" : name === "kernel" || name === "kind" || name === "plan" || name === "computes" ? "up" : "down"}` });
    this.body = el("tbody");
    const table = el("table", { class: "kernels" },
      el("thead", {}, el("tr", {}, columns.map(([name, , , kind]) => el("th", { scope: "col", class: kind, "aria-sort": name === by ? (way === "up" ? "ascending" : "descending") : "none" },
        el("button", { class: "plain", onclick: () => { sort(name); this.node.querySelector(`th[aria-sort$="ending"] button`)?.focus(); } }, name, name === by ? (way === "up" ? " ▲" : " ▼") : ""))))),
      this.body);
    this.fillTable();
    const filter = el("input", { type: "search", placeholder: "filter", "aria-label": "filter kernels", value: this.app.state.get("filter"),
      oninput: (e) => { this.filterOnly = true; this.app.state.set({ filter: e.target.value }); this.filterOnly = false; } });
    const hasSetup = this.app.page.kernels.some((k) => k.program === "setup");
    return [el("div", { class: "tools" }, filter,
      hasSetup ? el("label", {}, el("input", { type: "checkbox", checked: this.app.state.get("setup") === "1", onchange: (e) => this.app.state.set({ setup: e.target.checked ? "1" : "" }) }), " setup (once, when loaded)") : "",
      el("span", { class: "grow" }), el("span", { class: "quiet" }, measured(this.app.page) ? `whole program ${seconds(this.app.page.whole)}, measured` : "times are the plans' estimates: --bench measures")),
    el("div", { class: "scroll" }, table)];
  }

  fillTable() {
    const columns = this.columns();
    const [by, way] = this.app.state.get("sort", "kernel,up").split(",");
    const text = this.app.state.get("filter").toLowerCase();
    const setup = this.app.state.get("setup") === "1";
    const value = (columns.find(([name]) => name === by) || columns[0])[1];
    const rows = this.app.page.kernels.map((k, number) => ({ ...k, number }))
      .filter((k) => (setup || k.program !== "setup") && (!text || [nameOf(k), k.kind, ...k.sources, k.choices?.[0]?.plan].join(" ").toLowerCase().includes(text)));
    const order = way === "down" ? -1 : 1;
    rows.sort((a, b) => {
      const x = value(a) ?? null, y = value(b) ?? null;
      if (x === null || y === null) return (x === null) - (y === null);
      return (x < y ? -1 : x > y ? 1 : a.number - b.number) * order;
    });
    show(this.body, rows.map((k) => el("tr", { "data-kernel": k.number, onclick: (e) => { if (!e.target.closest("a")) this.open(k.number); } },
      columns.map(([name, , cell, kind]) => el(name === "kernel" ? "th" : "td", { scope: name === "kernel" ? "row" : null, class: kind, title: kind === "wide" ? [cell(k)].flat().join("") : null },
        name === "kernel" ? el("a", { href: "#", onclick: (e) => { e.preventDefault(); this.open(k.number); } }, cell(k)) : cell(k))))));
  }

  open(number) {
    this.app.state.set({ view: "kernels", kernel: number }, true);
    this.node.querySelector("h2")?.focus();
    say(`kernel ${nameOf(this.app.page.kernels[number])}`);
  }

  kernel(number) {
    const { page, state, links } = this.app;
    const k = page.kernels[number];
    const facts = [
      ["kind", k.kind], ["wave", k.wave >= 0 ? k.wave : ""], ["measured", seconds(k.seconds)], ["bound by peaks", seconds(k.bound)], ["estimate", seconds(k.estimate)],
      ["operations", count(k.flops)], ["bytes", bytes(k.bytes)], ["operations per byte", k.flops && k.bytes ? Number((k.flops / k.bytes).toPrecision(3)) : ""], ["work", k.work || ""], ["key", k.key || ""],
    ].filter(([, v]) => v !== "" && v !== null && v !== undefined);
    const step = (by) => this.open(Math.min(page.kernels.length - 1, Math.max(0, number + by)));
    return el("article", { class: "kernel" },
      el("div", { class: "tools" },
        el("button", { onclick: () => { state.set({ kernel: "" }, true); this.node.querySelector("tbody a")?.focus(); } }, "← all kernels"),
        el("button", { onclick: () => step(-1), disabled: number === 0 }, "previous"), el("button", { onclick: () => step(1), disabled: number === page.kernels.length - 1 }, "next"),
        el("span", { class: "grow" }),
        el("button", { onclick: () => state.set({ view: "stages", thing: k.thing }, true) }, "show in stages"),
        (k.nodes || []).length ? el("button", { onclick: () => this.app.showNode(k.nodes[0]) }, "show in model") : ""),
      el("h2", { tabindex: "-1" }, nameOf(k), " ", el("span", { class: "quiet" }, k.kind)),
      el("p", { class: "computes" }, k.sources.length ? ["computes ", k.sources.map((s) => [el("code", {}, s), " "])] : "no node of the model: the compiler added it"),
      el("dl", { class: "facts" }, facts.map(([n, v]) => el("div", {}, el("dt", {}, n), el("dd", {}, v)))),
      el("div", { class: "columns" },
        el("div", {},
          (k.choices || []).map((c) => this.choice(k, c)),
          (k.rejected || []).length ? this.rejected(k) : ""),
        el("div", {},
          k.separate?.length ? this.separate(k) : "",
          k.moves ? [el("h3", {}, "A copy"), el("p", {}, k.moves)] : "",
          this.text("region", "Region", links.place(k.thing)),
          k.symbols?.length ? this.symbols(k) : "")));
  }

  choice(k, c) {
    return [el("h3", {}, k.choices.length > 1 ? `Plan ${c.when ? `when ${c.when}` : "else"}` : "Plan"),
      el("pre", { class: "block" }, c.lines.join("\n")),
      c.terms ? el("p", { class: "terms" }, `estimate: ${c.terms}`) : "",
      c.budget ? el("p", { class: "terms" }, c.budget) : "", planForm(this.app, k, c)];
  }

  rejected(k) {
    const best = k.estimate || 0;
    const bar = (v, name) => (v && best ? el("i", { class: `bar ${name}`, style: `width:${Math.min(80, Math.max(2, 12 + 24 * Math.log10(v / best)))}px` }) : "");
    return [el("h3", {}, `Rejected plans (${k.rejected.length})`),
      el("table", { class: "rejected" }, el("thead", {}, el("tr", {}, ["plan", "estimate", "why"].map((n) => el("th", { scope: "col" }, n)))),
        el("tbody", {},
          best ? el("tr", { class: "chosen" }, el("td", {}, "chosen: ", k.choices[k.choices.length - 1].plan), el("td", { class: "n" }, bar(best, "good"), seconds(best)), el("td", {}, `chosen by the ${k.by === "planner" ? "planner: the fastest by estimate" : k.by === "tuned" ? "table of tuned plans" : "user"}`)) : "",
          k.rejected.map((r) => el("tr", {}, el("td", {}, r.plan), el("td", { class: "n" }, bar(r.seconds, ""), seconds(r.seconds)), el("td", { title: r.terms || null }, r.why)))))];
  }

  separate(k) {
    return [el("h3", {}, "Why not fused with its neighbours"),
      el("ul", { class: "reasons" }, k.separate.map((s) => el("li", {}, el("code", {}, `${s.producer} → ${s.consumer}`), ` with ${s.other}: `, el("b", {}, s.rule), s.why ? `; ${s.why}` : "")))];
  }

  symbols(k) {
    const { page } = this.app;
    const number = (name) => page.stages.findIndex((s) => s.name === name);
    const lowered = page.stages.some((s) => s.name === "gpu") ? "gpu" : "loop";
    const code = lowered === "gpu" ? "cu" : "c";
    const first = (stage, test) => (number(stage) < 0 ? null : [number(stage), page.stages[number(stage)].lines.findIndex(test)]);
    return k.symbols.map((symbol) => [
      this.text(lowered, lowered === "gpu" ? "GPU kernel" : "Loops", first(lowered, (l) => l.trimStart().startsWith(`kernel ${symbol}`))),
      this.text(code, code === "cu" ? "CUDA C++" : "C", first(code, (l) => l.startsWith(`/* ==== ${symbol}.`)), (l) => l.startsWith("/* ==== ")),
    ]);
  }

  /** A part of a stage's text: from a line to the next one that is indented no deeper, or that `ends`. */
  text(name, title, place, ends = null) {
    if (!place || place[1] < 0) return "";
    const [number, from] = place;
    const stage = this.app.page.stages[number];
    const deep = (l) => l.length - l.trimStart().length;
    let to = from + 1;
    while (to < stage.lines.length && (ends ? !ends(stage.lines[to]) : !stage.lines[to].trim() || deep(stage.lines[to]) > deep(stage.lines[from]))) to++;
    const lines = stage.lines.slice(from, to);
    const pane = new LinePane(name, lines, (line) => this.app.state.set({ view: "stages", panes: [...new Set(["frontend", "region", name])].join(","), thing: stage.things[from + line] }, true));
    pane.node.style.height = `calc(${Math.min(24, lines.length) + 1} * var(--line))`;
    return [el("h3", {}, title, el("span", { class: "quiet" }, ` ${lines.length} lines of ${name}`)), pane.node];
  }
}
