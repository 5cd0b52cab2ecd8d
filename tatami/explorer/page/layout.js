// Where the boxes of a graph stand: layers from top to bottom, groups as boxes with a layout of their own.
//
// The same steps as the drawings of `tatami explain --svg`: layers by the longest way, long edges through gaps of their own,
// order by means of neighbours, places by isotonic regression. It runs here since folding a group changes every place.

const GAP = 18;
const LAYER = 34;
export const MARGIN = 12; // between a frame and what it holds
export const TITLE = 22; // height of a frame's title
const MOST_DUMMIES = 30000; // pieces of long edges beyond which they go straight
const SWEEPS = 8,
  SWEEPS_LARGE = 2,
  LARGE = 3000;

/** items: [{id, w, h}] or [{id, children: items, edges, title}]; edges: [[from, to]] by id. Adds x, y (centres) to each item; returns {w, h, ways}. */
export function layOut(items, edges) {
  for (const item of items) {
    if (!item.children) continue;
    const inner = layOut(item.children, item.edges);
    item.inner = inner;
    item.w = Math.max(inner.w, item.title) + 2 * MARGIN;
    item.h = inner.h + TITLE + 2 * MARGIN;
  }
  return level(items, edges);
}

function level(items, edges) {
  const place = new Map(items.map((item, k) => [item.id, k]));
  const pairs = [];
  const seen = new Set();
  for (const [a, b] of edges) {
    const p = place.get(a),
      q = place.get(b);
    const key = p * items.length + q;
    if (p === undefined || q === undefined || p === q || seen.has(key)) continue;
    seen.add(key);
    pairs.push([p, q]);
  }
  const { layer, forward } = layers(items.length, pairs);
  const nodes = items.map((item) => ({ w: item.w, h: item.h, up: [], down: [], dummy: false }));
  const chains = new Map();
  let pieces = 0;
  for (const [p, q] of forward) pieces += layer[q] - layer[p] - 1;
  const straight = pieces > MOST_DUMMIES;
  for (const [p, q] of forward) {
    let last = p;
    const chain = [];
    for (let k = layer[p] + 1; k < layer[q] && !straight; k++) {
      const dummy = nodes.length;
      nodes.push({ w: 2, h: 0, up: [last], down: [], dummy: true });
      layer.push(k);
      nodes[last].down.push(dummy);
      chain.push(dummy);
      last = dummy;
    }
    nodes[last].down.push(q);
    nodes[q].up.push(last);
    chains.set(p * items.length + q, chain);
  }
  const rows = [];
  nodes.forEach((_, k) => (rows[layer[k]] ||= []).push(k));
  for (let k = 0; k < rows.length; k++) rows[k] ||= [];
  order(rows, nodes);
  spread(rows, nodes);
  let y = 0;
  for (const row of rows) {
    const high = Math.max(0, ...row.map((k) => nodes[k].h));
    for (const k of row) nodes[k].y = y + high / 2;
    y += high + LAYER;
  }
  let left = Infinity,
    right = -Infinity;
  for (const n of nodes) {
    left = Math.min(left, n.x - n.w / 2);
    right = Math.max(right, n.x + n.w / 2);
  }
  if (!nodes.length) left = right = 0;
  items.forEach((item, k) => {
    item.x = nodes[k].x - left;
    item.y = nodes[k].y;
  });
  const ways = new Map();
  for (const [key, chain] of chains) {
    const p = Math.floor(key / items.length),
      q = key % items.length;
    ways.set(
      `${items[p].id} ${items[q].id}`,
      chain.map((d) => [nodes[d].x - left, nodes[d].y]),
    );
  }
  return { w: right - left, h: Math.max(0, y - LAYER), ways };
}

function layers(total, pairs) {
  const out = Array.from({ length: total }, () => []);
  for (const [p, q] of pairs) out[p].push(q);
  const state = new Uint8Array(total); // groups may feed each other: an edge back to what is being visited is turned round
  const back = new Set();
  for (let start = 0; start < total; start++) {
    if (state[start]) continue;
    const stack = [[start, 0]];
    state[start] = 1;
    while (stack.length) {
      const top = stack[stack.length - 1];
      const next = out[top[0]][top[1]++];
      if (next === undefined) {
        state[top[0]] = 2;
        stack.pop();
      } else if (state[next] === 1) back.add(top[0] * total + next);
      else if (!state[next]) {
        state[next] = 1;
        stack.push([next, 0]);
      }
    }
  }
  const forward = pairs.map(([p, q]) => (back.has(p * total + q) ? [q, p] : [p, q]));
  const after = Array.from({ length: total }, () => []);
  const waiting = new Int32Array(total);
  for (const [p, q] of forward) {
    after[p].push(q);
    waiting[q]++;
  }
  const layer = new Array(total).fill(0);
  const ready = [];
  for (let k = 0; k < total; k++) if (!waiting[k]) ready.push(k);
  const sources = ready.slice();
  for (let i = 0; i < ready.length; i++) {
    for (const q of after[ready[i]]) {
      layer[q] = Math.max(layer[q], layer[ready[i]] + 1);
      if (!--waiting[q]) ready.push(q);
    }
  }
  for (const k of sources) if (after[k].length) layer[k] = Math.min(...after[k].map((q) => layer[q])) - 1;
  return { layer, forward };
}

function order(rows, nodes) {
  const place = new Float64Array(nodes.length);
  const number = (row) =>
    row.forEach((k, at) => {
      place[k] = at;
    });
  rows.forEach(number);
  const sweeps = nodes.length > LARGE ? SWEEPS_LARGE : SWEEPS;
  for (let sweep = 0; sweep < sweeps; sweep++) {
    const down = sweep % 2 === 0;
    for (let i = 1; i < rows.length; i++) {
      const row = down ? rows[i] : rows[rows.length - 1 - i];
      const means = new Map();
      for (const k of row) {
        const near = down ? nodes[k].up : nodes[k].down;
        means.set(k, near.length ? near.reduce((sum, n) => sum + place[n], 0) / near.length : place[k]);
      }
      row.sort((a, b) => means.get(a) - means.get(b) || place[a] - place[b]);
      number(row);
    }
  }
}

function spread(rows, nodes) {
  for (const row of rows) {
    let x = 0;
    for (const k of row) {
      nodes[k].x = x + nodes[k].w / 2;
      x += nodes[k].w + GAP;
    }
  }
  const sweeps = nodes.length > LARGE ? SWEEPS_LARGE * 2 : SWEEPS;
  for (let sweep = 0; sweep < sweeps; sweep++) {
    const down = sweep % 2 === 0;
    for (let i = 0; i < rows.length; i++) {
      const row = down ? rows[i] : rows[rows.length - 1 - i];
      const wanted = row.map((k) => {
        const near = down ? nodes[k].up : nodes[k].down;
        return near.length ? near.reduce((sum, n) => sum + nodes[n].x, 0) / near.length : nodes[k].x;
      });
      const weights = row.map((k) => ((down ? nodes[k].up : nodes[k].down).length ? (nodes[k].dummy ? 8 : 1) : 0.01));
      apart(
        wanted,
        weights,
        row.map((k) => nodes[k].w),
      ).forEach((x, at) => {
        nodes[row[at]].x = x;
      });
    }
  }
}

/** The places nearest to `wanted` (weighted squares) that keep order and distance: pool adjacent violators. */
function apart(wanted, weights, widths) {
  const shifts = [0];
  for (let i = 1; i < widths.length; i++) shifts.push(shifts[i - 1] + (widths[i - 1] + widths[i]) / 2 + GAP);
  const blocks = [];
  wanted.forEach((w, i) => {
    blocks.push([w - shifts[i], weights[i], 1]);
    while (blocks.length > 1 && blocks[blocks.length - 2][0] > blocks[blocks.length - 1][0]) {
      const [b, v, n] = blocks.pop();
      const [a, u, m] = blocks.pop();
      blocks.push([(a * u + b * v) / (u + v), u + v, m + n]);
    }
  });
  const out = [];
  for (const [mean, , members] of blocks) for (let i = 0; i < members; i++) out.push(mean + shifts[out.length]);
  return out;
}
