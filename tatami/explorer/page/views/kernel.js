// The page of one kernel: Region, plan, rejected plans, loops, code, and why it is a kernel of its own.

import { el, table } from "../dom.js";
import { planForm } from "./edit.js";
import { LinePane } from "../lines.js";
import { nameOf } from "../figures.js";
import { pipelineOf } from "./pipeline.js";
import { bytes, count, seconds } from "../numbers.js";

export class KernelPage {
  /** `view`: the KernelsView, which opens other kernels. */
  constructor(app, view) {
    this.app = app;
    this.view = view;
  }

  /** The page of the kernel of this number. */
  show(number) {
    const { page, state, links } = this.app;
    const k = page.kernels[number];
    const facts = [
      ["kind", k.kind],
      ["wave", k.wave >= 0 ? k.wave : ""],
      ["measured", seconds(k.seconds)],
      ["bound by peaks", seconds(k.bound)],
      ["estimate", seconds(k.estimate)],
      ["operations", count(k.flops)],
      ["bytes", bytes(k.bytes)],
      ["operations per byte", k.flops && k.bytes ? Number((k.flops / k.bytes).toPrecision(3)) : ""],
      ["work", k.work || ""],
      ["key", k.key || ""],
    ].filter(([, v]) => v !== "" && v !== null && v !== undefined);
    const step = (by) => this.view.open(Math.min(page.kernels.length - 1, Math.max(0, number + by)));
    return el(
      "article",
      { class: "kernel" },
      el(
        "div",
        { class: "tools" },
        el(
          "button",
          {
            onclick: () => {
              state.set({ kernel: "" }, true);
              this.view.node.querySelector("tbody a")?.focus();
            },
          },
          "← all kernels",
        ),
        el("button", { onclick: () => step(-1), disabled: number === 0 }, "previous"),
        el("button", { onclick: () => step(1), disabled: number === page.kernels.length - 1 }, "next"),
        el("span", { class: "grow" }),
        el("button", { onclick: () => state.set({ view: "stages", thing: k.thing }, true) }, "show in stages"),
        (k.nodes || []).length ? el("button", { onclick: () => this.app.showNode(k.nodes[0]) }, "show in model") : "",
      ),
      el("h2", { tabindex: "-1" }, nameOf(k), " ", el("span", { class: "quiet" }, k.kind)),
      el(
        "p",
        { class: "computes" },
        k.sources.length
          ? ["computes ", k.sources.map((s) => [el("code", {}, s), " "])]
          : "no node of the model: the compiler added it",
      ),
      el(
        "dl",
        { class: "facts" },
        facts.map(([n, v]) => el("div", {}, el("dt", {}, n), el("dd", {}, v))),
      ),
      page.pipelines?.[k.key] ? [el("h3", {}, "The pipeline on one SM"), ...pipelineOf(page.pipelines[k.key])] : "",
      el(
        "div",
        { class: "columns" },
        el(
          "div",
          {},
          (k.choices || []).map((c) => this.choice(k, c)),
          (k.rejected || []).length ? this.rejected(k) : "",
        ),
        el(
          "div",
          {},
          k.separate?.length ? this.separate(k) : "",
          k.moves ? [el("h3", {}, "A copy"), el("p", {}, k.moves)] : "",
          this.text("region", "Region", links.place(k.thing)),
          k.symbols?.length ? this.symbols(k) : "",
        ),
      ),
    );
  }

  choice(k, c) {
    return [
      el("h3", {}, k.choices.length > 1 ? `Plan ${c.when ? `when ${c.when}` : "else"}` : "Plan"),
      el("pre", { class: "block" }, c.lines.join("\n")),
      c.terms ? el("p", { class: "terms" }, `estimate: ${c.terms}`) : "",
      c.budget ? el("p", { class: "terms" }, c.budget) : "",
      planForm(this.app, k, c),
    ];
  }

  rejected(k) {
    const best = k.choices[k.choices.length - 1]?.seconds || 0; // at the sizes of the others' estimates
    const bar = (v, name) =>
      v && best
        ? el("i", { class: `bar ${name}`, style: `width:${Math.min(80, Math.max(2, 12 + 24 * Math.log10(v / best)))}px` })
        : "";
    return [
      el("h3", {}, `Rejected plans (${k.rejected.length})`),
      table(
        ["plan", "estimate", "why"],
        [
          best
            ? el(
                "tr",
                { class: "chosen" },
                el("td", {}, "chosen: ", k.choices[k.choices.length - 1].plan),
                el("td", { class: "n" }, bar(best, "good"), seconds(best)),
                el(
                  "td",
                  {},
                  `chosen by the ${k.by === "planner" ? "planner: the fastest by estimate" : k.by === "tuned" ? "table of tuned plans" : "user"}`,
                ),
              )
            : "",
          k.rejected.map((r) =>
            el(
              "tr",
              {},
              el("td", {}, r.plan),
              el("td", { class: "n" }, bar(r.seconds, ""), seconds(r.seconds)),
              el("td", { title: r.terms || null }, r.why),
            ),
          ),
        ],
        { class: "rejected" },
      ),
    ];
  }

  separate(k) {
    return [
      el("h3", {}, "Why not fused with its neighbours"),
      el(
        "ul",
        { class: "reasons" },
        k.separate.map((s) =>
          el(
            "li",
            {},
            el("code", {}, `${s.producer} → ${s.consumer}`),
            ` with ${s.other}: `,
            el("b", {}, s.rule),
            s.why ? `; ${s.why}` : "",
          ),
        ),
      ),
    ];
  }

  symbols(k) {
    const { page } = this.app;
    const number = (name) => page.stages.findIndex((s) => s.name === name);
    const lowered = page.stages.some((s) => s.name === "gpu") ? "gpu" : "loop";
    const code = lowered === "gpu" ? "cu" : "c";
    const first = (stage, test) => (number(stage) < 0 ? null : [number(stage), page.stages[number(stage)].lines.findIndex(test)]);
    return k.symbols.map((symbol) => [
      this.text(
        lowered,
        lowered === "gpu" ? "GPU kernel" : "Loops",
        first(lowered, (l) => l.trimStart().startsWith(`kernel ${symbol}`)),
      ),
      this.text(
        code,
        code === "cu" ? "CUDA C++" : "C",
        first(code, (l) => l.startsWith(`/* ==== ${symbol}.`)),
        (l) => l.startsWith("/* ==== "),
      ),
    ]);
  }

  /** A part of a stage's text: from a line to the next one that is indented no deeper, or that `ends`. */
  text(name, title, place, ends = null) {
    if (!place || place[1] < 0) return "";
    const [number, from] = place;
    const stage = this.app.page.stages[number];
    const deep = (l) => l.length - l.trimStart().length;
    let to = from + 1;
    while (
      to < stage.lines.length &&
      (ends ? !ends(stage.lines[to]) : !stage.lines[to].trim() || deep(stage.lines[to]) > deep(stage.lines[from]))
    )
      to++;
    while (!stage.lines[to - 1].trim()) to--;
    const lines = stage.lines.slice(from, to);
    const pane = new LinePane(name, lines, (line) =>
      this.app.state.set(
        { view: "stages", panes: [...new Set(["frontend", "region", name])].join(","), thing: stage.things[from + line] },
        true,
      ),
    );
    pane.node.style.height = `calc(${Math.min(24, lines.length) + 1} * var(--line))`;
    return [el("h3", {}, title, el("span", { class: "quiet" }, ` ${lines.length} lines of ${name}`)), pane.node];
  }
}
