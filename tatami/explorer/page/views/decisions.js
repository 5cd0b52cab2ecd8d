// What was decided and by whom, as a table and as the document that repeats it; warnings and the whole report.

import { el, say, show, table } from "../dom.js";
import { LinePane } from "../lines.js";
import { nameOf } from "../figures.js";

export class DecisionsView {
  constructor(app) {
    this.app = app;
    this.node = el("section", { class: "view decisions", "aria-label": "decisions" });
    this.done = false;
  }

  update() {
    if (this.done) return;
    this.done = true;
    const { page } = this.app;
    const text = JSON.stringify(page.decisions, null, 1);
    const copy = async (e) => {
      try {
        await navigator.clipboard.writeText(text);
        e.target.textContent = "copied";
      } catch {
        this.select();
        e.target.textContent = "press Ctrl-C";
      }
      say(e.target.textContent);
    };
    this.raw = el("textarea", { readonly: true, rows: 14, "aria-label": "decisions document", spellcheck: "false" });
    this.raw.value = text;
    const report = new LinePane("report", page.report.split("\n"), () => {});
    report.node.style.height = "36em";
    const rows = page.kernels.map((k, number) => ({ ...k, number })).filter((k) => k.choices?.length);
    show(
      this.node,
      el(
        "div",
        { class: "scroll pad" },
        page.warnings?.length
          ? [
              el("h2", { class: "part" }, `Warnings (${page.warnings.length})`),
              el(
                "ul",
                { class: "reasons" },
                page.warnings.map((w) => el("li", {}, w)),
              ),
            ]
          : "",
        page.checks?.length ? [el("h2", { class: "part" }, "Playback"), this.checks()] : "",
        el("h2", { class: "part" }, "Plans and who chose them"),
        table(
          ["kernel", "plan", "when", "by"],
          rows.flatMap((k) =>
            k.choices.map((c) =>
              el(
                "tr",
                {},
                el(
                  "th",
                  { scope: "row" },
                  el(
                    "a",
                    {
                      href: "#",
                      onclick: (e) => {
                        e.preventDefault();
                        this.app.state.set({ view: "kernels", kernel: k.number }, true);
                      },
                    },
                    nameOf(k),
                  ),
                ),
                el("td", {}, c.plan),
                el("td", {}, c.when || (k.choices.length > 1 ? "else" : "always")),
                el("td", {}, k.by),
              ),
            ),
          ),
        ),
        el("h2", { class: "part" }, "The document that repeats them ", el("button", { onclick: copy }, "copy")),
        el(
          "p",
          { class: "quiet" },
          "tatami run MODEL --decisions FILE obeys it; an edited one too, or it is refused with the reason.",
        ),
        this.raw,
        el("h2", { class: "part" }, "The whole report"),
        report.node,
      ),
    );
  }

  checks() {
    const first = this.app.page.checks.find((c) => c.differs);
    return [
      el(
        "p",
        {},
        first
          ? [el("b", { class: "fault" }, `First divergence: stage ${first.stage}`), `, output ${first.differs}`]
          : "No stage differs from the reference.",
      ),
      table(
        ["stage", "agrees", "relative error", "remark"],
        this.app.page.checks.map((c) =>
          el(
            "tr",
            {},
            el("th", { scope: "row" }, c.stage),
            el("td", {}, c.differs ? el("b", { class: "fault" }, "no") : c.skipped ? "" : "yes"),
            el("td", { class: "n" }, c.skipped ? "" : (c.error ?? 0).toExponential(1)),
            el("td", {}, c.differs || c.skipped || ""),
          ),
        ),
      ),
    ];
  }

  select() {
    this.raw.focus();
    this.raw.select();
  }
}
