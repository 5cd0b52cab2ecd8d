// The simulated pipeline of a GPU kernel: a lane per role, with the token that it waits for, and a lane per unit of the SM.

import { el, say, svg } from "../dom.js";
import { percent, seconds, ticks } from "../numbers.js";

const LANE = 24;
const LANES_FROM = 190;
const LANES_WIDTH = 1180;

/** The picture of a pipeline, with buttons that show a part of it. */
export function pipelineOf(p) {
  let begin = 0,
    end = p.cycles;
  const box = el("div", { class: "pipeline" });
  const draw = () => {
    box.replaceChildren(picture(p, begin, end));
  };
  const look = (from, to, text) => {
    begin = Math.max(0, from);
    end = Math.min(p.cycles, to);
    draw();
    say(text);
  };
  const middle = () => (begin + end) / 2;
  const reach = () => end - begin;
  draw();
  const tool = (text, label, from, to) =>
    el("button", { "aria-label": label, title: label, onclick: () => look(from(), to(), label) }, text);
  return [
    el(
      "div",
      { class: "controls" },
      tool("+", "closer", () => middle() - reach() / 4, () => middle() + reach() / 4),
      tool("−", "farther", () => middle() - reach(), () => middle() + reach()),
      tool("←", "earlier", () => Math.max(0, begin - reach() / 2), () => Math.max(0, begin - reach() / 2) + reach()),
      tool("→", "later", () => Math.min(p.cycles, end + reach() / 2) - reach(), () => Math.min(p.cycles, end + reach() / 2)),
      tool("all", "the whole time line", () => 0, () => p.cycles),
      el("span", { class: "kinds" }, el("span", {}, el("i", { class: "works" }), "works"), el("span", {}, el("i", { class: "waits" }), "waits for a token")),
    ),
    box,
    el(
      "p",
      { class: "quiet" },
      `Simulated, not measured: the first ${p.tiles} tile${p.tiles > 1 ? "s" : ""} of one SM, ${p.blocks} of ${p.of_blocks} blocks each; ` +
        `${Math.round(p.cycles)} cycles${p.clock ? `, ${seconds(p.cycles / p.clock)}` : ""}.`,
    ),
  ];
}

function picture(p, begin, end) {
  const high = 30 + LANE * p.lanes.length;
  const x = (v) => LANES_FROM + ((v - begin) / (end - begin)) * (LANES_WIDTH - LANES_FROM - 70);
  const out = svg("svg", {
    class: "waves lanes",
    viewBox: `0 0 ${LANES_WIDTH} ${high}`,
    role: "img",
    "aria-label": "roles and units of one SM over time",
  });
  const step = ticks(end - begin)[1] / 2;
  for (let v = Math.ceil(begin / step) * step; v <= end; v += step) {
    out.append(
      svg("line", { class: "grid", x1: x(v), x2: x(v), y1: 4, y2: high - 22 }),
      svg("text", { class: "axis", x: x(v), y: high - 6, "text-anchor": "middle" }, Math.round(v)),
    );
  }
  p.lanes.forEach((lane, k) => {
    const y = 6 + LANE * k;
    const busy = lane.spans.reduce((sum, [from, to, token]) => sum + (token < 0 ? to - from : 0), 0);
    out.append(
      svg("text", { class: lane.is_role ? "" : "axis", x: LANES_FROM - 10, y: y + 14, "text-anchor": "end" }, lane.name.slice(0, 28)),
      svg("text", { class: "axis", x: LANES_WIDTH - 60, y: y + 14 }, percent(busy / p.cycles)),
      svg("g", { class: lane.is_role ? "lane role" : "lane" }, spansOf(p, lane, y, x, begin, end)),
    );
  });
  return out;
}

function spansOf(p, lane, y, x, begin, end) {
  const found = [];
  for (const [from, to, token] of lane.spans) {
    if (to <= begin || from >= end) continue;
    const x0 = x(Math.max(from, begin)),
      w = Math.max(0.5, x(Math.min(to, end)) - x0);
    const what = token < 0 ? "works" : `waits for ${p.tokens[token]}`;
    const text = token < 0 ? "" : short(p.tokens[token]);
    found.push(
      svg(
        "g",
        { class: token < 0 ? "works" : "waits" },
        svg("title", {}, `${lane.name} ${what}: ${from} to ${to}, ${to - from} cycles`),
        svg("rect", { x: x0, y: y + (token < 0 ? 1 : 4), width: w, height: token < 0 ? LANE - 6 : LANE - 12, rx: 1 }),
        text && w > 6.2 * text.length ? svg("text", { class: "axis", x: x0 + w / 2, y: y + 14, "text-anchor": "middle" }, text) : "",
      ),
    );
  }
  return found;
}

const short = (token) => token.replace(/, phase \d+$/, "");
