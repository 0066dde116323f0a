// One queue: figures, waiting times, properties, messages and actions.

import { actionButton, commandLine, readOnlyNote } from "./actions.js";
import { connection, get } from "./api.js";
import { asking } from "./asking.js";
import { h, setText, syncRows, table, textRow } from "./dom.js";
import { age, bytes, count, duration, rate } from "./format.js";
import { messagesSection } from "./messages.js";
import { queueWord, textOf } from "./names.js";
import { PER_SECOND, tiles } from "./overview.js";
import { plots } from "./plots.js";
import { propertiesSection } from "./properties.js";
import { deleteQueue, moveMessages, purgeQueue, pushMessage, redriveMessages, suspendQueue } from "./queue_actions.js";
import { now } from "./rates.js";
import { Samples } from "./samples.js";

export const label = "Queue";

const PERIOD_MS = 1000;
// Period of requests for a queue that does not exist.
const MISSING_PERIOD_MS = 10_000;
const STATS_EVERY = 5;
const COUNTERS = ["pushed_total", "pulled_total", "acked_total", "nacked_total", "redelivered_total", "dropped_total"];
const TILES = [
  ["ready", "Ready", "can be pulled", (queue) => count(queue.ready)],
  ["leased", "Leased", "not settled yet", (queue) => count(queue.leased)],
  ["delayed", "Delayed", "due later", (queue) => count(queue.delayed)],
  ["oldest", "Oldest", "time since due", (queue) => age(queue.oldest_age_s, queue.stale)],
  ["bytes", "Bodies", "of all messages", (queue) => bytes(queue.bytes)],
  ["pushed", "Pushed", PER_SECOND, (_queue, rates) => rate(rates?.pushed_total)],
  ["pulled", "Delivered", PER_SECOND, (_queue, rates) => rate(rates?.pulled_total)],
  ["acked", "Acknowledged", PER_SECOND, (_queue, rates) => rate(rates?.acked_total)],
];
const TOTALS = [
  ["pushed_total", "Pushed"],
  ["pulled_total", "Delivered"],
  ["acked_total", "Acknowledged"],
  ["nacked_total", "Given back"],
  ["redelivered_total", "Timed out"],
  ["dropped_total", "Dropped"],
  ["purged_total", "Purged"],
  ["moved_in_total", "Moved in"],
  ["moved_out_total", "Moved out"],
  ["expired_total", "Expired"],
  ["dead_lettered_total", "Dead-lettered"],
  ["refused_total", "Refused"],
  ["discarded_total", "Discarded"],
  ["withdrawn_total", "Withdrawn"],
  ["deduplicated_total", "Deduplicated"],
];

export function open({ argument: segment }) {
  const api = `/v1/queues/${segment}`;
  const name = textOf(segment);
  const page = { segment, api, name, queue: null, refresh: null, looking: Promise.resolve(), isGone: false };
  const figures = tiles(TILES);
  const drawn = plots();
  const samples = new Samples(COUNTERS);
  const totals = table("Totals", [{ label: "Messages" }, { label: "Total", numeric: true }, ...["1 min", "5 min", "15 min"].map((span) => ({ label: `Per s, ${span}`, numeric: true, title: `Average of the last ${span}` }))]);
  const waits = table("Waiting time", [{ label: "Share of pulls" }, { label: "Waited at most", numeric: true }]);
  const consumers = table("Consumers", [{ label: "What" }, { label: "Now" }]);
  let atNodes = null;
  const waitNote = h("p", { class: "muted" });
  const suspended = h("span", { class: "badge warn", hidden: true }, "suspended");
  const complaint = h("p", { class: "complaint", role: "alert" });
  const waiting = asking();
  const suspend = actionButton("Suspend", "admin", () => suspendQueue(page));
  // Actions that need an existing queue.
  const onQueue = [
    suspend,
    actionButton("Move", "admin", () => moveMessages(page, () => messages.reload())),
    actionButton("Redrive", "admin", () => redriveMessages(page, () => messages.reload())),
    actionButton("Purge", "admin", () => purgeQueue(page, () => messages.reload()), { kind: "danger" }),
    actionButton("Delete", "admin", () => deleteQueue(page), { kind: "danger" }),
  ];
  const properties = propertiesSection(page);
  const messages = messagesSection(page);
  let turn = 0;
  let stats = null;
  let shownCurrent = null;
  // Difference between the clocks of the node and of this page.
  let ahead_s = null;

  function showQueue(queue) {
    page.queue = queue;
    samples.add({ ...queue, at_s: now() + ahead_s }, isCurrent());
    showFigures();
    suspended.hidden = !queue.suspended;
    showConsumers(queue);
    setText(suspend, queue.suspended ? "Resume" : "Suspend");
  }

  /** Return whether the queue is as the cluster has it. Without a quorum it is the node's own copy, however old. */
  function isCurrent() {
    return connection.quorum && !page.queue.stale;
  }

  function showFigures() {
    const current = isCurrent();
    const queue = { ...page.queue, stale: !current };
    for (const [id, , , value] of TILES) figures.update(id, value(queue, current ? samples.tip.rates : null));
    drawn.show(samples, current);
    showTotals(queue);
    showWaits(stats, queue.stale);
    shownCurrent = current;
  }

  /** Show the consumers of the queue at all nodes, sessions of an exclusive one, and groups. */
  function showConsumers({ exclusive_holder: holder, standing_by: others, properties: { exclusive } = {}, ...queue }) {
    const who = holder === null ? "no session" : `session ${holder}; ${others === 0 ? "no session waits" : others === 1 ? "1 session waits" : `${count(others)} sessions wait`}`;
    const items = [
      ...consumersOf(atNodes),
      ["Leased messages", count(queue.leased)],
      ["Busy groups", queue.groups === 0 ? "none" : `${count(queue.groups)}; ${count(queue.held)} messages wait for an earlier message of their group`],
    ];
    for (const [limit, held] of Object.entries(queue.held_back)) items.push([`Held back by ${limit}`, `${count(held)} messages`]);
    if (exclusive || holder !== null) items.push([exclusive ? "Exclusive, held by" : "Was exclusive, held by", who]);
    if (queue.dead_letters > 0) items.push(["Dead letters here", count(queue.dead_letters)]);
    syncRows(consumers.body, items, ([what]) => what, () => textRow([{}, {}], (item) => item));
  }

  function showTotals(queue) {
    const windows = { pushed_total: stats?.push, pulled_total: stats?.pull };
    const items = TOTALS.filter(([key]) => queue[key] !== undefined).map(([key, text]) => ({ key, text, total: queue[key], meter: windows[key], stale: queue.stale }));
    syncRows(totals.body, items, (item) => item.key, () =>
      textRow([{}, ...Array(4).fill({ numeric: true })], ({ text, total, meter, stale }) => [text, count(total), ...["one", "five", "fifteen"].map((span) => (meter ? rate(meter[span], stale) : ""))]),
    );
  }

  function showWaits({ retention }, stale) {
    const known = retention.n > 0 && !stale;
    waits.element.hidden = !known;
    setText(waitNote, stale ? "Unknown without a quorum." : known ? `Time between ready and delivered, of the first message of ${count(retention.n)} pulls in the last minute: ${duration(retention.arithmetic_mean)} on average.` : "Fewer than five pulls got a message in the last minute.");
    if (!known) return;
    const shares = [["half", retention.percentile["50"]], ["90 %", retention.percentile["90"]], ["99 %", retention.percentile["99"]], ["all", retention.max]];
    syncRows(waits.body, shares, ([share]) => share, () => textRow([{}, { numeric: true }], ([share, value]) => [share, duration(value)]));
  }

  page.refresh = () => {
    // Stop requests for a queue that is being deleted.
    if (!page.isGone) page.looking = look();
    return page.looking;
  };

  /** Load the samples of the last hour from the node. */
  async function recall() {
    const { history, uptime_s } = await get(`${api}/history`);
    ahead_s = uptime_s - now();
    samples.begin(history);
  }

  async function look() {
    if (ahead_s === null) await recall();
    if (turn % STATS_EVERY === 0) {
      [stats, atNodes] = await Promise.all([get(`${api}/stats`), get(`${api}/consumers`)]);
    }
    turn += 1;
    const queue = await get(api);
    showQueue(queue);
    properties.show(queue);
  }

  // Hidden until the first answer, because all figures would be empty.
  const contents = h(
    "div",
    { hidden: true },
    figures.element,
    drawn.element,
    messages.element,
    h(
      "div",
      { class: "pair" },
      h("section", {}, h("h2", {}, "Consumers"), consumers.element, h("h2", {}, "Totals and rates"), totals.element, h("h2", {}, "Waiting time"), waitNote, waits.element),
      properties.element,
    ),
  );
  const view = {
    title: `Queue ${name}`,
    element: [
      h("p", { class: "crumbs" }, h("a", { href: "#/queues" }, "Queues"), " /"),
      h("h1", { class: "name" }, name, " ", suspended),
      readOnlyNote("write"),
      complaint,
      waiting,
      h(
        "div",
        { class: "bar actions" },
        actionButton("Push", "write", () => pushMessage(page, messages.reload)),
        onQueue,
      ),
      contents,
    ].filter(Boolean),
    period: PERIOD_MS,
    // An answer about the queue takes some seconds without a quorum.
    show: () => page.queue !== null && isCurrent() !== shownCurrent && showFigures(),
    opened: () => messages.reload(),
    refresh: page.refresh,
    complain(error) {
      const missing = error?.status === 404;
      view.period = missing ? MISSING_PERIOD_MS : PERIOD_MS;
      for (const element of onQueue) element.hidden = missing;
      waiting.hidden = true;
      contents.hidden = missing || page.queue === null;
      const text = error === null ? "" : missing ? `There is no queue ${name} now. ${commandHint(segment)}` : error.message;
      setText(complaint, text);
    },
  };
  return view;
}

/** Return the number of consumers and of waiting pulls, in total and by node. */
function consumersOf({ consumers, waiting_pulls: pulls, nodes, unreachable }) {
  const where = nodes.filter((one) => one.consumers > 0).map((one) => `${count(one.consumers)} at ${one.node}`);
  const missing = unreachable.length ? `; ${unreachable.join(", ")} not counted, no answer` : "";
  return [
    ["Consumers", consumers === 0 ? `none${missing}` : `${count(consumers)}: ${where.join(", ")}${missing}`],
    ["Waiting pulls", count(pulls)],
  ];
}

function commandHint(segment) {
  return `A push creates it: ${commandLine("message push", [queueWord(segment), "..."])}`;
}
