// Schedules: their rules, next due times and counters; they can be paused, run and deleted.

import { actionButton, ask, commandBox, commandLine, readOnlyNote } from "./actions.js";
import { change, get } from "./api.js";
import { h, setText, textRow } from "./dom.js";
import { count } from "./format.js";
import { list } from "./list.js";
import { queueWord, segmentOf, textOf } from "./names.js";

export const label = "Schedules";

const ROWS = 100;
const SCHEDULES = [
  { label: "Schedule" },
  { label: "Queue" },
  { label: "Rule" },
  { label: "State" },
  { label: "Next" },
  { label: "Last" },
  { label: "Pushed", numeric: true },
  { label: "Missed", numeric: true, title: "Due times that were dropped" },
  { label: "Refused", numeric: true, title: "Messages for which the queue or the cluster had no room" },
  { label: "Change" },
];

export function open() {
  const schedules = list("Schedules", SCHEDULES, "There are no schedules.");
  const complaint = h("p", { class: "complaint", role: "alert" });

  async function refresh() {
    const found = await get(`/v1/schedules?limit=${ROWS}`);
    // The buttons depend on the state.
    schedules.show(found.schedules, found.next === null ? found.schedules.length : found.total, (one) => `${segmentOf(one.name)} ${one.paused}`, (one) => row(one, refresh));
  }

  return {
    title: "Schedules",
    element: [
      h("h1", {}, "Schedules"),
      readOnlyNote("write"),
      complaint,
      schedules.element,
      h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), commandBox(commandLine("schedule ls"))),
    ].filter(Boolean),
    period: 3000,
    refresh,
    complain: (error) => setText(complaint, error ? error.message : ""),
  };
}

function when(seconds) {
  return new Date(seconds * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

function rule(one) {
  return one.cron === null ? `every ${one.interval_s} s` : `${one.cron} (${one.zone})`;
}

function row({ name: given, paused }, refresh) {
  const segment = segmentOf(given);
  const name = textOf(segment);
  const buttons = [
    paused
      ? button("Resume", name, () => plain("resume", "Resume", segment, name, "Due times that passed during the pause were missed.", refresh))
      : button("Pause", name, () => plain("pause", "Pause", segment, name, "It pushes nothing until it is resumed.", refresh)),
    button("Run now", name, () => plain("run", "Run", segment, name, "Its message is pushed now, in addition to its due times.", refresh, "run-now")),
    button("Delete", name, () => remove(segment, name, refresh), "small danger"),
  ];
  const shown = textRow(SCHEDULES.slice(0, -1), (one) => [
    name,
    textOf(segmentOf(one.queue)),
    rule(one),
    one.paused ? "paused" : one.ended ? "ended" : "active",
    one.next_s === null ? "–" : when(one.next_s),
    one.last_s === null ? "–" : when(one.last_s),
    count(one.pushed),
    count(one.missed_total),
    count(one.refused),
  ]);
  shown.element.append(h("td", {}, ...buttons));
  return shown;
}

function button(verb, name, action, kind = "small") {
  const made = actionButton(verb, "write", action, { kind });
  made.setAttribute("aria-label", `${verb}: ${name}`);
  return made;
}

async function plain(verb, label, segment, name, effect, refresh, word = verb) {
  const done = await ask({
    title: `${label} schedule ${name}`,
    text: [effect],
    verb: label,
    command: () => commandLine(`schedule ${word}`, [queueWord(segment)]),
    run: async () => {
      await change("POST", `/v1/schedules/${segment}/${verb}`, {});
      return "Done.";
    },
  });
  if (done) await refresh();
}

async function remove(segment, name, refresh) {
  const done = await ask({
    title: `Delete schedule ${name}`,
    text: ["Messages that it has pushed stay in their queue."],
    verb: "Delete",
    danger: true,
    typed: name,
    command: () => commandLine("schedule rm", [queueWord(segment)], ["--yes"]),
    run: async () => {
      await change("DELETE", `/v1/schedules/${segment}`);
      return "The schedule is deleted.";
    },
  });
  if (done) await refresh();
}
