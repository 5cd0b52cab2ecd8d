// Elements of the document. Text, a model's names among it, only ever becomes text nodes: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** An element with attributes (`onclick` and the like are listeners) and children; a child that is not a node becomes text. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** A table with a row of headings. */
export function table(headings, rows, attributes = {}) {
  const names = headings.map((n) => el("th", { scope: "col" }, n));
  return el("table", attributes, el("thead", {}, el("tr", {}, names)), el("tbody", {}, rows));
}

/** Replace all children of a node. */
export function show(node, ...children) {
  node.replaceChildren();
  return fill(node, {}, children);
}

/** Say a text to a screen reader. */
export function say(text) {
  document.getElementById("said").textContent = text;
}

/** A drop-down list of [value, text] pairs. */
export function choice(label, options, value, change) {
  const list = el("select", { "aria-label": label, onchange: (e) => change(e.target.value) });
  for (const [v, text] of options) list.append(el("option", { value: v, selected: v === value }, text));
  return list;
}
