// Attributes of messages: names with strings, numbers or binary values. The node returns a binary value as {base64}.

import { field } from "./actions.js";
import { h } from "./dom.js";
import { quoted } from "./names.js";

const NUMBER = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i;

/** Return a value as text: binary values in Base64. */
function textOf(value) {
  return typeof value === "object" ? value.base64 : String(value);
}

/** Return the type of a value in words. */
function typeOf(value) {
  return typeof value === "object" ? "binary" : typeof value === "number" ? "number" : "text";
}

/** Return attributes in one line. */
export function attributesLine(attributes) {
  return Object.entries(attributes).map(([name, value]) => `${name}=${textOf(value)}`).join(", ");
}

/** Create a table of attributes; null if there are none. */
export function attributesTable(attributes) {
  const rows = Object.entries(attributes);
  if (rows.length === 0) return null;
  const head = h("tr", {}, ["Attribute", "Value", "Type"].map((title) => h("th", { scope: "col" }, title)));
  const body = rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, textOf(value)), h("td", {}, typeOf(value))));
  return h("div", { class: "scroll attributes", role: "region", "aria-label": "Attributes", tabindex: "0" }, h("table", {}, h("caption", { class: "unseen" }, "Attributes"), h("thead", {}, head), h("tbody", {}, body)));
}

/** Return the options of lmq-admin for attributes, without binary values. */
export function attributeWords(attributes) {
  const shown = Object.entries(attributes).filter(([, value]) => typeof value !== "object");
  return shown.flatMap(([name, value]) => ["--attribute", quoted(`${name}${typeof value === "number" ? ":=" : "="}${value}`)]);
}

/** Create the field for the attributes of a pushed message. */
export function attributesField() {
  const hint = "Optional. One in each line: name=text, or name:=5 for a number.";
  return field("attributes", "Attributes", h("textarea", { rows: "3", spellcheck: "false" }), hint);
}

/** Return the attributes that the lines of a text name. Throws a RangeError for a malformed line. */
export function attributesOf(text) {
  return Object.fromEntries(linesOf(text).map(parsed));
}

/** Return the options of lmq-admin for the attributes that the lines of a text name. */
export function attributeOptions(text) {
  return linesOf(text).flatMap((line) => (parsed(line), ["--attribute", quoted(line)]));
}

function linesOf(text) {
  return text.split("\n").filter((line) => line.trim());
}

function parsed(line) {
  const [, name, colon, text] = /^([^=]+?)(:?)=(.*)$/.exec(line) ?? [];
  if (name === undefined) throw new RangeError(`${line} is neither name=text nor name:=number.`);
  if (!colon) return [name, text];
  const number = Number(text);
  if (!NUMBER.test(text) || !Number.isFinite(number)) throw new RangeError(`${text} is not a number.`);
  // A larger integer would be rounded.
  if (Number.isInteger(number) && !Number.isSafeInteger(number)) throw new RangeError(`${text} is too large for the console; use lmq-admin.`);
  return [name, number];
}
