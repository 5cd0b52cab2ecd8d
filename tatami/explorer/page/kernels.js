// The table of kernels: sorted, filtered, each row the way to the page of a kernel.

import { el, say, show } from "./dom.js";
import { measured, nameOf, timeOf } from "./figures.js";
import { KernelPage } from "./kernel.js";
import { bytes, count, percent, seconds } from "./numbers.js";

export class KernelsView {
  constructor(app) {
    this.app = app;
    this.node = el("section", { class: "view kernels", "aria-label": "kernels" });
    this.page = new KernelPage(app, this);
    this.shown = null;
  }

  update() {
    const key = ["kernel", "sort", "setup", "filter"].map((n) => this.app.state.get(n)).join("|");
    if (key === this.shown) return;
    this.shown = key;
    const number = this.app.state.number("kernel");
    if (number >= 0 && number < this.app.page.kernels.length) show(this.node, this.page.show(number));
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
      [
        "share",
        (k) => (k.program === "main" ? timeOf(k) : null),
        (k) =>
          k.program === "main" && timeOf(k) !== null && total
            ? [el("i", { class: "bar", style: `width:${(60 * timeOf(k)) / total}px` }), percent(timeOf(k) / total)]
            : "",
        "n",
      ],
      ...(timed ? [["of roofline", roof, (k) => percent(roof(k)), "n"]] : []),
      ["operations", (k) => k.flops, (k) => count(k.flops), "n"],
      ["bytes", (k) => k.bytes, (k) => bytes(k.bytes), "n"],
      [
        "plan",
        (k) => k.choices?.[0]?.plan ?? "",
        (k) =>
          k.choices?.length
            ? `${k.choices[0].plan}${k.choices.length > 1 ? ` and ${k.choices.length - 1} more` : ""}`
            : k.moves
              ? `copies: ${k.moves}`
              : "",
        "wide",
      ],
      ["computes", (k) => k.sources.join(), (k) => k.sources.join(", "), "wide"],
      [
        "separate from",
        (k) => (k.separate || []).length,
        (k) => [...new Set((k.separate || []).map((s) => s.other))].join(", "),
        "wide",
      ],
    ];
  }

  table() {
    const columns = this.columns();
    const [by, way] = this.app.state.get("sort", "kernel,up").split(",");
    const sort = (name) =>
      this.app.state.set({
        sort: `${name},${name === by && way === "down" ? "up" : name === by ? "down" : name === "kernel" || name === "kind" || name === "plan" || name === "computes" ? "up" : "down"}`,
      });
    this.body = el("tbody");
    const table = el(
      "table",
      { class: "kernels" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          columns.map(([name, , , kind]) =>
            el(
              "th",
              { scope: "col", class: kind, "aria-sort": name === by ? (way === "up" ? "ascending" : "descending") : "none" },
              el(
                "button",
                {
                  class: "plain",
                  onclick: () => {
                    sort(name);
                    this.node.querySelector(`th[aria-sort$="ending"] button`)?.focus();
                  },
                },
                name,
                name === by ? (way === "up" ? " ▲" : " ▼") : "",
              ),
            ),
          ),
        ),
      ),
      this.body,
    );
    this.fillTable();
    const filter = el("input", {
      type: "search",
      placeholder: "filter",
      "aria-label": "filter kernels",
      value: this.app.state.get("filter"),
      oninput: (e) => {
        this.filterOnly = true;
        this.app.state.set({ filter: e.target.value });
        this.filterOnly = false;
      },
    });
    const hasSetup = this.app.page.kernels.some((k) => k.program === "setup");
    return [
      el(
        "div",
        { class: "tools" },
        filter,
        hasSetup
          ? el(
              "label",
              {},
              el("input", {
                type: "checkbox",
                checked: this.app.state.get("setup") === "1",
                onchange: (e) => this.app.state.set({ setup: e.target.checked ? "1" : "" }),
              }),
              " setup (once, when loaded)",
            )
          : "",
        el("span", { class: "grow" }),
        el(
          "span",
          { class: "quiet" },
          measured(this.app.page)
            ? `whole program ${seconds(this.app.page.whole)}, measured`
            : "times are the plans' estimates: --bench measures",
        ),
      ),
      el("div", { class: "scroll" }, table),
    ];
  }

  fillTable() {
    const columns = this.columns();
    const [by, way] = this.app.state.get("sort", "kernel,up").split(",");
    const text = this.app.state.get("filter").toLowerCase();
    const setup = this.app.state.get("setup") === "1";
    const value = (columns.find(([name]) => name === by) || columns[0])[1];
    const rows = this.app.page.kernels
      .map((k, number) => ({ ...k, number }))
      .filter(
        (k) =>
          (setup || k.program !== "setup") &&
          (!text || [nameOf(k), k.kind, ...k.sources, k.choices?.[0]?.plan].join(" ").toLowerCase().includes(text)),
      );
    const order = way === "down" ? -1 : 1;
    rows.sort((a, b) => {
      const x = value(a) ?? null,
        y = value(b) ?? null;
      if (x === null || y === null) return (x === null) - (y === null);
      return (x < y ? -1 : x > y ? 1 : a.number - b.number) * order;
    });
    show(
      this.body,
      rows.map((k) =>
        el(
          "tr",
          {
            "data-kernel": k.number,
            onclick: (e) => {
              if (!e.target.closest("a")) this.open(k.number);
            },
          },
          columns.map(([name, , cell, kind]) =>
            el(
              name === "kernel" ? "th" : "td",
              {
                scope: name === "kernel" ? "row" : null,
                class: kind,
                title: kind === "wide" ? [cell(k)].flat().join("") : null,
              },
              name === "kernel"
                ? el(
                    "a",
                    {
                      href: "#",
                      onclick: (e) => {
                        e.preventDefault();
                        this.open(k.number);
                      },
                    },
                    cell(k),
                  )
                : cell(k),
            ),
          ),
        ),
      ),
    );
  }

  open(number) {
    this.app.state.set({ view: "kernels", kernel: number }, true);
    this.node.querySelector("h2")?.focus();
    say(`kernel ${nameOf(this.app.page.kernels[number])}`);
  }
}
