// A plan's fields as a form: the server checks and compiles them, and the page shows the refusal or what changed.

import { read } from "./data.js";
import { differing } from "./diff.js";
import { el, say, show } from "./dom.js";
import { LinePane } from "./lines.js";
import { seconds } from "./numbers.js";

/** A form for a plan of a kernel, or "" on a page that nobody serves. */
export function planForm(app, kernel, choice) {
  const address = document.documentElement.dataset.edits;
  if (!address || !kernel.key) return "";
  const fields = Object.entries(choice.fields);
  const inputs = new Map();
  const answer = el("div", { class: "answer", "aria-live": "polite" });
  const form = el(
    "form",
    {
      class: "edit",
      onsubmit: (e) => {
        e.preventDefault();
        send();
      },
    },
    el(
      "div",
      { class: "fields" },
      fields.map(([name, value]) => {
        const input = el("input", {
          name,
          value: typeof value === "string" ? value : JSON.stringify(value),
          readonly: name === "kind",
          spellcheck: "false",
          autocomplete: "off",
        });
        inputs.set(name, input);
        return el("label", {}, el("span", { class: "quiet" }, name), input);
      }),
    ),
    el("div", {}, el("button", { type: "submit" }, "check and compile"), " ", el("button", { type: "reset" }, "undo edits")),
  );

  const plan = () => Object.fromEntries(fields.map(([name, was]) => [name, parsed(inputs.get(name).value, was)]));

  async function send() {
    const edited = plan();
    form.querySelector("button").disabled = true;
    show(answer, el("p", { class: "quiet" }, "compiling …"));
    try {
      const reply = await fetch(address, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ key: kernel.key, plan: edited }),
      });
      if (!reply.ok) throw new Error(await reply.text());
      const found = await reply.json();
      if (found.faults?.length)
        show(
          answer,
          el("h3", {}, "Refused"),
          el(
            "ul",
            { class: "reasons faults" },
            found.faults.map((f) => el("li", {}, el("b", {}, `${f.code} ${f.kind}`), ` at ${f.at}: ${f.why}; ${f.suggestion}`)),
          ),
        );
      else show(answer, accepted(app, kernel, await read(found.page), edited));
    } catch (error) {
      show(answer, el("p", { class: "fault" }, `no answer: ${error.message}`));
    }
    form.querySelector("button").disabled = false;
    say(answer.textContent.slice(0, 300));
  }

  return el("details", { class: "edit" }, el("summary", {}, "edit this plan"), form, answer);
}

function parsed(text, was) {
  if (typeof was === "string") return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function accepted(app, kernel, page, edited) {
  const name = page.stages.some((s) => s.name === "cu") ? "cu" : "c";
  const [a, b] = [app.page, page].map((p) => p.stages.find((s) => s.name === name).lines);
  const [gone, come] = differing(a, b);
  const now = page.kernels.find((k) => k.program === kernel.program && k.name === kernel.name);
  const decision = { plans: { [kernel.key]: edited } };
  const pane = new LinePane(name, b, () => {});
  pane.differs = come;
  pane.node.style.height = "22em";
  const first = [...come].sort((x, y) => x - y)[0];
  if (first !== undefined) requestAnimationFrame(() => pane.bring(first));
  return [
    el("h3", {}, "Accepted"),
    el(
      "p",
      {},
      `estimate ${seconds(kernel.estimate) || "unknown"} → ${seconds(now?.estimate) || "unknown"}; ${gone.size} lines of ${name} went, ${come.size} came`,
    ),
    el(
      "div",
      {},
      el(
        "button",
        {
          type: "button",
          onclick: () => {
            app.compareWith(page);
          },
        },
        "compare the two compilations",
      ),
      " ",
      el(
        "button",
        { type: "button", onclick: () => saved("decisions.json", JSON.stringify(decision, null, 1)) },
        "save as decisions.json",
      ),
    ),
    pane.node,
  ];
}

function saved(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = el("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
