// The model as groups: nodes by module or by kernel, groups open or folded, and what a drawing of them holds.

import { layOut, MARGIN, TITLE } from "./layout.js";

const LETTER = 6.6,
  LINE = 15;
const MOST_FIRST = 60; // boxes that a large graph shows at first
export const FOLD_BEYOND = 150; // nodes of a graph from which groups begin folded

/** The group of each node, as a path of names. */
function pathOf(node, grouping, kernels) {
  if (grouping === "module") return node.path || [];
  if (grouping === "kernel") return node.kernel >= 0 && node.kernel !== undefined ? [kernels[node.kernel].name] : [];
  return [];
}

/** A tree of groups over the nodes of a graph: {id, name, groups: Map, nodes: [number], total}. */
export function groupsOf(nodes, grouping, kernels) {
  const root = { id: "", name: "", groups: new Map(), nodes: [], total: 0, parent: null };
  const home = [];
  nodes.forEach((node, k) => {
    let at = root;
    at.total++;
    for (const name of pathOf(node, grouping, kernels)) {
      const id = at.id ? `${at.id}/${name}` : name;
      if (!at.groups.has(name))
        at.groups.set(name, {
          id,
          name,
          groups: new Map(),
          nodes: [],
          total: 0,
          parent: at,
          kernel: grouping === "kernel" ? node.kernel : -1,
        });
      at = at.groups.get(name);
      at.total++;
    }
    at.nodes.push(k);
    home.push(at);
  });
  return { root, home };
}

/** The groups of a large graph that begin open: the largest, as long as few boxes are shown. */
export function firstOpen(tree) {
  const inside = (g) => g.groups.size + g.nodes.length;
  const open = [];
  let shown = inside(tree.root);
  const folded = [...tree.root.groups.values()];
  for (;;) {
    folded.sort((a, b) => b.total - a.total);
    const next = folded.findIndex((g) => g.groups.size && shown + inside(g) - 1 <= MOST_FIRST);
    if (next < 0) return open;
    const [group] = folded.splice(next, 1);
    open.push(group);
    shown += inside(group) - 1;
    folded.push(...group.groups.values());
  }
}

/** The boxes, frames and edges to draw. `isOpen(group)`: True if the group shows what is inside. */
export function drawingOf(nodes, tree, kernels, isOpen) {
  const shownAs = (k) => {
    let folded = null;
    for (let g = tree.home[k]; g.parent; g = g.parent) if (!isOpen(g)) folded = g;
    return folded;
  };
  const visible = nodes.map((_, k) => shownAs(k));
  const idOf = (k) => (visible[k] ? `g:${visible[k].id}` : `n:${k}`);
  const parentOf = new Map();
  const items = (group) => {
    const out = [];
    for (const g of group.groups.values()) {
      const id = `g:${g.id}`;
      parentOf.set(id, group.parent ? `g:${group.id}` : "");
      if (isOpen(g))
        out.push({
          id,
          group: g,
          children: items(g),
          edges: [],
          title: (g.name.length + (g.kernel >= 0 ? kernels[g.kernel].kind.length + 3 : 0)) * LETTER + 34,
        });
      else out.push({ id, group: g, ...folded(g) });
    }
    for (const k of group.nodes) {
      parentOf.set(`n:${k}`, group.parent ? `g:${group.id}` : "");
      out.push({ id: `n:${k}`, node: k, ...size(nodes[k]) });
    }
    return out;
  };
  const top = items(tree.root);
  const open = new Map();
  const gather = (list) => {
    for (const i of list)
      if (i.children) {
        open.set(i.id, i);
        gather(i.children);
      }
  };
  gather(top);
  const chain = (id) => {
    const out = [id];
    while (parentOf.get(out[0])) out.unshift(parentOf.get(out[0]));
    return out;
  };
  const edges = [],
    topEdges = [],
    seen = new Set();
  nodes.forEach((node, k) =>
    (node.inputs || []).forEach((source, at) => {
      const a = idOf(source),
        b = idOf(k);
      const key = `${a} ${b}`;
      if (a === b || seen.has(key)) return;
      seen.add(key);
      const one = chain(a),
        two = chain(b);
      let same = 0;
      while (same < one.length && same < two.length && one[same] === two[same]) same++;
      const inside = same ? open.get(one[same - 1]) : null;
      const pair = [one[same], two[same]];
      (inside ? inside.edges : topEdges).push(pair);
      edges.push({ from: a, to: b, pair, inside, type: node.edges?.[at] ?? "" });
    }),
  );
  const whole = layOut(top, topEdges);
  const boxes = new Map(),
    frames = [],
    corners = new Map();
  const put = (list, x, y, level, id) => {
    corners.set(id, [x, y, level]);
    for (const item of list) {
      const left = x + item.x - item.w / 2,
        upper = y + item.y - item.h / 2;
      const box = { ...item, left, upper, right: left + item.w, lower: upper + item.h };
      boxes.set(item.id, box);
      if (item.children) {
        frames.push(box);
        put(item.children, left + (item.w - item.inner.w) / 2, upper + TITLE + MARGIN, item.inner, item.id);
      }
    }
  };
  put(top, MARGIN, MARGIN, whole, "");
  for (const e of edges) {
    const [x, y, level] = corners.get(e.inside ? e.inside.id : "");
    const way = level.ways.get(e.pair.join(" ")) ?? (level.ways.get([e.pair[1], e.pair[0]].join(" ")) || []).toReversed();
    const a = boxes.get(e.from),
      b = boxes.get(e.to);
    e.points = [
      [a.x0 ?? (a.left + a.right) / 2, a.lower],
      ...way.map(([px, py]) => [x + px, y + py]),
      [(b.left + b.right) / 2, b.upper],
    ];
  }
  return { width: whole.w + 2 * MARGIN, height: whole.h + 2 * MARGIN, boxes, frames, edges, idOf };
}

function size(node) {
  const lines = [node.op === "input" || node.op === "output" ? node.name : node.op, node.type];
  return { w: Math.max(60, Math.min(46, Math.max(...lines.map((l) => l.length))) * LETTER + 20), h: LINE * 2 + 10 };
}

function folded(group) {
  return { w: Math.max(90, Math.min(46, Math.max(group.name.length + 2, 12)) * LETTER + 24), h: LINE * 2 + 12 };
}
