// The body of a message as text, JSON or hex.

import { h } from "./dom.js";
import { decode } from "./msgpack.js";

const BYTES_PER_LINE = 16;
const SHOWN_BYTES_MAX = 64 * 1024;

/** Return the bytes of a content of the node: a string, or {base64}. */
function bytesOf(content) {
  if (typeof content === "string") return new TextEncoder().encode(content);
  return Uint8Array.from(atob(content.base64), (character) => character.charCodeAt(0));
}

/**
 * Return a body for reading. A body that clients of MessagePack-RPC stored is decoded if it is valid MessagePack.
 * `part` is {content, content_type}; `packed` names the stored form, or is empty if the body was not decoded.
 */
export function readable({ content, content_type: type }, { cut = false } = {}) {
  const stored = bytesOf(content);
  if (!/^application\/(x-)?msgpack\b/.test(type ?? "")) return { body: stored, stored, packed: "" };
  try {
    const value = decode(stored, { cut });
    const body = value instanceof Uint8Array ? value : new TextEncoder().encode(typeof value === "string" ? value : JSON.stringify(value));
    return { body, stored, packed: "MessagePack" };
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return { body: stored, stored, packed: "" };
  }
}

/** Return the text of a body, or null if it is not UTF-8. An incomplete character at the end of a cut body is left out. */
export function textOf(body, { cut = false } = {}) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body, { stream: cut });
  } catch {
    return null;
  }
}

function jsonOf(body) {
  const text = textOf(body);
  if (text === null) return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

/** Return offsets, bytes and printable characters, sixteen bytes per line. */
export function hexDump(body) {
  const lines = [];
  for (let start = 0; start < body.length; start += BYTES_PER_LINE) {
    const part = [...body.subarray(start, start + BYTES_PER_LINE)];
    const codes = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const characters = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${start.toString(16).padStart(8, "0")}  ${codes.padEnd(BYTES_PER_LINE * 3)} ${characters}`);
  }
  return lines.join("\n");
}

/** Return a preview of a body in one line. */
export function preview(body, length = 100) {
  const text = textOf(body.subarray(0, length * 4), { cut: true });
  if (text !== null && !/[\u0000-\u0008\u000e-\u001f]/.test(text)) return text.slice(0, length).replaceAll(/\s+/g, " ");
  return [...body.subarray(0, length / 3)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** Create a viewer with three views that opens the best one. Hex shows the stored bytes. */
export function viewer({ body, stored, packed }, { truncated = false } = {}) {
  const shown = body.subarray(0, SHOWN_BYTES_MAX);
  const cut = truncated || body.length > SHOWN_BYTES_MAX;
  const views = [
    ["Text", textOf(shown, { cut })],
    ["JSON", cut ? null : jsonOf(body)],
    ["Hex", hexDump(stored.subarray(0, SHOWN_BYTES_MAX))],
  ];
  const output = h("pre", { tabindex: "0", "aria-label": "Content" });
  const buttons = views.map(([label, text]) => {
    const title = text === null ? `It is not ${label === "Text" ? "UTF-8" : label}.` : undefined;
    return h("button", { type: "button", class: "small", disabled: text === null, title, "aria-pressed": "false", onclick: () => show(label) }, label);
  });
  const notes = [packed && `Stored as ${packed}; Hex shows the stored bytes.`, cut && "Only the beginning is shown."].filter(Boolean);

  function show(label) {
    views.forEach(([name, text], place) => {
      buttons[place].setAttribute("aria-pressed", String(name === label));
      if (name === label) output.textContent = text;
    });
  }

  const [[, text], [, json]] = views;
  show(json !== null && /^\s*[[{]/.test(text) ? "JSON" : text !== null ? "Text" : "Hex");
  return h("div", { class: "viewer" }, h("div", { class: "views", role: "group", "aria-label": "View as" }, buttons), output, notes.map((note) => h("p", { class: "muted" }, note)));
}
