// Requests to the server of this page (explorer/serve.py), on a page that is served.

/** The address for requests, or "" on a page that nobody serves. */
export function editsAddress() {
  return document.documentElement.dataset.edits ?? "";
}

/** The server's answer to a request. Fails with a message if there is none. */
export async function ask(request) {
  const reply = await fetch(editsAddress(), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(request),
  });
  const text = await reply.text();
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(text.slice(0, 200) || reply.statusText);
  }
}

/** Have the browser save a text as a file. */
export function saveFile(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
