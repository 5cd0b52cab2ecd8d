// A plan's fields as a form: the server checks and compiles them, and the page shows the refusal or what changed.

import { ask, editsAddress } from "../ask.js";
import { read } from "../data.js";
import { el, say, show } from "../dom.js";
import { acceptance, refusal } from "./changes.js";

/** A form for a plan of a kernel, or "" on a page that nobody serves. */
export function planForm(app, kernel, choice) {
  if (!editsAddress() || !kernel.key) return "";
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
      const found = await ask({ ask: "plan", key: kernel.key, plan: edited });
      if (found.faults?.length) show(answer, refusal(found));
      else show(answer, acceptance(app, await read(found.page), { kernel, decision: { plans: { [kernel.key]: edited } } }));
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
