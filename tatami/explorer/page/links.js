// Things and their origins: what a line comes from, and what became of it.

/** Walks over the things of a page, up to origins and down to what came from them. */
export class Links {
  constructor(page) {
    this.page = page;
    this.up = page.things.origins;
    const total = this.up.length;
    const starts = new Int32Array(total + 1);
    for (const origins of this.up) for (const o of origins) starts[o + 1]++;
    for (let i = 0; i < total; i++) starts[i + 1] += starts[i];
    const next = starts.slice();
    this.starts = starts;
    this.down = new Int32Array(starts[total]);
    this.up.forEach((origins, thing) =>
      origins.forEach((o) => {
        this.down[next[o]++] = thing;
      }),
    );
    this.linesOf = page.stages.map((stage) => {
      const lines = new Map();
      stage.things.forEach((thing, line) => {
        if (thing < 0) return;
        if (lines.has(thing)) lines.get(thing).push(line);
        else lines.set(thing, [line]);
      });
      return lines;
    });
  }

  /** All things that these come from, without them. */
  origins(things) {
    return this.walk(things, (t) => this.up[t]);
  }

  /** All things that came from these, without them. */
  descendants(things) {
    return this.walk(things, (t) => this.down.subarray(this.starts[t], this.starts[t + 1]));
  }

  walk(things, neighbours) {
    const seen = new Set(things);
    const work = [...things];
    while (work.length)
      for (const t of neighbours(work.pop()))
        if (!seen.has(t)) {
          seen.add(t);
          work.push(t);
        }
    for (const t of things) seen.delete(t);
    return seen;
  }

  /** The marks of a thing: per stage, a map line -> "self", "origin" or "became". */
  marks(thing) {
    const marked = this.page.stages.map(() => new Map());
    if (thing === null || thing === undefined || thing < 0) return marked;
    const put = (things, word) => {
      for (const t of things) {
        const stage = this.page.things.stage[t];
        for (const line of this.linesOf[stage].get(t) || []) marked[stage].set(line, word);
      }
    };
    put(this.descendants([thing]), "became");
    put(this.origins([thing]), "origin");
    put([thing], "self");
    return marked;
  }

  /** [stage number, line] at which a thing is told first, or null. */
  place(thing) {
    if (thing < 0) return null;
    const stage = this.page.things.stage[thing];
    const lines = this.linesOf[stage].get(thing);
    return lines ? [stage, lines[0]] : null;
  }
}
