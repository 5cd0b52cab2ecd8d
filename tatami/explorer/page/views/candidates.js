// The candidates of one subject of a search: a picture of the rounds in which each of them was left behind, and a table.

import { el, svg, table } from "../dom.js";
import { seconds } from "../numbers.js";

const VERDICTS = {
  right: "agrees with the reference, not timed",
  timed: "timed, and left behind",
  faster: "faster in the test",
  "not faster": "not faster in the test",
};

/** The picture and the table of a subject. */
export function candidatesOf(s) {
  const tried = s.tried ?? [];
  return [
    el(
      "p",
      { class: "quiet" },
      `the compiler's own: ${s.own}`,
      s.own_seconds ? `, ${seconds(s.own_seconds)}` : "",
      s.own_estimate ? ` (estimate ${seconds(s.own_estimate)})` : "",
    ),
    tried.filter((c) => c.ratios?.length).length > 1 ? rounds(tried) : "",
    table(
      ["candidate", "estimate", "measured", "of own", "what became of it"],
      tried.map((c) =>
        el(
          "tr",
          { class: c.is_winner ? "chosen" : "" },
          el("th", { scope: "row", class: "plan" }, c.plan),
          el("td", { class: "n" }, seconds(c.estimate)),
          el("td", { class: "n" }, seconds(c.seconds)),
          el("td", { class: "n" }, c.ratios?.length ? c.ratios[c.ratios.length - 1].toFixed(3) : ""),
          el("td", {}, c.is_winner ? "won" : (VERDICTS[c.verdict] ?? c.verdict), c.why ? `: ${c.why}` : ""),
        ),
      ),
      { class: "tried" },
    ),
  ];
}

/** Successive halving: the ratio of each candidate in each round that it was timed in; the test is the last column. */
function rounds(tried) {
  const timed = tried.filter((c) => c.ratios?.length);
  const halvings = Math.max(1, ...timed.map((c) => c.ratios.length - (c.is_tested ? 1 : 0)));
  const [width, high, left, right, top, bottom] = [760, 240, 60, 30, 16, 30];
  const all = timed.flatMap((c) => c.ratios);
  const low = Math.min(0.95, ...all) * 0.97,
    most = Math.max(1.05, ...all) * 1.03;
  const x = (column) => left + (column / halvings) * (width - left - right);
  const y = (ratio) => top + ((Math.log(most) - Math.log(ratio)) / (Math.log(most) - Math.log(low))) * (high - top - bottom);
  const out = svg("svg", {
    class: "waves rounds",
    viewBox: `0 0 ${width} ${high}`,
    role: "img",
    "aria-label": "ratio to the own decision in each round",
  });
  for (let column = 0; column <= halvings; column++)
    out.append(
      svg("line", { class: "grid", x1: x(column), x2: x(column), y1: top, y2: high - bottom }),
      svg(
        "text",
        { class: "axis", x: x(column), y: high - bottom + 16, "text-anchor": "middle" },
        column === halvings ? "test" : `round ${column + 1}`,
      ),
    );
  for (const ratio of [0.25, 0.5, 0.75, 1, 1.5, 2, 4].filter((r) => r >= low && r <= most))
    out.append(
      svg("line", { class: ratio === 1 ? "own" : "grid", x1: left, x2: width - right, y1: y(ratio), y2: y(ratio) }),
      svg("text", { class: "axis", x: left - 8, y: y(ratio) + 4, "text-anchor": "end" }, ratio),
    );
  for (const c of [...timed].reverse()) {
    const places = c.ratios.map((r, k) => [x(c.is_tested && k === c.ratios.length - 1 ? halvings : k), y(r)]);
    out.append(
      svg(
        "g",
        { class: c.is_winner ? "course won" : "course" },
        svg("title", {}, `${c.plan}: ${c.ratios.map((r) => r.toFixed(3)).join(", ")}`),
        svg("polyline", { points: places.map((p) => p.join()).join(" ") }),
        places.map(([cx, cy]) => svg("circle", { cx, cy, r: c.is_winner ? 4.5 : 3 })),
      ),
    );
  }
  return out;
}
