// Default properties: rules for queues by name. Only the first matching rule counts.

import { actionButton, ask, commandBox, commandLine, field, readOnlyNote } from "./actions.js";
import { change, get } from "./api.js";
import { answered, asking } from "./asking.js";
import { h, setText } from "./dom.js";
import { quoted } from "./names.js";
import { propertyFields, readProperties, shownValue } from "./properties.js";

export const label = "Defaults";

const PATH = "/properties";

export function open() {
  const state = { stored: null, rules: [] };
  const body = h("tbody");
  const complaint = h("p", { class: "complaint", role: "alert" });
  const summary = asking();
  const grid = h(
    "div",
    { class: "scroll", role: "region", "aria-label": "Default properties", tabindex: "0" },
    h("table", {}, h("caption", { class: "unseen" }, "Default properties"), h("thead", {}, h("tr", {}, ["Order", "Queue names that match", "Properties", "Change"].map((text) => h("th", { scope: "col" }, text)))), body),
  );
  const save = actionButton("Save", "admin", review, { kind: "main" });
  const discard = h("button", { type: "button", onclick: () => adopt(state.stored) }, "Discard changes");

  function adopt(rules) {
    state.stored = rules;
    state.rules = structuredClone(rules);
    draw();
  }

  function isChanged() {
    return JSON.stringify(state.rules) !== JSON.stringify(state.stored);
  }

  function draw() {
    const changed = isChanged();
    discard.hidden = !changed;
    save.hidden = !changed;
    grid.hidden = state.rules.length === 0;
    answered(summary, `${state.rules.length === 0 ? "There are no rules: all queues have the built-in properties." : "The first rule that matches a queue's name applies to it."}${changed ? " Changes are not saved yet." : ""}`);
    body.replaceChildren(...state.rules.map(ruleRow));
  }

  function ruleRow([pattern, properties], place) {
    const buttons = [
      actionButton("Edit", "admin", () => edit(place), { kind: "small", local: true }),
      actionButton("Up", "admin", () => swap(place, place - 1), { kind: "small", local: true }),
      actionButton("Down", "admin", () => swap(place, place + 1), { kind: "small", local: true }),
      actionButton("Remove", "admin", () => (state.rules.splice(place, 1), draw()), { kind: "small danger", local: true }),
    ];
    if (place === 0) buttons[1].disabled = true;
    if (place === state.rules.length - 1) buttons[2].disabled = true;
    for (const button of buttons) button.setAttribute("aria-label", `${button.textContent}: rule ${place + 1}`);
    const values = Object.entries(properties).map(([name, value]) => `${name} ${shownValue(value)}`);
    return h("tr", {}, h("th", { scope: "row" }, String(place + 1)), h("td", {}, pattern === "" ? "every name" : h("code", {}, pattern)), h("td", {}, values.join(", ")), h("td", {}, h("div", { class: "row" }, buttons)));
  }

  function swap(one, other) {
    [state.rules[one], state.rules[other]] = [state.rules[other], state.rules[one]];
    draw();
  }

  async function edit(place = null) {
    const [pattern, properties] = place === null ? ["", {}] : state.rules[place];
    const expression = field("pattern", "Regular expression for queue names", h("input", { required: true, value: pattern, autocomplete: "off", spellcheck: "false" }), "RE2. It matches anywhere in the name; use ^ and $ to anchor it.");
    await ask({
      title: place === null ? "New rule" : `Rule ${place + 1}`,
      text: ["The rule does not set properties that are left empty. Changes are stored with Save."],
      fields: [expression, ...propertyFields(properties)],
      verb: "Apply",
      run: async (texts) => {
        const rule = [texts.pattern, readProperties(texts)];
        if (place === null) state.rules.push(rule);
        else state.rules[place] = rule;
        draw();
        return "Not saved yet.";
      },
    });
  }

  async function review() {
    const current = await get(PATH);
    const raced = JSON.stringify(current) !== JSON.stringify(state.stored);
    const done = await ask({
      title: "Save default properties",
      text: [
        raced ? "The rules have changed since this page was opened. Save replaces them." : "The rules apply to all queues on all nodes at once.",
        h("pre", { class: "diff", tabindex: "0", "aria-label": "Changes" }, difference(lines(current), lines(state.rules))),
      ],
      verb: "Save",
      danger: raced,
      command: () => `${commandLine("defaults set - --yes")} <<< ${quoted(JSON.stringify(state.rules))}`,
      run: async () => {
        await change("PUT", PATH, state.rules);
        return "The default properties are saved.";
      },
    });
    if (done) adopt(await get(PATH));
  }

  return {
    title: "Default properties",
    element: [
      h("h1", {}, "Default properties"),
      readOnlyNote("admin"),
      complaint,
      summary,
      grid,
      h("p", { class: "muted" }, "A queue's own properties override the rules, and the rules override the built-in defaults."),
      h("div", { class: "bar" }, actionButton("New rule", "admin", () => edit()), h("div", { class: "spring" }), discard, save),
      h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), commandBox(commandLine("defaults show"))),
    ].filter(Boolean),
    period: 5000,
    async refresh() {
      const rules = await get(PATH);
      if (state.stored === null || (!isChanged() && JSON.stringify(rules) !== JSON.stringify(state.stored))) adopt(rules);
    },
    complain: (error) => setText(complaint, error ? error.message : ""),
  };
}

function lines(rules) {
  return rules.map((rule) => JSON.stringify(rule));
}

/** Return removed lines, marked with -, and added lines, marked with +, in order (longest common subsequence). */
export function difference(before, after) {
  const common = Array.from({ length: before.length + 1 }, () => new Array(after.length + 1).fill(0));
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      common[i][j] = before[i] === after[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const output = [];
  let i = 0;
  let j = 0;
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) output.push(h("span", {}, `  ${before[(j += 1, i++)]}\n`));
    else if (i < before.length && (j === after.length || common[i + 1][j] >= common[i][j + 1])) output.push(h("del", {}, `- ${before[i++]}\n`));
    else output.push(h("ins", {}, `+ ${after[j++]}\n`));
  }
  return output;
}
