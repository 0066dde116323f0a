// The properties of a queue beyond LMQ's: what they are, as form controls, and as options of lmq-admin.

import { field } from "./actions.js";
import { h } from "./dom.js";
import { quoted } from "./names.js";

/** Name, kind and meaning of each. */
export const OPTIONS = [
  ["max_items", "number", "how many messages may wait"],
  ["max_size", "number", "the queue is full when the bodies that wait have so many bytes"],
  ["max_item_size", "number", "bytes of the largest body that the queue takes"],
  ["discard_old_when_full", "flag", "a push to the full queue discards what is oldest"],
  ["delay", "number", "seconds after its push at which a message becomes due"],
  ["max_age", "number", "seconds after its push during which a message may be delivered"],
  ["max_queue_age", "number", "seconds after its creation at which the empty queue is deleted"],
  ["expire_to_queue", "queue", "the queue that gets messages whose time is over"],
  ["dead_letter_queue", "queue", "the queue that gets messages without deliveries left"],
  ["retry_delay", "number", "seconds after which a message becomes due that comes back"],
  ["retry_backoff", "number", "multiplies the retry delay with each further delivery"],
  ["retry_delay_max", "number", "seconds of the longest retry delay"],
  ["destination_queues", "queues", "an alias: pushes are passed on to these, separated by commas"],
  ["fanout_only", "flag", "what is pushed goes to the bound queues alone"],
  ["open_transaction_timeout", "number", "seconds that a session may hold a message that it pulled without a lease time"],
  ["exclusive", "flag", "one session at a time pulls; the others stand by"],
];
const KINDS = Object.fromEntries(OPTIONS.map(([name, kind]) => [name, kind]));

/** Form controls for all of them, filled in with `values`. */
export function optionFields(values) {
  return OPTIONS.map(([name, kind, meaning]) => field(name, `${name}: ${meaning}`, control(kind, values[name])));
}

function control(kind, value) {
  if (kind === "number") return h("input", { type: "number", step: "any", min: "0", value: value ?? "" });
  if (kind !== "flag") return h("input", { autocomplete: "off", spellcheck: "false", value: Array.isArray(value) ? value.join(", ") : (value ?? "") });
  const choices = [["", "not set"], ["yes", "yes"], ["no", "no"]];
  const select = h("select", {}, choices.map(([key, text]) => h("option", { value: key }, text)));
  select.value = value === undefined ? "" : value ? "yes" : "no";
  return select;
}

/** Those that the texts of the form set. */
export function readOptions(texts) {
  return Object.fromEntries(OPTIONS.map(([name, kind]) => [name, parsed(kind, (texts[name] ?? "").trim())]).filter(([, value]) => value !== undefined));
}

function parsed(kind, text) {
  if (text === "") return undefined;
  if (kind === "number") return Number(text);
  if (kind === "flag") return text === "yes";
  return kind === "queue" ? text : text.split(",").map((one) => one.trim()).filter((one) => one !== "");
}

/** The options of `lmq-admin queue set` for one of them; null takes it away. */
export function optionWords(name, value) {
  if (value === null) return ["--unset", name];
  const flag = `--${name.replaceAll("_", "-")}`;
  if (KINDS[name] === "flag") return [value ? flag : flag.replace("--", "--no-")];
  return (Array.isArray(value) ? value : [value]).flatMap((one) => [flag, quoted(String(one))]);
}

export function isOption(name) {
  return name in KINDS;
}
