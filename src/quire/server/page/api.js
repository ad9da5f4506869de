// Requests to the server: the key, errors, and server-sent events.

import { $ } from "./dom.js";

const KEY = "quire.key";
let asking = null;

// An answer of the server that is an error.
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const address = (path = "") => new URL(path, document.baseURI).href;

// Ask for the key. Several requests share one dialog.
function askForKey(wasWrong) {
  asking ??= new Promise((resolve) => {
    const dialog = $("key-dialog");
    $("key-error").textContent = wasWrong ? "The server does not know this key." : "";
    $("key").value = "";
    dialog.addEventListener("close", () => {
      asking = null;
      sessionStorage.setItem(KEY, $("key").value.trim());
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

export async function call(path, { method, body, signal } = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = {};
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body) headers["Content-Type"] = "application/json";
    const options = { method: method ?? (body ? "POST" : "GET"), headers, signal, body: body && JSON.stringify(body) };
    const response = await fetch(address(path), options);
    if (response.ok) return response;
    if (response.status === 401) {
      if (sessionStorage.getItem(KEY) === key) await askForKey(Boolean(key));
      continue;
    }
    const text = await response.text();
    let message = text || response.statusText;
    try { message = JSON.parse(text).error.message; } catch { /* a proxy's page */ }
    throw new ApiError(response.status, message);
  }
}

export const getJson = async (path) => (await call(path)).json();

// Yield the data of each event of a response.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data: ")) yield line.slice(6);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
