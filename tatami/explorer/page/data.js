// The document of a page: gzip in base64, so that a program of hundreds of kernels stays small.

/** The document in the text of a data element. */
export async function read(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}
