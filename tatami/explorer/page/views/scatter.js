// Estimate against measurement: a dot per timed candidate of a search, both in seconds.

import { el, svg } from "../dom.js";
import { seconds } from "../numbers.js";

/** How well estimates order candidates, in a sentence. */
export function correlationText(t) {
  if (t.correlation === undefined || t.correlation === null) return "Too few candidates to say how well estimates order them.";
  return `Rank correlation of estimates and times among the candidates of a kernel: ${t.correlation.toFixed(2)} in the mean (1: the same order).`;
}

/** The picture. */
export function scatter(t) {
  const dots = [];
  for (const s of t.searches) {
    const of = (plan, estimate, taken, kind) => {
      if (estimate && taken) dots.push({ x: estimate, y: taken, kind, title: `${s.kernels.join(", ").replaceAll("main/", "")}: ${plan}` });
    };
    for (const c of s.tried ?? []) of(c.plan, c.estimate, c.seconds, c.is_winner ? "won" : s.stage);
    of(`the compiler's own: ${s.own}`, s.own_estimate, s.own_seconds, "own");
  }
  if (!dots.length) return el("p", { class: "quiet" }, "No candidate with an estimate was timed.");
  const [width, high, left, right, top, bottom] = [1180, 520, 84, 190, 16, 46];
  const log = Math.log10;
  const all = dots.flatMap((d) => [d.x, d.y]);
  const low = log(Math.min(...all)) - 0.1,
    most = log(Math.max(...all)) + 0.1;
  const x = (v) => left + ((log(v) - low) / (most - low)) * (width - left - right);
  const y = (v) => high - bottom - ((log(v) - low) / (most - low)) * (high - bottom - top);
  const out = svg("svg", {
    class: "roofline scatter",
    viewBox: `0 0 ${width} ${high}`,
    role: "img",
    "aria-label": "estimate against measurement of candidates",
  });
  const marks = [];
  for (let e = Math.floor(low); e <= Math.ceil(most); e++)
    for (const digit of most - low < 2.2 ? [1, 2, 5] : [1]) {
      const mark = log(digit) + e;
      if (mark >= low && mark <= most) marks.push(digit * 10 ** e);
    }
  for (const v of marks)
    out.append(
      svg("line", { class: "grid", x1: x(v), x2: x(v), y1: top, y2: high - bottom }),
      svg("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }),
      svg("text", { class: "axis", x: x(v), y: high - bottom + 16, "text-anchor": "middle" }, seconds(v)),
      svg("text", { class: "axis", x: left - 8, y: y(v) + 4, "text-anchor": "end" }, seconds(v)),
    );
  const line = (factor, label) => {
    const from = Math.max(10 ** low, 10 ** low / factor),
      to = Math.min(10 ** most, 10 ** most / factor);
    if (from >= to) return;
    out.append(
      svg("line", { class: factor === 1 ? "own" : "own dashed", x1: x(from), x2: x(to), y1: y(from * factor), y2: y(to * factor) }),
      svg("text", { class: "axis", x: x(to) + 6, y: y(to * factor) + (factor > 1 ? -2 : 4) }, label),
    );
  };
  line(1, "as estimated");
  line(2, "twice as long");
  line(0.5, "half as long");
  out.append(
    svg("text", { class: "axis", x: (left + width - right) / 2, y: high - 10, "text-anchor": "middle" }, "estimate"),
    svg("text", { class: "axis", transform: `translate(16,${(top + high - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, "measured"),
  );
  const order = { structure: 0, plans: 1, own: 2, won: 3 };
  for (const d of dots.sort((a, b) => order[a.kind] - order[b.kind]))
    out.append(
      svg(
        "circle",
        { class: `dot-${d.kind}`, cx: x(d.x), cy: y(d.y), r: d.kind === "won" ? 6 : d.kind === "own" ? 5 : 4 },
        svg("title", {}, `${d.title}: estimate ${seconds(d.x)}, took ${seconds(d.y)}`),
      ),
    );
  const legend = [
    ["plans", "another plan"],
    ["structure", "kernels cut or joined"],
    ["own", "the compiler's own"],
    ["won", "won"],
  ].filter(([kind]) => dots.some((d) => d.kind === kind));
  legend.forEach(([kind, text], k) =>
    out.append(
      svg("circle", { class: `dot-${kind}`, cx: width - right + 26, cy: high - bottom - 14 - 20 * (legend.length - k - 1), r: 5 }),
      svg("text", { class: "axis", x: width - right + 38, y: high - bottom - 10 - 20 * (legend.length - k - 1) }, text),
    ),
  );
  return out;
}
