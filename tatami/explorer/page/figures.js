// Figures of a kernel that several views show.

/** Seconds of a kernel: measured, else estimated. */
export function timeOf(kernel) {
  return kernel.seconds ?? kernel.estimate ?? null;
}

/** True if times were measured. */
export function measured(page) {
  return page.kernels.some((k) => k.seconds !== undefined && k.seconds !== null);
}

/** Name of a kernel, with its program if that is not main. */
export function nameOf(kernel) {
  return kernel.program === "main" ? kernel.name : `${kernel.program}/${kernel.name}`;
}
