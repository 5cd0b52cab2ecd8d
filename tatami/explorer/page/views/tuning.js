// Tuning: what a search measured. The best over time, what changed, estimate against measurement, and the tree of the search.

import { choice, el, show, svg, table } from "../dom.js";
import { percent, seconds, ticks } from "../numbers.js";
import { candidatesOf } from "./candidates.js";
import { correlationText, scatter } from "./scatter.js";

const GROUPS = [
  ["structure", "Kernels cut or joined"],
  ["plans", "Plans of kernels"],
];
const sizesOf = (t) =>
  Object.entries(t.sizes)
    .map(([n, v]) => `${n}=${v}`)
    .join(" ");

export class TuningView {
  constructor(app) {
    this.app = app;
    this.node = el("section", { class: "view tuning", "aria-label": "tuning" });
    this.shown = -1;
  }

  update() {
    const searches = this.app.page.tunings;
    const number = Math.max(0, Math.min(searches.length - 1, this.app.state.number("search", 0)));
    if (number === this.shown) return;
    this.shown = number;
    const t = searches[number];
    const tried = t.searches.flatMap((s) => s.tried ?? []);
    const timed = tried.filter((c) => c.ratios?.length).length;
    show(
      this.node,
      el(
        "div",
        { class: "tools" },
        searches.length > 1
          ? choice(
              "search",
              searches.map((one, k) => [String(k), `${sizesOf(one) || "all sizes"}, ${one.threads} threads`]),
              String(number),
              (k) => this.app.state.set({ search: k }),
            )
          : "",
        el("b", {}, this.result(t)),
        el("span", { class: "grow" }),
        el(
          "span",
          { class: "quiet" },
          [
            `${tried.length} candidates, ${timed} timed`,
            `${t.threads} thread${t.threads > 1 ? "s" : ""}`,
            (t.left ?? -1) < 0 ? "the search has not ended" : t.left ? `${t.left} kernels not finished` : "",
          ]
            .filter(Boolean)
            .join(" · "),
        ),
      ),
      el(
        "div",
        { class: "scroll" },
        el("h2", { class: "part" }, "What changed"),
        this.changes(t),
        el(
          "div",
          { class: "columns wide" },
          el("div", {}, el("h2", { class: "part" }, "The best over time"), this.line(t)),
          el(
            "div",
            {},
            el("h2", { class: "part" }, "Estimate against measurement"),
            el("p", { class: "quiet" }, correlationText(t)),
            scatter(t),
          ),
        ),
        el("h2", { class: "part" }, "The search"),
        this.tree(t),
      ),
    );
  }

  result(t) {
    if (!t.ratio && (t.left ?? -1) < 0) return "The search has not ended, and nothing is adopted yet";
    if (!t.ratio) return "Nothing faster was found: the decisions are the compiler's own";
    return `Whole program ${seconds(t.before)} before, ${seconds(t.after)} after: ${t.ratio.toFixed(3)} of the time`;
  }

  /** The way to a kernel's page, if the page has a kernel with this plan's key. */
  link(key, text) {
    const number = this.app.page.kernels.findIndex((k) => key && k.key === key);
    if (number < 0) return text;
    return el(
      "a",
      {
        href: "#",
        onclick: (e) => {
          e.preventDefault();
          this.app.state.set({ view: "kernels", kernel: number }, true);
        },
      },
      text,
    );
  }

  changes(t) {
    if (!t.changes?.length && (t.left ?? -1) < 0) return el("p", { class: "quiet" }, "No kernel yet.");
    if (!t.changes?.length) return el("p", { class: "quiet" }, "No kernel: nothing won that shows in the whole program.");
    return [
      table(
        ["kernel", "before", "after", "of before", "was", "is"],
        t.changes.map((c) =>
          el(
            "tr",
            {},
            el("th", { scope: "row" }, this.link(c.key, kernelNames(c.kernels) || "a call")),
            el("td", { class: "n" }, seconds(c.before)),
            el("td", { class: "n" }, seconds(c.after)),
            el(
              "td",
              { class: "n" },
              c.before ? [el("i", { class: "bar good", style: `width:${(60 * c.after) / c.before}px` }), (c.after / c.before).toFixed(2)] : "",
            ),
            el("td", { class: "plan" }, c.old),
            el("td", { class: "plan" }, c.new),
          ),
        ),
        { class: "changes" },
      ),
      el("p", { class: "quiet" }, "Each row is one kernel in turns of its own; rows do not add up to the times of the program."),
      t.turns ? el("p", { class: "quiet" }, `The whole program in ${t.turns} turns with the compiler's own decisions; the ratio is the median of theirs.`) : "",
      t.dropped?.length
        ? el(
            "ul",
            { class: "reasons" },
            t.dropped.map((line) => el("li", {}, `dropped, since it does not show in the whole program: ${line}`)),
          )
        : "",
    ];
  }

  line(t) {
    if (!t.moments[0].seconds) return el("p", { class: "quiet" }, "The search ended before the program was timed.");
    const [width, high, left, right, top, bottom] = [1180, 250, 84, 24, 14, 40];
    const until = Math.max(1, ...t.moments.map((m) => m.at)) * 1.02;
    const most = Math.max(...t.moments.map((m) => m.seconds)) * 1.08;
    const x = (v) => left + (v / until) * (width - left - right);
    const y = (v) => high - bottom - (v / most) * (high - bottom - top);
    const out = svg("svg", {
      class: "waves best",
      viewBox: `0 0 ${width} ${high}`,
      role: "img",
      "aria-label": "time of the best program over the time of the search",
    });
    for (const v of ticks(most))
      out.append(
        svg("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }),
        svg("text", { class: "axis", x: left - 8, y: y(v) + 4, "text-anchor": "end" }, v ? seconds(v) : "0"),
      );
    for (const v of ticks(until))
      out.append(svg("text", { class: "axis", x: x(v), y: high - bottom + 16, "text-anchor": "middle" }, v ? seconds(v) : "0"));
    out.append(
      svg(
        "text",
        { class: "axis", x: (left + width - right) / 2, y: high - 6, "text-anchor": "middle" },
        "time of the search, pauses between runs left out",
      ),
    );
    let points = "";
    t.moments.forEach((m, k) => {
      if (k) points += ` ${x(m.at)},${y(t.moments[k - 1].seconds)}`;
      points += ` ${x(m.at)},${y(m.seconds)}`;
    });
    const last = t.moments[t.moments.length - 1];
    out.append(svg("polyline", { class: "best", points: `${points} ${x(until)},${y(last.seconds)}` }));
    t.moments.forEach((m, k) => {
      const better = k > 0 && m.seconds < t.moments[k - 1].seconds;
      out.append(
        svg(
          "circle",
          { class: better ? "better" : "same", cx: x(m.at), cy: y(m.seconds), r: better ? 5 : 3 },
          svg("title", {}, `${seconds(m.at) || "0 s"}: ${m.what}, program ${seconds(m.seconds)}`),
        ),
      );
    });
    return out;
  }

  tree(t) {
    return el(
      "ul",
      { class: "tree" },
      GROUPS.map(([stage, title]) => {
        const found = t.searches.filter((s) => s.stage === stage);
        if (!found.length) return "";
        const won = found.filter((s) => s.tried?.some((c) => c.is_winner)).length;
        return el(
          "li",
          {},
          el("b", {}, title),
          el("span", { class: "quiet" }, ` ${found.length} searched, ${won} with a faster one`),
          el(
            "ul",
            {},
            found.map((s) => this.subject(s)),
          ),
        );
      }),
    );
  }

  /** One subject: a line with its best, and its candidates once it is opened. */
  subject(s) {
    const tried = s.tried ?? [];
    const winner = tried.find((c) => c.is_winner);
    const inside = el("div", { class: "candidates" });
    const where = [s.sizes, s.caches === "cold" ? "cold caches" : ""].filter(Boolean).join(", ");
    return el(
      "li",
      {},
      el(
        "details",
        {
          ontoggle: (e) => {
            if (!e.target.open || inside.firstChild) return;
            const link = this.link(s.key, "the page of the kernel");
            show(inside, typeof link === "string" ? "" : el("p", {}, link), candidatesOf(s));
          },
        },
        el(
          "summary",
          {},
          kernelNames(s.kernels),
          el("span", { class: "quiet" }, ` ${percent(s.share)} of the time, ${tried.length} candidate${tried.length === 1 ? "" : "s"}${where ? `, ${where}` : ""}: `),
          winner
            ? [el("b", { class: "agrees" }, `${lastRatio(winner).toFixed(3)} `), s.stage === "plans" ? winner.plan : s.line]
            : el("span", {}, s.note ? `stays: ${s.note}` : s.stage === "plans" ? "the compiler's own plan stays" : `${s.line}: not faster`),
        ),
        inside,
      ),
    );
  }
}

const lastRatio = (c) => c.ratios[c.ratios.length - 1];

function kernelNames(kernels) {
  const shown = kernels.slice(0, 4).map((k) => k.replace(/^main\//, ""));
  return shown.join(", ") + (kernels.length > 4 ? ` and ${kernels.length - 4} more` : "");
}
