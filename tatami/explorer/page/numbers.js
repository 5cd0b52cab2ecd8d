// Figures for people.

/** Seconds with a unit, three digits. */
export function seconds(value) {
  if (value === null || value === undefined) return "";
  for (const [unit, size] of [
    ["s", 1],
    ["ms", 1e-3],
    ["µs", 1e-6],
  ])
    if (value >= size) return `${digits(value / size)} ${unit}`;
  return `${digits(value / 1e-9)} ns`;
}

/** A count with a metric prefix, three digits. */
export function count(value, unit = "") {
  if (value === null || value === undefined) return "";
  for (const [prefix, size] of [
    ["T", 1e12],
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e3],
  ])
    if (value >= size) return `${digits(value / size)} ${prefix}${unit}`;
  return `${digits(value)}${unit ? ` ${unit}` : ""}`;
}

/** Bytes by powers of 1024. */
export function bytes(value) {
  if (value === null || value === undefined) return "";
  for (const [unit, size] of [
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
  ])
    if (value >= size) return `${digits(value / size)} ${unit}`;
  return `${value} B`;
}

/** A share of one as a percentage. */
export function percent(value) {
  return value === null || value === undefined || !Number.isFinite(value)
    ? ""
    : `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`;
}

function digits(value) {
  return value === 0 ? "0" : value >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

/** Round numbers from 0 up to `most`, four or so. */
export function ticks(most) {
  const rough = most / 4,
    unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 2.5, 5, 10].find((m) => m * unit >= rough);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, k) => k * step);
}
