// The lines that differ between two texts.

const MOST_EDITS = 4000; // differing lines beyond which order is not looked at

/** Two sets: numbers of lines of `a` that `b` lacks, and of `b` that `a` lacks (Myers, common ends first). */
export function differing(a, b) {
  let start = 0,
    ea = a.length,
    eb = b.length;
  while (start < ea && start < eb && a[start] === b[start]) start++;
  while (ea > start && eb > start && a[ea - 1] === b[eb - 1]) {
    ea--;
    eb--;
  }
  const [n, m] = [ea - start, eb - start];
  const gone = new Set(),
    come = new Set();
  if (n + m > MOST_EDITS) {
    const inA = new Set(a.slice(start, ea)),
      inB = new Set(b.slice(start, eb));
    for (let i = start; i < ea; i++) if (!inB.has(a[i])) gone.add(i);
    for (let j = start; j < eb; j++) if (!inA.has(b[j])) come.add(j);
    return [gone, come];
  }
  const most = n + m,
    reach = new Int32Array(2 * most + 2).fill(0),
    history = [];
  let edits = 0;
  search: for (; edits <= most; edits++) {
    history.push(reach.slice(most - edits, most + edits + 2));
    for (let k = -edits; k <= edits; k += 2) {
      let x =
        k === -edits || (k !== edits && reach[most + k - 1] < reach[most + k + 1])
          ? reach[most + k + 1]
          : reach[most + k - 1] + 1;
      while (x < n && x - k < m && a[start + x] === b[start + x - k]) x++;
      reach[most + k] = x;
      if (x >= n && x - k >= m) break search;
    }
  }
  let [x, y] = [n, m];
  for (let d = edits; d > 0; d--) {
    const at = (k) => history[d][k + d];
    const k = x - y;
    const before = k === -d || (k !== d && at(k - 1) < at(k + 1)) ? k + 1 : k - 1;
    const px = at(before),
      py = px - before;
    while (x > px && y > py) {
      x--;
      y--;
      if (x === px && y === py) break;
      if (before === k + 1 ? x === px && y === py + 1 : x === px + 1 && y === py) break;
    }
    if (before === k + 1) {
      come.add(start + py);
    } else gone.add(start + px);
    [x, y] = [px, py];
  }
  return [gone, come];
}
