// The side of the graph: nodes that a search found, and the chosen node with its kernel, its source and its neighbours.

import { el, show } from "./dom.js";
import { nameOf } from "./figures.js";

export const MOST_FOUND = 200; // nodes at which a search stops
const MOST_SHOWN = 50; // found nodes in the list

export class NodePanel {
  /** `view`: the GraphView whose nodes are shown. */
  constructor(view) {
    this.view = view;
    this.node = el("aside", { class: "side", "aria-label": "the chosen node" });
  }

  /** Show what was found and the node of this number; -1 for none. */
  show(k) {
    const nodes = this.view.nodes();
    const found = this.view.results.length
      ? [
          el("h3", {}, `${this.view.results.length}${this.view.results.length === MOST_FOUND ? "+" : ""} found`),
          show(
            this.view.list,
            this.view.results
              .slice(0, MOST_SHOWN)
              .map((r) =>
                el(
                  "li",
                  {},
                  el(
                    "button",
                    { class: "plain", onclick: () => this.view.select(r) },
                    nodes[r].op,
                    " ",
                    el("span", { class: "quiet" }, nodes[r].name),
                  ),
                ),
              ),
          ),
        ]
      : this.view.search.value.trim()
        ? el("p", { class: "quiet" }, "nothing found")
        : "";
    if (k < 0) {
      show(
        this.node,
        found,
        el(
          "p",
          { class: "quiet" },
          "Choose a node: its kernel, its place in the model's source and its neighbours stand here.",
        ),
      );
      return;
    }
    const n = nodes[k];
    const kernel = n.kernel >= 0 ? this.view.app.page.kernels[n.kernel] : null;
    const users = nodes.flatMap((m, at) => ((m.inputs || []).includes(k) ? [at] : []));
    const link = (at) =>
      el(
        "li",
        {},
        el(
          "button",
          { class: "plain", onclick: () => this.view.select(at) },
          nodes[at].op,
          " ",
          el("span", { class: "quiet" }, nodes[at].name),
        ),
      );
    const source = n.thing >= 0 ? this.view.app.page.things.origins[n.thing].map((t) => this.sourceLine(t)) : [];
    show(
      this.node,
      found,
      el("h2", {}, n.op),
      el(
        "dl",
        { class: "facts tall" },
        [
          ["name", n.name],
          ["type", n.type],
          ["module", (n.path || []).join(" / ")],
          ["source", source.join("\n")],
        ]
          .filter(([, v]) => v)
          .map(([a, b]) => el("div", {}, el("dt", {}, a), el("dd", {}, b))),
      ),
      kernel
        ? el(
            "p",
            {},
            el(
              "button",
              { onclick: () => this.view.app.state.set({ view: "kernels", kernel: n.kernel }, true) },
              `kernel ${nameOf(kernel)}`,
            ),
            " ",
            el("span", { class: "quiet" }, kernel.kind),
          )
        : "",
      n.thing >= 0
        ? el(
            "p",
            {},
            el(
              "button",
              { onclick: () => this.view.app.state.set({ view: "stages", thing: n.thing }, true) },
              "show in stages",
            ),
          )
        : "",
      (n.inputs || []).length ? [el("h3", {}, "reads"), el("ul", { class: "found" }, n.inputs.map(link))] : "",
      users.length ? [el("h3", {}, "read by"), el("ul", { class: "found" }, users.slice(0, 30).map(link))] : "",
    );
  }

  sourceLine(thing) {
    const place = this.view.app.links.place(thing);
    return place ? this.view.app.page.stages[place[0]].lines[place[1]].trim() : this.view.app.page.things.label[thing];
  }
}
