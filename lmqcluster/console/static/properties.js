// The properties of a queue: effective values, and those set on the queue itself.

import { actionButton, ask, commandLine, field } from "./actions.js";
import { change } from "./api.js";
import { h, setText, syncRows, table, textRow } from "./dom.js";
import { queueWord, quoted } from "./names.js";
import { OPTIONS, isOption, optionFields, optionWords, readOptions } from "./options.js";

const MEANING = {
  accum: "accumulation window in seconds; 0 is off",
  retry: "redeliveries of a message, for messages pushed after the change",
  timeout: "lease in seconds, after which a message without an answer is redelivered",
  hooks: "headers of a push over HTTP that become attributes of the message",
  ...Object.fromEntries(OPTIONS.map(([name, , meaning]) => [name, meaning])),
};

const HOOKS_EXAMPLE = '{"pre_http_push": [["lmq_hook_preserve_header", ["X-Request-Id"]]]}';
const HOOKS_HELP = "There is one hook: lmq_hook_preserve_header makes attributes of the named headers of a push over HTTP, and a pull over HTTP returns them as headers. At most 64 names. Empty: no headers are kept.";

/** Return the readable form of a property's value. */
export function shownValue(value) {
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Create form controls for all properties, filled with `values`; see `readProperties`. */
export function propertyFields(values = {}) {
  const number = (name, step) => field(name, `${name}: ${MEANING[name]}`, h("input", { type: "number", step, value: values[name] ?? "" }));
  const hooks = h("textarea", { rows: "2", spellcheck: "false", placeholder: HOOKS_EXAMPLE, value: values.hooks ? JSON.stringify(values.hooks) : "" });
  return [number("accum", "any"), number("retry", "1"), number("timeout", "any"), field("hooks", `hooks: ${MEANING.hooks}, as JSON`, hooks, HOOKS_HELP), ...optionFields(values)];
}

/** Return the properties in the texts of the form; throw RangeError for invalid JSON. */
export function readProperties(texts) {
  const properties = {};
  for (const name of ["accum", "retry", "timeout"]) if (texts[name].trim() !== "") properties[name] = Number(texts[name]);
  if (texts.hooks.trim() !== "") {
    try {
      properties.hooks = JSON.parse(texts.hooks);
    } catch (error) {
      throw new RangeError(`The hooks are not JSON: ${error.message}`);
    }
  }
  return { ...properties, ...readOptions(texts) };
}

/** Create the section of the queue's page. */
export function propertiesSection(page) {
  const grid = table("Properties", [{ label: "Property" }, { label: "Value" }, { label: "From" }, { label: "Meaning" }]);
  const notes = table("Annotations", [{ label: "Annotation" }, { label: "Text" }]);
  let latest = { properties: {}, own: {} };

  async function edit() {
    const fields = propertyFields(latest.properties);
    const done = await ask({
      title: `Properties of ${page.name}`,
      text: ["Changed properties are set on the queue itself and take effect on all nodes at once. Other properties stay unchanged. An empty field removes its property, except for the first four."],
      fields,
      verb: "Set",
      command: (texts) => setCommand(page.segment, changed(texts)) || "(nothing is changed yet)",
      run: async (texts) => {
        const properties = changed(texts);
        if (Object.keys(properties).length === 0) throw new RangeError("Nothing was changed.");
        await change("PATCH", `${page.api}/properties`, properties);
        return "The properties are set.";
      },
    });
    if (done) await page.refresh();
  }

  /** Return the properties that differ from the current ones; null for those to remove. */
  function changed(texts) {
    const wanted = readProperties(texts);
    const set = Object.entries(wanted).filter(([name, value]) => shownValue(value) !== shownValue(latest.properties[name] ?? ""));
    const unset = OPTIONS.filter(([name]) => name in latest.own && !(name in wanted)).map(([name]) => [name, null]);
    return Object.fromEntries([...set, ...unset]);
  }

  async function clear() {
    const done = await ask({
      title: `Clear the properties of ${page.name}`,
      text: ["The queue's own properties are removed; the default properties apply again."],
      verb: "Clear",
      danger: true,
      command: () => commandLine("queue clear", [queueWord(page.segment)]),
      run: async () => {
        await change("DELETE", `${page.api}/properties`);
        return "The properties are cleared.";
      },
    });
    if (done) await page.refresh();
  }

  return {
    element: h(
      "section",
      {},
      h("h2", {}, "Properties"),
      grid.element,
      notes.element,
      h("div", { class: "bar" }, actionButton("Edit", "write", edit), actionButton("Clear own", "write", clear), h("a", { href: "#/defaults" }, "Default properties")),
    ),
    show(queue) {
      latest = { properties: queue.properties ?? {}, own: queue.own_properties ?? {} };
      const items = Object.entries(latest.properties).map(([name, value]) => ({ name, value: shownValue(value), from: name in latest.own ? "the queue" : "default" }));
      syncRows(grid.body, items, (item) => item.name, () => textRow([{ word: true }, {}, {}, {}], ({ name, value, from }) => [name, value, from, MEANING[name] ?? ""]));
      const annotations = Object.entries(queue.annotations ?? {});
      notes.element.hidden = annotations.length === 0;
      syncRows(notes.body, annotations, ([name]) => name, () => textRow([{ word: true }, {}], (one) => one));
    },
  };
}

function setCommand(segment, properties) {
  if (Object.keys(properties).length === 0) return "";
  const options = Object.entries(properties).flatMap(([name, value]) => (isOption(name) ? optionWords(name, value) : [`--${name}`, quoted(shownValue(value))]));
  return commandLine("queue set", [queueWord(segment)], options);
}
