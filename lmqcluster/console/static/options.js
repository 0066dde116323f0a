// The properties of a queue beyond LMQ's: meanings, form controls, and options of lmq-admin.

import { field } from "./actions.js";
import { h } from "./dom.js";
import { quoted } from "./names.js";

/** Name, kind and meaning of each. */
export const OPTIONS = [
  ["max_items", "number", "most messages that may wait"],
  ["max_size", "number", "most bytes that the bodies of waiting messages may have"],
  ["max_item_size", "number", "bytes of the largest body that the queue accepts"],
  ["discard_old_when_full", "flag", "a push to the full queue discards the oldest messages"],
  ["delay", "number", "default delay of pushed messages in seconds"],
  ["max_age", "number", "seconds after its push for which a message may be delivered"],
  ["max_queue_age", "number", "age in seconds at which the queue is deleted if it is empty"],
  ["expire_to_queue", "queue", "the queue that gets expired messages"],
  ["dead_letter_queue", "queue", "the queue that gets messages without deliveries left"],
  ["max_deliveries", "number", "most deliveries of a message, beside retry"],
  ["retry_delay", "number", "delay of a redelivery in seconds"],
  ["retry_backoff", "number", "factor by which the retry delay grows with each redelivery"],
  ["retry_delay_max", "number", "longest retry delay in seconds"],
  ["destination_queues", "queues", "an alias forwards its pushes to these queues, separated by commas"],
  ["fanout_only", "flag", "pushes go only to the bound queues"],
  ["open_transaction_timeout", "number", "seconds for which a session may hold a message that it pulled without a lease time"],
  ["group_mode", "mode", "fair: groups take turns; ordered: one message of a group at a time"],
  ["max_in_flight", "number", "most messages that are under lease at one time"],
  ["group_max_in_flight", "number", "the same for each group"],
  ["rate", "number", "most deliveries per second"],
  ["rate_burst", "number", "most deliveries at once; by default those of one second"],
  ["group_rate", "number", "most deliveries per second of each group of a fair queue"],
  ["group_rate_burst", "number", "most deliveries of a group at once"],
  ["exclusive", "flag", "only one session at a time pulls; the others wait"],
  ["key_window", "number", "seconds for which the key of a push counts exactly, for any body"],
  ["key_scope", "scope", "where such a key counts: queue or group"],
];
const CHOICES = { mode: ["ordered", "fair"], scope: ["queue", "group"] };
const KINDS = Object.fromEntries(OPTIONS.map(([name, kind]) => [name, kind]));

/** Create form controls for all of them, filled with `values`. */
export function optionFields(values) {
  return OPTIONS.map(([name, kind, meaning]) => field(name, `${name}: ${meaning}`, control(kind, values[name])));
}

function control(kind, value) {
  if (kind === "number") return h("input", { type: "number", step: "any", min: "0", value: value ?? "" });
  const choices = CHOICES[kind];
  if (choices) return choice(choices.map((one) => [one, one]), value ?? "");
  if (kind !== "flag") return h("input", { autocomplete: "off", spellcheck: "false", value: Array.isArray(value) ? value.join(", ") : (value ?? "") });
  return choice([["yes", "yes"], ["no", "no"]], value === undefined ? "" : value ? "yes" : "no");
}

function choice(choices, chosen) {
  const select = h("select", {}, [["", "not set"], ...choices].map(([key, text]) => h("option", { value: key }, text)));
  select.value = chosen;
  return select;
}

/** Return the properties that the texts of the form set. */
export function readOptions(texts) {
  return Object.fromEntries(OPTIONS.map(([name, kind]) => [name, parsed(kind, (texts[name] ?? "").trim())]).filter(([, value]) => value !== undefined));
}

function parsed(kind, text) {
  if (text === "") return undefined;
  if (kind === "number") return Number(text);
  if (kind === "flag") return text === "yes";
  return kind === "queues" ? text.split(",").map((one) => one.trim()).filter((one) => one !== "") : text;
}

/** Return the options of `lmq-admin queue set` for a property; null removes it. */
export function optionWords(name, value) {
  if (value === null) return ["--unset", name];
  const flag = `--${name.replaceAll("_", "-")}`;
  if (KINDS[name] === "flag") return [value ? flag : flag.replace("--", "--no-")];
  return (Array.isArray(value) ? value : [value]).flatMap((one) => [flag, quoted(String(one))]);
}

export function isOption(name) {
  return name in KINDS;
}
