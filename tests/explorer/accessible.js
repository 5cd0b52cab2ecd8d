// Faults of what is shown: contrast of text, order of headings, references to elements that are not there.
const number = (s) => (s.match(/[\d.]+/g) || []).map(Number);
const over = (top, under) => {
  const a = top[3] ?? 1;
  return [0, 1, 2].map((i) => top[i] * a + under[i] * (1 - a));
};
const light = (c) => {
  const [r, g, b] = c.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (node) => {
  const layers = [];
  for (let n = node; n; n = n.parentElement) layers.push(number(getComputedStyle(n).backgroundColor));
  return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
};
const opacity = (node) => {
  let all = 1;
  for (let n = node; n; n = n.parentElement) all *= Number(getComputedStyle(n).opacity);
  return all;
};
const faults = [];
for (const node of document.querySelectorAll("body *")) {
  const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim());
  if (!own || node.closest("svg, dialog:not([open])") || !node.checkVisibility({ visibilityProperty: true }) || node.matches(":disabled")) continue;
  const box = node.getBoundingClientRect();
  if (box.width < 2 || box.height < 2) continue;
  const under = ground(node);
  const ink = over([...number(getComputedStyle(node).color).slice(0, 3), opacity(node)], under);
  const [a, b] = [light(ink), light(under)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(2)}: ${node.outerHTML.slice(0, 90)}`);
}
let level = 0;
for (const h of document.querySelectorAll("h1, h2, h3, h4")) {
  if (!h.checkVisibility()) continue;
  const own = Number(h.tagName[1]);
  if (own > level + 1 && level) faults.push(`heading ${own} after ${level}: ${h.textContent}`);
  level = own;
}
for (const name of ["aria-controls", "aria-labelledby", "aria-describedby", "aria-activedescendant"])
  for (const node of document.querySelectorAll(`[${name}]`))
    for (const id of node.getAttribute(name).split(/\s+/))
      if (id && !document.getElementById(id)) faults.push(`${name} ${id} is not there: ${node.outerHTML.slice(0, 90)}`);
return faults;
