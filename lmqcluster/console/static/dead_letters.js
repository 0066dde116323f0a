// Dead letters: queues that hold failed or expired messages, and the queues that they come from.

import { actionButton, commandBox, commandLine, readOnlyNote } from "./actions.js";
import { get } from "./api.js";
import { h, setText, textRow, wrapping } from "./dom.js";
import { age, count } from "./format.js";
import { list } from "./list.js";
import { REASON, reasonText } from "./messages.js";
import { segmentOf, textOf } from "./names.js";
import { cancelMoveTask, redriveMessages, startMoveTask } from "./queue_actions.js";

export const label = "Dead letters";

const ROWS = 100;
const PERIOD_MS = 3000;
// Queues whose reasons are looked up, the largest first, and the messages of each; every so many refreshes.
const EXPLAINED = 10;
const SAMPLE = 20;
const EXPLAINED_EVERY = 5;
const HERE = [
  { label: "Queue" },
  { label: "Dead letters", numeric: true, title: "Messages that the cluster moved here and that are not leased" },
  { label: "Main reason", prose: true, title: "The most frequent reason among the first messages, as their consumers gave it" },
  { label: "Leased", numeric: true, title: "Leased messages of the queue" },
  { label: "All", numeric: true, title: "All messages of the queue, including those pushed by clients" },
  { label: "Oldest", numeric: true, title: "Time for which the first message has been ready" },
  { label: "Change" },
];
const TASKS = [
  { label: "Queue" },
  { label: "Task", numeric: true },
  { label: "State" },
  { label: "Moved", numeric: true, title: "Messages that the task has moved" },
  { label: "To move", numeric: true, title: "Messages that the queue had for the task at its start" },
  { label: "To" },
  { label: "Change" },
];
const FROM = [
  { label: "Queue" },
  { label: "Dead-lettered", numeric: true, title: "Messages moved to the dead-letter queue after their last delivery" },
  { label: "Expired", numeric: true, title: "Messages that expired before they were delivered" },
  { label: "Dropped", numeric: true, title: "Messages removed after their last delivery, because the queue has no dead-letter queue" },
];

const ACTIONS = [
  ["Redrive", redriveMessages, "Sends the messages back in one step"],
  ["Start a move task", startMoveTask, "The cluster sends the messages back by itself, at most at a given rate, and the page shows how far it is"],
];

export function open() {
  const here = list("Queues with dead letters", HERE, "There are no dead letters.");
  const tasks = list("Move tasks", TASKS, "No task moves dead letters.");
  const from = list("Sources of failed messages", FROM, "No queue has failed messages.");
  const complaint = h("p", { class: "complaint", role: "alert" });
  const reasons = new Map();
  // Queues whose tasks are shown, and the latest task of each. A queue without dead letters stays while its task is known.
  const latest = new Map();
  let turn = 0;

  /** Look up the main reason of a queue, which may have been deleted. */
  async function explain({ name }) {
    const segment = segmentOf(name);
    try {
      const { messages } = await get(`/v1/queues/${segment}/messages?limit=${SAMPLE}&bytes=0`);
      reasons.set(segment, mainReason(messages));
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }

  /** Look up the latest task of a queue, which may have been deleted. */
  async function lookUpTask(segment) {
    try {
      const { tasks: [task] } = await get(`/v1/queues/${segment}/move-tasks`);
      if (task) latest.set(segment, { segment, task });
    } catch (error) {
      if (error.status !== 404) throw error;
      latest.delete(segment);
    }
  }

  async function changed(segment) {
    await lookUpTask(segment);
    await refresh();
  }

  async function refresh() {
    const found = await get(`/v1/queues?state=dead_letters&sort=dead_letters&limit=${ROWS}`);
    if (turn % EXPLAINED_EVERY === 0) await Promise.all(found.queues.slice(0, EXPLAINED).map(explain));
    turn += 1;
    here.show(found.queues.map((queue) => ({ ...queue, stale: found.stale })), found.total, (queue) => segmentOf(queue.name), (queue) => hereRow(queue, reasons, changed));
    const running = [...latest.values()].filter(({ task }) => task.status === "running").map(({ segment }) => segment);
    await Promise.all([...new Set([...found.queues.slice(0, EXPLAINED).map(({ name }) => segmentOf(name)), ...running])].map(lookUpTask));
    tasks.show([...latest.values()], latest.size, ({ segment, task }) => `${segment} ${task.number}`, (one) => taskRow(one, changed));
    const sources = new Map();
    // The top queues of each kind; a queue can be in both.
    for (const sort of ["dead_lettered", "dropped"]) {
      const { queues } = await get(`/v1/queues?sort=${sort}&order=desc&limit=${ROWS}`);
      for (const queue of queues) if (queue.dead_lettered_total + queue.expired_total + queue.dropped_total > 0) sources.set(segmentOf(queue.name), queue);
    }
    from.show([...sources.values()], sources.size, (queue) => segmentOf(queue.name), ({ name }) => {
      const segment = segmentOf(name);
      return textRow(FROM, (queue) => ["", count(queue.dead_lettered_total), count(queue.expired_total), count(queue.dropped_total)], h("a", { href: `#/queue/${segment}` }, wrapping(textOf(segment))));
    });
  }

  return {
    title: "Dead letters",
    element: [
      h("h1", {}, "Dead letters"),
      readOnlyNote("admin"),
      complaint,
      h("p", { class: "muted" }, "A queue with the property dead_letter_queue moves a message there after its last delivery. A queue with expire_to_queue moves expired messages there. Redrive sends them back at once; a move task does so at a rate, and continues if this page is closed."),
      here.element,
      tasks.element,
      from.element,
      h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), commandBox(commandLine("queue ls", [], ["--state", "dead_letters"]))),
    ].filter(Boolean),
    period: PERIOD_MS,
    refresh,
    complain: (error) => setText(complaint, error ? error.message : ""),
  };
}

/** Return the most frequent reason of dead letters, with its number if there are others. */
function mainReason(messages) {
  const counts = new Map();
  for (const { attributes, origin } of messages) {
    const reason = attributes?.[REASON] ?? (origin && reasonText(origin));
    if (typeof reason === "string") counts.set(reason, (counts.get(reason) ?? 0) + 1);
  }
  const [[reason, most] = ["", 0]] = [...counts].sort(([, one], [, other]) => other - one);
  return counts.size > 1 ? `${reason} (${count(most)} of the first ${count(messages.length)})` : reason;
}

function hereRow({ name: given }, reasons, changed) {
  const segment = segmentOf(given);
  const name = textOf(segment);
  // The fields that the dialogs of a queue's page use.
  const page = { segment, name, api: `/v1/queues/${segment}`, queue: null };
  const buttons = ACTIONS.map(([verb, action, hint]) => {
    const button = actionButton(verb, "admin", () => action(page, () => changed(segment)), { kind: "small", hint });
    button.setAttribute("aria-label", `${verb}: ${name}`);
    return button;
  });
  const link = h("a", { href: `#/queue/${segment}` }, wrapping(name));
  const row = textRow(HERE.slice(0, -1), (queue) => ["", count(queue.dead_letters), reasons.get(segment) ?? "–", count(queue.leased), count(queue.size), age(queue.oldest_age_s, queue.stale)], link);
  row.element.append(h("td", {}, buttons.flatMap((button) => [button, " "])));
  return row;
}

/** Return the destination of a task as text; the node leaves it out if the token does not cover it. */
function destinationOf({ to }) {
  if (to === undefined) return "a queue that the token does not cover";
  return to === null ? "where they came from" : textOf(segmentOf(to));
}

function taskRow({ segment, task: { number } }, changed) {
  const name = textOf(segment);
  const page = { segment, name, api: `/v1/queues/${segment}`, queue: null };
  const button = actionButton("Cancel", "admin", () => cancelMoveTask(page, number, () => changed(segment)), { kind: "small" });
  button.setAttribute("aria-label", `Cancel task ${number}: ${name}`);
  const link = h("a", { href: `#/queue/${segment}` }, wrapping(name));
  const texts = ({ task }) => ["", String(number), task.failure === null ? task.status : `${task.status}: ${task.failure}`, count(task.moved), count(task.to_move), destinationOf(task)];
  const row = textRow(TASKS.slice(0, -1), texts, link);
  row.element.append(h("td", {}, button));
  const { update } = row;
  row.update = (one) => {
    button.hidden = one.task.status !== "running";
    update(one);
  };
  return row;
}
