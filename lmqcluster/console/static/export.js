// Export of answers as files.

import { announce } from "./dom.js";

/** Return a CSV field (RFC 4180). An apostrophe keeps spreadsheets from executing it as a formula. */
function csvField(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Return rows as CSV, with a header. */
export function csv(head, rows) {
  return [head, ...rows].map((row) => row.map(csvField).join(",")).join("\r\n") + "\r\n";
}

/** Return values as JSON, one per line. */
export function jsonLines(values) {
  return values.map((value) => `${JSON.stringify(value)}\n`).join("");
}

/** Save a text as a file through the browser. */
export function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  announce(`${name} is saved.`);
}
