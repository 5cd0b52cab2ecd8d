// Time: the waves of `main` in order with their kernels, and the kernels under the machine's roofs.

import { el, show, svg } from "../dom.js";
import { measured, nameOf, timeOf } from "../figures.js";
import { count, percent, seconds } from "../numbers.js";

const INK = { contraction: 28, streaming_pair: 28, stencil: 165, rows: 212, map: 220 };
const hueOf = (kernel) => INK[kernel.kind] ?? 280;

export class TimeView {
  constructor(app) {
    this.app = app;
    this.node = el("section", { class: "view time", "aria-label": "time" });
    this.done = false;
  }

  update() {
    if (this.done) return;
    this.done = true;
    const page = this.app.page;
    const kernels = page.kernels
      .map((k, number) => ({ ...k, number }))
      .filter((k) => k.program === "main" && timeOf(k) !== null && k.wave >= 0);
    if (!kernels.length) {
      show(
        this.node,
        el(
          "p",
          { class: "empty" },
          "No times: compile for this machine with --bench, or for a target whose plans have estimates.",
        ),
      );
      return;
    }
    const total = kernels.reduce((sum, k) => sum + timeOf(k), 0);
    const without = page.kernels.filter((k) => k.program === "main" && k.symbols?.length && timeOf(k) === null).length;
    show(
      this.node,
      el(
        "div",
        { class: "tools" },
        el("b", {}, measured(page) ? "measured" : "estimated"),
        el(
          "span",
          { class: "quiet" },
          measured(page)
            ? `whole program ${seconds(page.whole)}, kernels ${seconds(total)}`
            : `kernels ${seconds(total)} by their plans; --bench measures`,
        ),
        el(
          "span",
          { class: "kinds" },
          [...new Set(kernels.map((k) => k.kind))].map((kind) =>
            el("span", {}, el("i", { style: `--hue:${hueOf({ kind })}` }), kind),
          ),
        ),
        el("span", { class: "grow" }),
        el("span", { class: "quiet" }, "tatami bench --trace FILE writes a trace for Perfetto"),
      ),
      el(
        "div",
        { class: "scroll" },
        el("h2", { class: "part" }, "Waves"),
        this.waves(kernels, total),
        without ? el("p", { class: "quiet" }, `${without} kernel${without > 1 ? "s" : ""} without an estimate not shown`) : "",
        el("h2", { class: "part" }, "Roofline"),
        this.roofline(kernels, total),
      ),
    );
  }

  open(k) {
    this.app.state.set({ view: "kernels", kernel: k.number }, true);
  }

  waves(kernels, total) {
    const width = Math.max(1180, this.node.clientWidth - 44), // one unit is a pixel: letters keep their size
      left = 20,
      high = 30;
    const waves = new Map();
    for (const k of kernels) (waves.get(k.wave) ?? waves.set(k.wave, []).get(k.wave)).push(k);
    const out = svg("svg", {
      class: "waves",
      viewBox: `0 0 ${width} 92`,
      role: "img",
      "aria-label": "kernels in order of their waves, as long as their times",
    });
    let at = 0;
    const x = (s) => left + (s / total) * (width - 2 * left);
    let n = 0;
    for (const wave of [...waves.keys()].sort((a, b) => a - b)) {
      const begin = at;
      for (const k of waves.get(wave)) {
        const w = Math.max(0.6, x(at + timeOf(k)) - x(at) - 0.6);
        out.append(
          svg(
            "g",
            { class: "bar", onclick: () => this.open(k) },
            svg(
              "title",
              {},
              `${nameOf(k)} ${k.kind}: ${seconds(timeOf(k))}, ${percent(timeOf(k) / total)}; ${k.sources.join(", ")}`,
            ),
            svg("rect", { x: x(at), y: 28, width: w, height: high, rx: 2, style: `--hue:${hueOf(k)}` }),
            w > 26 ? svg("text", { x: x(at) + w / 2, y: 47, "text-anchor": "middle" }, k.name.slice(0, Math.floor(w / 7))) : "",
          ),
        );
        at += timeOf(k);
      }
      const w = x(at) - x(begin);
      out.append(
        svg(
          "rect",
          { class: `wave w${n++ % 2}`, x: x(begin), y: 16, width: Math.max(0.5, w - 0.6), height: 8 },
          svg("title", {}, `wave ${wave}`),
        ),
      );
      if (w > 44)
        out.append(svg("text", { class: "axis", x: x(begin) + w / 2, y: 11, "text-anchor": "middle" }, `wave ${wave}`));
    }
    for (let i = 0; i <= 5; i++)
      out.append(
        svg("line", { class: "grid", x1: x((total * i) / 5), x2: x((total * i) / 5), y1: 60, y2: 66 }),
        svg(
          "text",
          { class: "axis", x: x((total * i) / 5), y: 80, "text-anchor": i === 0 ? "start" : i === 5 ? "end" : "middle" },
          seconds((total * i) / 5) || "0",
        ),
      );
    return out;
  }

  roofline(kernels, total) {
    const peaks = this.app.page.peaks;
    const dots = kernels.filter((k) => k.flops && k.bytes).map((k) => ({ k, x: k.flops / k.bytes, y: k.flops / timeOf(k) }));
    if (!peaks || !dots.length) return el("p", { class: "quiet" }, "No kernel with floating-point operations and known sizes.");
    const width = Math.max(1180, Math.min(1900, this.node.clientWidth - 44));
    const high = Math.max(480, Math.min(900, this.node.clientHeight - 290));
    const [left, right, top, bottom] = [84, 150, 22, 46];
    const log = Math.log10;
    const ridge = peaks.flops / peaks.memory;
    const span = (values) => [Math.floor(log(Math.min(...values))), Math.ceil(log(Math.max(...values)))];
    const [x0, x1] = span([...dots.map((d) => d.x), ridge / 30, ridge * 4]);
    const [y0, y1] = span([...dots.map((d) => d.y), peaks.flops / 100, peaks.flops * 1.3]);
    const x = (v) => left + ((log(v) - x0) / (x1 - x0)) * (width - left - right);
    const y = (v) => high - bottom - ((log(v) - y0) / (y1 - y0)) * (high - bottom - top);
    const out = svg("svg", {
      class: "roofline",
      viewBox: `0 0 ${width} ${high}`,
      role: "group", // its dots take the focus
      "aria-label": "kernels under the roofline",
    });
    for (let e = x0; e <= x1; e++)
      out.append(
        svg("line", { class: "grid", x1: x(10 ** e), x2: x(10 ** e), y1: top, y2: high - bottom }),
        svg("text", { class: "axis", x: x(10 ** e), y: high - bottom + 16, "text-anchor": "middle" }, 10 ** e),
      );
    for (let e = y0; e <= y1; e++)
      out.append(
        svg("line", { class: "grid", x1: left, x2: width - right, y1: y(10 ** e), y2: y(10 ** e) }),
        svg("text", { class: "axis", x: left - 8, y: y(10 ** e) + 4, "text-anchor": "end" }, `${count(10 ** e, "FLOP/s")}`),
      );
    out.append(
      svg(
        "text",
        { class: "axis", x: (left + width - right) / 2, y: high - 10, "text-anchor": "middle" },
        "operations per byte",
      ),
    );
    const roof = (rate, label, dashed) => {
      const from = Math.max(10 ** x0, 10 ** y0 / rate),
        knee = Math.min(10 ** x1, peaks.flops / rate);
      out.append(
        svg("polyline", {
          class: `roof${dashed ? " dashed" : ""}`,
          points: `${x(from)},${y(from * rate)} ${x(knee)},${y(knee * rate)} ${x(10 ** x1)},${y(peaks.flops)}`,
        }),
      );
      const at = Math.sqrt(from * knee);
      const angle = (Math.atan2(y(knee * rate) - y(from * rate), x(knee) - x(from)) * 180) / Math.PI;
      out.append(
        svg(
          "text",
          { class: "axis", transform: `translate(${x(at)},${y(at * rate) - 6}) rotate(${angle})`, "text-anchor": "middle" },
          label,
        ),
      );
    };
    roof(peaks.cache, `cache ${count(peaks.cache, "B/s")}`, true);
    roof(peaks.memory, `memory ${count(peaks.memory, "B/s")}`, false);
    out.append(svg("text", { class: "axis", x: width - right + 8, y: y(peaks.flops) + 4 }, count(peaks.flops, "FLOP/s")));
    dots.sort((a, b) => timeOf(b.k) - timeOf(a.k));
    dots.forEach((d, n) => {
      const share = timeOf(d.k) / total;
      out.append(
        svg(
          "g",
          {
            class: "dot",
            tabindex: "0",
            role: "button",
            "aria-label": `${nameOf(d.k)}, ${percent(share)} of the time`,
            onclick: () => this.open(d.k),
            onkeydown: (e) => {
              if (e.key === "Enter") this.open(d.k);
            },
          },
          svg(
            "title",
            {},
            `${nameOf(d.k)} ${d.k.kind}: ${seconds(timeOf(d.k))}, ${count(d.y, "FLOP/s")}, ${Number(d.x.toPrecision(3))} operations per byte, ${percent(share)} of the time`,
          ),
          svg("circle", { cx: x(d.x), cy: y(d.y), r: 4 + 15 * Math.sqrt(share), style: `--hue:${hueOf(d.k)}` }),
          n < 10 ? svg("text", { x: x(d.x) + 7 + 15 * Math.sqrt(share), y: y(d.y) + 4 }, nameOf(d.k)) : "",
        ),
      );
    });
    const rest = kernels.length - dots.length;
    return [
      out,
      rest
        ? el(
            "p",
            { class: "quiet" },
            `${rest} kernel${rest > 1 ? "s" : ""} without floating-point operations, or of sizes that data decide, not shown`,
          )
        : "",
      this.app.page.peaks.measured ? "" : el("p", { class: "quiet" }, "Roofs of the machine's description, not measured."),
    ];
  }
}
