// A graph drawn on a canvas: frames, edges, boxes; only what is in sight, and letters only where they can be read.

const HUES = [212, 28, 145, 280, 350, 90, 190, 50, 320, 165, 240, 10];

export class Painter {
  /** `view`: the GraphView, which has the canvas, the drawing, what part of it is looked at and what is chosen. */
  constructor(view) {
    this.view = view;
  }

  draw() {
    const c = this.view.canvas;
    const [w, h] = [c.clientWidth, c.clientHeight];
    if (!w || !h || !this.view.drawing) return;
    const dense = window.devicePixelRatio || 1;
    if (c.width !== Math.round(w * dense)) c.width = Math.round(w * dense);
    if (c.height !== Math.round(h * dense)) c.height = Math.round(h * dense);
    const pen = c.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const ink = (name) => style.getPropertyValue(name).trim();
    const colours = {
      ink: ink("--ink"),
      quiet: ink("--quiet"),
      line: ink("--rule"),
      paper: ink("--paper"),
      panel: ink("--panel"),
      accent: ink("--accent"),
      edge: ink("--edge"),
      dark: ink("--dark") === "1",
    };
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, w, h);
    pen.translate(this.view.x, this.view.y);
    pen.scale(this.view.scale, this.view.scale);
    const view = [
      -this.view.x / this.view.scale,
      -this.view.y / this.view.scale,
      (w - this.view.x) / this.view.scale,
      (h - this.view.y) / this.view.scale,
    ];
    const inSight = (b) => b.right >= view[0] && b.left <= view[2] && b.lower >= view[1] && b.upper <= view[3];
    const letters = this.view.scale > 0.42;
    for (const f of this.view.drawing.frames) if (inSight(f)) this.frame(pen, f, colours);
    this.edges(pen, colours, view);
    if (letters) for (const f of this.view.drawing.frames) if (inSight(f)) this.title(pen, f, colours);
    for (const b of this.view.drawing.boxes.values()) if (!b.children && inSight(b)) this.box(pen, b, colours, letters);
  }

  hue(kernel) {
    return HUES[kernel % HUES.length];
  }

  frame(pen, f, colours) {
    const kernel = f.group.kernel >= 0 ? this.hue(f.group.kernel) : null;
    pen.fillStyle =
      kernel === null
        ? colours.dark
          ? "rgba(148,163,184,.07)"
          : "rgba(15,23,42,.035)"
        : `hsla(${kernel},65%,50%,${colours.dark ? 0.13 : 0.09})`;
    pen.strokeStyle = kernel === null ? colours.line : `hsl(${kernel},55%,${colours.dark ? 55 : 50}%)`;
    pen.lineWidth = 1.2;
    pen.beginPath();
    pen.roundRect(f.left, f.upper, f.w, f.h, 9);
    pen.fill();
    pen.stroke();
  }

  /** The title of a frame, above the edges that enter it. */
  title(pen, f, colours) {
    const kind = f.group.kernel >= 0 ? ` · ${this.view.app.page.kernels[f.group.kernel].kind}` : "";
    const text = cut(`▾ ${f.group.name}${kind}`, f.w / 7);
    pen.fillStyle = colours.quiet;
    pen.strokeStyle = colours.paper;
    pen.lineWidth = 4;
    pen.font = "600 12px system-ui, sans-serif";
    pen.strokeText(text, f.left + 10, f.upper + 17);
    pen.fillText(text, f.left + 10, f.upper + 17);
  }

  /** The height at which an edge is labelled: below its box, or below the frames that it leaves. */
  labelTop([x, y], [ex, ey]) {
    const holds = (f, px, py) => f.left <= px && px <= f.right && f.upper <= py && py <= f.lower;
    return this.view.drawing.frames.reduce(
      (low, f) => (f.lower > low && holds(f, x, y) && !holds(f, ex, ey) ? f.lower + 3 : low),
      y,
    );
  }

  edges(pen, colours, view) {
    pen.lineWidth = 1 / Math.max(0.4, Math.min(1, this.view.scale));
    pen.strokeStyle = colours.edge;
    pen.beginPath();
    const tips = [],
      labels = [],
      chosen = [];
    const mine = this.view.chosen >= 0 ? this.view.drawing.idOf(this.view.chosen) : null;
    for (const e of this.view.drawing.edges) {
      const p = e.points;
      const top = p[0][1],
        low = p[p.length - 1][1];
      if (Math.max(top, low) < view[1] || Math.min(top, low) > view[3]) continue;
      if (e.from === mine || e.to === mine) {
        chosen.push(e);
        continue;
      }
      trace(pen, p);
      tips.push(p[p.length - 1]);
      if (this.view.scale > 0.75 && e.type) labels.push(e);
    }
    pen.stroke();
    if (this.view.scale > 0.25) tip(pen, tips, colours.edge);
    if (chosen.length) {
      pen.strokeStyle = colours.accent;
      pen.lineWidth *= 2;
      pen.beginPath();
      for (const e of chosen) trace(pen, e.points);
      pen.stroke();
      tip(
        pen,
        chosen.map((e) => e.points[e.points.length - 1]),
        colours.accent,
      );
    }
    pen.font = "9.5px ui-monospace, monospace";
    pen.fillStyle = colours.quiet;
    pen.strokeStyle = colours.paper;
    pen.lineWidth = 3;
    const told = new Set(); // edges that leave one box with one shape are labelled once
    for (const e of this.view.scale > 0.75 ? [...labels, ...chosen] : []) {
      const [x] = e.points[0];
      const y = this.labelTop(e.points[0], e.points[e.points.length - 1]);
      const short = /\[.*\]/.exec(e.type)?.[0] ?? "";
      if (told.has(e.from)) continue;
      told.add(e.from);
      pen.strokeText(cut(short, 26), x + 4, y + 13);
      pen.fillText(cut(short, 26), x + 4, y + 13);
    }
  }

  box(pen, b, colours, letters) {
    const n = b.node !== undefined ? this.view.nodes()[b.node] : null;
    const kernel = n ? (n.kernel ?? -1) : b.group.kernel;
    const hue = kernel >= 0 ? this.hue(kernel) : null;
    const light = colours.dark ? 24 : 95;
    pen.fillStyle =
      n && (n.kind === "input" || n.kind === "output")
        ? colours.panel
        : hue === null
          ? colours.paper
          : `hsl(${hue},${colours.dark ? 30 : 75}%,${light}%)`;
    pen.strokeStyle = hue === null ? colours.line : `hsl(${hue},55%,${colours.dark ? 55 : 48}%)`;
    pen.lineWidth = n?.kind === "contraction" ? 2 : 1.1;
    if (b.node !== undefined && b.node === this.view.chosen) {
      pen.strokeStyle = colours.accent;
      pen.lineWidth = 3;
    } else if (b.node !== undefined && this.view.matched?.has(b.node)) {
      pen.strokeStyle = "#d97706";
      pen.lineWidth = 3;
    }
    pen.beginPath();
    pen.roundRect(b.left, b.upper, b.w, b.h, n && (n.kind === "input" || n.kind === "output") ? 19 : 6);
    pen.fill();
    if (!n) {
      pen.stroke();
      pen.beginPath();
      pen.roundRect(b.left + 3, b.upper + 3, b.w - 6, b.h - 6, 4);
    }
    pen.stroke();
    if (!letters) return;
    pen.textAlign = "center";
    const middle = (b.left + b.right) / 2;
    pen.fillStyle = colours.ink;
    pen.font = "600 12px system-ui, sans-serif";
    pen.fillText(
      cut(n ? (n.op === "input" || n.op === "output" ? n.name : n.op) : `▸ ${b.group.name}`, b.w / 6.4),
      middle,
      b.upper + 17,
    );
    pen.fillStyle = colours.quiet;
    pen.font = "10.5px ui-monospace, monospace";
    pen.fillText(cut(n ? n.type : `${b.group.total} node${b.group.total === 1 ? "" : "s"}`, b.w / 6.3), middle, b.upper + 32);
    pen.textAlign = "left";
  }
}

function cut(text, letters) {
  return text.length > letters ? `${text.slice(0, Math.max(1, Math.floor(letters) - 1))}…` : text;
}

function trace(pen, points) {
  pen.moveTo(points[0][0], points[0][1]);
  for (let i = 1; i < points.length; i++) {
    const [x0, y0] = points[i - 1],
      [x1, y1] = points[i];
    if (Math.abs(x0 - x1) < 0.5) pen.lineTo(x1, y1);
    else {
      const middle = (y0 + y1) / 2;
      pen.bezierCurveTo(x0, middle, x1, middle, x1, y1);
    }
  }
}

function tip(pen, tips, colour) {
  pen.fillStyle = colour;
  pen.beginPath();
  for (const [x, y] of tips) {
    pen.moveTo(x, y);
    pen.lineTo(x - 3.5, y - 7);
    pen.lineTo(x + 3.5, y - 7);
  }
  pen.fill();
}
