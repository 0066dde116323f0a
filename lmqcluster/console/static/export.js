// Files that the browser makes of what the node answers.

import { announce } from "./dom.js";

/** One field of CSV, as RFC 4180 has it. What a spreadsheet would take for a formula gets an apostrophe. */
function csvField(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Rows as CSV, with a head. */
export function csv(head, rows) {
  return [head, ...rows].map((row) => row.map(csvField).join(",")).join("\r\n") + "\r\n";
}

/** Values as JSON, one a line. */
export function jsonLines(values) {
  return values.map((value) => `${JSON.stringify(value)}\n`).join("");
}

/** Have the browser store a text as a file. */
export function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  announce(`${name} is stored.`);
}
