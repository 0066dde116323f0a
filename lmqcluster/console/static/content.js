// The body of a message as text, as JSON, or byte by byte.

import { h } from "./dom.js";

const BYTES_PER_LINE = 16;
const SHOWN_BYTES_MAX = 64 * 1024;

/** The bytes of a content as the node gives it: a string, or {base64}. */
export function bytesOf(content) {
  if (typeof content === "string") return new TextEncoder().encode(content);
  return Uint8Array.from(atob(content.base64), (character) => character.charCodeAt(0));
}

/** The text of a body, or null if it is not UTF-8; where it was cut, half a character at the end is left out. */
function textOf(body, { cut = false } = {}) {
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

/** Offsets, bytes and printable characters, sixteen a line. */
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

/** One line that gives an idea of a body. */
export function preview(body, length = 100) {
  const text = textOf(body.subarray(0, length * 4), { cut: true });
  if (text !== null && !/[\u0000-\u0008\u000e-\u001f]/.test(text)) return text.slice(0, length).replaceAll(/\s+/g, " ");
  return [...body.subarray(0, length / 3)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** A viewer with a choice of the three views; it begins with the one that fits best. */
export function viewer(body, { truncated = false } = {}) {
  const shown = body.subarray(0, SHOWN_BYTES_MAX);
  const cut = truncated || body.length > SHOWN_BYTES_MAX;
  const views = [
    ["Text", textOf(shown, { cut })],
    ["JSON", cut ? null : jsonOf(body)],
    ["Hex", hexDump(shown)],
  ];
  const output = h("pre", { tabindex: "0", "aria-label": "Content" });
  const buttons = views.map(([label, text]) =>
    h("button", { type: "button", class: "small", disabled: text === null, title: text === null ? `It is not ${label === "Text" ? "UTF-8" : label}.` : undefined, "aria-pressed": "false", onclick: () => show(label) }, label),
  );

  function show(label) {
    views.forEach(([name, text], place) => {
      buttons[place].setAttribute("aria-pressed", String(name === label));
      if (name === label) output.textContent = text;
    });
  }

  show(views[1][1] !== null && /^\s*[[{]/.test(views[0][1] ?? "") ? "JSON" : views[0][1] !== null ? "Text" : "Hex");
  return h("div", { class: "viewer" }, h("div", { class: "views", role: "group", "aria-label": "View as" }, buttons), output, cut ? h("p", { class: "muted" }, "Only the beginning is shown.") : null);
}
