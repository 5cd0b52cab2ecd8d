// What an edit led to: a refusal with its places, or the new compilation next to that of the page.

import { saveFile } from "../ask.js";
import { differing } from "../diff.js";
import { choice, el, show } from "../dom.js";
import { timeOf } from "../figures.js";
import { LinePane } from "../lines.js";
import { seconds } from "../numbers.js";

/** The faults that refuse an edit. `go(line)`: called for a fault with a place, null without an editor. */
export function refusal(answer, go = null) {
  return [
    el("h2", { class: "part" }, "Refused"),
    el(
      "ul",
      { class: "reasons faults" },
      answer.faults.map((f, k) => {
        const place = answer.places?.[k];
        return el(
          "li",
          {},
          go && place ? [el("button", { onclick: () => go(place.line) }, `line ${place.line + 1}`), " "] : "",
          el("b", {}, `${f.code} ${f.kind}`),
          ` at ${f.at}: ${f.why}`,
          el("span", { class: "suggestion" }, f.suggestion),
        );
      }),
    ),
  ];
}

const whole = (page) => page.kernels.reduce((sum, k) => sum + (k.program === "main" ? (k.estimate ?? timeOf(k) ?? 0) : 0), 0);

/** Stages of both pages whose text differs: [name, lines of this page, lines of the other, gone, come]. */
function changedStages(app, page) {
  return page.stages.flatMap(({ name, lines }) => {
    const was = app.page.stages.find((s) => s.name === name);
    if (!was || name === "source") return [];
    const [gone, come] = differing(was.lines, lines);
    return gone.size + come.size ? [[name, lines, gone, come]] : [];
  });
}

/** The result of an accepted edit. `kernel`: the one that it was about, or null; `decision`: a document to save, or null; `planned`: false
 * if the plans, and so their estimates, are as the edited document has them. */
export function acceptance(app, page, { kernel = null, decision = null, notes = [], planned = true }) {
  const changed = changedStages(app, page);
  const now = kernel && page.kernels.find((k) => k.program === kernel.program && k.name === kernel.name);
  const [before, after] = kernel ? [kernel.estimate, now?.estimate] : [whole(app.page), whole(page)];
  const place = el("div", { class: "changed" });
  const pick = (name) => {
    const [, lines, , come] = changed.find(([n]) => n === name);
    const pane = new LinePane(name, lines, () => {});
    pane.differs = come;
    show(place, pane.node);
    const first = Math.min(...come);
    if (come.size) requestAnimationFrame(() => pane.bring(first));
  };
  const last = changed[changed.length - 1]?.[0];
  const warnings = (page.warnings ?? []).filter((w) => !(app.page.warnings ?? []).includes(w));
  const out = [
    el("h2", { class: "part" }, "Accepted"),
    el(
      "p",
      {},
      planned
        ? `estimate ${seconds(before) || "unknown"} → ${seconds(after) || "unknown"}; `
        : "estimates are those that the document has; ",
      changed.length === 1 ? "1 stage changed" : `${changed.length || "no"} stages changed`,
    ),
    warnings.length || notes.length
      ? el(
          "ul",
          { class: "reasons" },
          [...warnings, ...notes].map((w) => el("li", {}, w)),
        )
      : "",
    el(
      "div",
      { class: "controls" },
      el("button", { type: "button", onclick: () => app.compareWith(page) }, "compare the two compilations"),
      decision
        ? el(
            "button",
            { type: "button", onclick: () => saveFile("decisions.json", JSON.stringify(decision, null, 1)) },
            "save as decisions.json",
          )
        : "",
      changed.length
        ? choice(
            "changed stage",
            changed.map(([n, , gone, come]) => [n, `${n}: ${gone.size} lines went, ${come.size} came`]),
            last,
            pick,
          )
        : "",
    ),
    place,
  ];
  if (last) pick(last);
  return out;
}
