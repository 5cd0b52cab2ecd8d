// The arena: every buffer as a rectangle, instructions across and addresses up; what lives at the peak is listed.

import { choice, el, show, svg, table } from "../dom.js";
import { bytes, percent } from "../numbers.js";

const BUFFER_HUES = [212, 28, 145, 280, 350, 90, 190, 50, 320, 165];
const LEFT = 84,
  BOTTOM = 66;

export class MemoryView {
  constructor(app) {
    this.app = app;
    this.node = el("section", { class: "view memory", "aria-label": "memory" });
  }

  update() {
    const all = this.app.page.memory.filter((m) => m.blocks?.length || m.missing);
    const name = this.app.state.get("program", all[0]?.program ?? "");
    const m = all.find((x) => x.program === name) ?? all[0];
    if (!m) {
      show(this.node, el("p", { class: "empty" }, "The program has no intermediate values in memory."));
      return;
    }
    const tools = el(
      "div",
      { class: "tools" },
      all.length > 1
        ? choice(
            "program",
            all.map((x) => [x.program, x.program]),
            m.program,
            (p) => this.app.state.set({ program: p, at: "" }),
          )
        : "",
      el("span", { class: "grow" }),
      m.blocks?.length
        ? el(
            "span",
            {},
            el("b", {}, bytes(m.peak)),
            el("span", { class: "quiet" }, ` of memory; ${bytes(m.without_reuse)} without reuse`),
            m.without_reuse ? ` (${percent(m.peak / m.without_reuse)})` : "",
          )
        : "",
    );
    if (!m.blocks?.length) {
      show(this.node, tools, el("p", { class: "empty" }, m.missing || "no buffers"));
      return;
    }
    const live = m.steps.map((_, s) => m.blocks.filter((b) => b.first <= s && s <= b.last));
    const size = live.map((blocks) => blocks.reduce((sum, b) => sum + b.bytes, 0));
    const peak = size.indexOf(Math.max(...size));
    const at = Math.min(Math.max(0, this.app.state.number("at", peak)), m.steps.length - 1);
    show(
      this.node,
      tools,
      el(
        "div",
        { class: "split" },
        el("div", { class: "scroll picture" }, this.picture(m, at, peak)),
        el(
          "aside",
          { class: "side" },
          el("h2", {}, `At instruction ${at}`, at === peak ? " (the peak)" : ""),
          el("p", { class: "quiet" }, `${m.steps[at]}, wave ${m.waves[at]}: ${bytes(size[at])} in ${live[at].length} buffers`),
          table(
            ["buffer", "bytes", "address", "lives"],
            live[at]
              .toSorted((a, b) => b.bytes - a.bytes)
              .map((b) =>
                el(
                  "tr",
                  {},
                  el(
                    "th",
                    { scope: "row" },
                    el("button", { class: "plain", onclick: () => this.go(b) }, b.id),
                    el("div", { class: "quiet" }, b.type),
                  ),
                  el("td", { class: "n" }, bytes(b.bytes)),
                  el("td", { class: "n" }, b.offset),
                  el("td", { class: "n" }, `${b.first}–${b.last}`),
                ),
              ),
          ),
          at !== peak ? el("p", {}, el("button", { onclick: () => this.app.state.set({ at: "" }) }, "go to the peak")) : "",
        ),
      ),
    );
  }

  go(block) {
    if (block.thing >= 0) this.app.state.set({ view: "stages", panes: "region,execution", thing: block.thing }, true);
  }

  picture(m, at, peak) {
    const steps = m.steps.length;
    const room = Math.max(400, (this.node.clientWidth || 1280) - 330 - LEFT - 60);
    const wide = Math.max(16, Math.min(240, room / steps));
    const high = Math.max(420, Math.min(900, this.node.clientHeight - 66 - BOTTOM));
    const x = (s) => LEFT + s * wide;
    const y = (b) => high - (b / Math.max(1, m.peak)) * (high - 24);
    const width = LEFT + steps * wide + 20;
    const out = svg("svg", {
      width,
      height: high + BOTTOM,
      viewBox: `0 0 ${width} ${high + BOTTOM}`,
      role: "img",
      tabindex: "0",
      "aria-label": `arena of ${m.program}: ${m.blocks.length} buffers, ${bytes(m.peak)}; arrow keys choose an instruction`,
      onkeydown: (e) => {
        const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
        if (!by) return;
        e.preventDefault();
        this.app.state.set({ at: Math.min(steps - 1, Math.max(0, at + by)) });
        this.node.querySelector("svg").focus();
      },
    });
    for (let i = 0; i <= 4; i++) {
      const b = (m.peak * i) / 4;
      out.append(
        svg("line", { class: "grid", x1: LEFT, x2: width - 20, y1: y(b), y2: y(b) }),
        svg("text", { class: "axis", x: LEFT - 8, y: y(b) + 4, "text-anchor": "end" }, bytes(Math.round(b))),
      );
    }
    out.append(svg("rect", { class: "now", x: x(at), y: 12, width: wide, height: high - 12 }));
    m.blocks.forEach((b, k) => {
      const left = x(b.first),
        w = x(b.last + 1) - left - 1,
        top = y(b.offset + b.bytes),
        h = Math.max(1, y(b.offset) - top - 1);
      const fit = h > 13 && w > 30;
      out.append(
        svg(
          "g",
          { class: "buffer", onclick: () => this.go(b) },
          svg("title", {}, `${b.id} ${b.type}: ${bytes(b.bytes)} at ${b.offset}, instructions ${b.first} to ${b.last}`),
          svg("rect", { x: left, y: top, width: w, height: h, rx: 2, style: `--hue:${BUFFER_HUES[k % BUFFER_HUES.length]}` }),
          fit
            ? svg(
                "text",
                { x: left + 5, y: top + Math.min(h / 2 + 4, 14) },
                (w > 130 ? `${b.id} ${b.type}` : b.id).slice(0, Math.floor((w - 8) / 6.6)),
              )
            : "",
        ),
      );
    });
    const every = Math.ceil(18 / wide);
    const level = wide > 70; // room for names that lie
    m.steps.forEach((name, s) => {
      out.append(
        svg(
          "rect",
          { class: "pick", x: x(s), y: high, width: wide, height: BOTTOM, onclick: () => this.app.state.set({ at: s }) },
          svg("title", {}, `instruction ${s}: ${name}`),
        ),
      );
      if (s % every === 0)
        out.append(
          svg(
            "text",
            {
              class: `axis${s === at ? " chosen" : ""}`,
              "text-anchor": level ? "middle" : "start",
              transform: level
                ? `translate(${x(s) + wide / 2},${high + 18})`
                : `translate(${x(s) + wide / 2 + 3},${high + 10}) rotate(60)`,
            },
            name.slice(0, 9),
          ),
        );
    });
    out.append(svg("text", { class: "axis", x: x(peak) + wide / 2, y: 9, "text-anchor": "middle" }, "peak"));
    return out;
  }
}
