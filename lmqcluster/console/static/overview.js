// The overview: rates, waiting messages, warnings.

import { connection, get } from "./api.js";
import { answered, asking } from "./asking.js";
import { h, setText, syncRows, table, textRow, wrapping } from "./dom.js";
import { findings } from "./findings.js";
import { age, bytes, count, rate } from "./format.js";
import { segmentOf, textOf } from "./names.js";
import { LAG, lastContact, stateBadge } from "./nodes.js";
import { plots } from "./plots.js";

export const label = "Overview";

/** The unit below rates, shown even on narrow screens. */
export const PER_SECOND = "a second";

const TILES = [
  ["ready", "Ready", "can be pulled", (sums) => count(sums.ready)],
  ["leased", "Leased", "not settled yet", (sums) => count(sums.leased)],
  ["delayed", "Delayed", "due later", (sums) => count(sums.delayed)],
  ["oldest", "Oldest", "ready message"],
  ["queues", "Queues", "", (sums) => count(sums.queues)],
  ["bytes", "Bodies", "of all messages", (sums) => bytes(sums.bytes)],
  ["pushed", "Pushed", PER_SECOND, (_sums, rates) => rate(rates?.pushed_total)],
  ["pulled", "Delivered", PER_SECOND, (_sums, rates) => rate(rates?.pulled_total)],
  ["acked", "Acknowledged", PER_SECOND, (_sums, rates) => rate(rates?.acked_total)],
];
const TROUBLES = [
  ["redelivered_total", "Timed out", "the lease ended without an answer"],
  ["nacked_total", "Given back", "with a nack"],
  ["dropped_total", "Dropped", "no deliveries left"],
];
const BIGGEST = [
  { label: "Queue" },
  { label: "Messages", numeric: true },
  { label: "Oldest", numeric: true, title: "Time for which the first message has been ready" },
  { label: "Pushed/s", numeric: true, title: "Over the last five seconds" },
  { label: "Delivered/s", numeric: true, title: "Over the last five seconds" },
  { label: "Consumers", numeric: true, title: "Connections at all nodes that wait for messages of the queue or hold some" },
];
const BUSIEST = 8;
/** The time in which refused messages are a finding. */
export const RECENT_S = 600;
const HOUR_S = 3600;

/** Create a row of tiles; `update(id, text)` sets the text of one. */
export function tiles(definitions) {
  const values = {};
  const element = h(
    "dl",
    { class: "tiles" },
    definitions.map(([id, name, hint]) => {
      values[id] = h("dd", {}, "–");
      return h("div", { class: "tile", dataset: { tile: id } }, h("dt", {}, name), values[id], h("dd", { class: hint === PER_SECOND ? "hint unit" : "hint" }, hint));
    }),
  );
  return { element, update: (id, text) => setText(values[id], text) };
}

export function open({ samples }) {
  const figures = tiles(TILES);
  const drawn = plots();
  const state = findings();
  const members = table("Nodes", [{ label: "Node" }, { label: "State" }, { label: "Lag", numeric: true, title: LAG }, { label: "In memory", numeric: true, title: "Messages in memory; the page Nodes shows the memory of the process" }, { label: "Disk free", numeric: true }, { label: "Last contact", numeric: true }]);
  const biggest = table("Queues with the most messages", BIGGEST);
  const troubles = table("Failed deliveries", [{ label: "Messages" }, { label: "Last 10 minutes", numeric: true }, { label: "Last hour", numeric: true }, { label: "In total", numeric: true }]);
  const none = asking();

  // The last answer about queues.
  let largest = null;

  biggest.element.hidden = true;

  function show(overview) {
    contents.hidden = false;
    const current = overview.cluster.has_quorum;
    const rates = current ? samples.tip.rates : null;
    for (const [id, , , value] of TILES) if (value) figures.update(id, value(overview.totals, rates));
    drawn.show(samples, current);
    showLargest();
    state.show(overview, samples.grown("refused_total", RECENT_S));
    syncRows(members.body, sortedNodes(overview.cluster), (node) => node.id, nodeRow);
    showTroubles(overview.totals);
  }

  function showLargest() {
    if (largest === null) return;
    const stale = largest.stale || !connection.quorum;
    figures.update("oldest", age(largest.oldest_age_s, stale));
    syncRows(biggest.body, largest.queues.map((queue) => ({ ...queue, stale })), (queue) => segmentOf(queue.name), (queue) => {
      const segment = segmentOf(queue.name);
      const link = h("a", { href: `#/queue/${segment}` }, wrapping(textOf(segment)));
      return textRow(BIGGEST, (one) => ["", count(one.size), age(one.oldest_age_s, one.stale), rate(one.push_rate, one.stale), rate(one.pull_rate, one.stale), count(one.consumers)], link);
    });
  }

  function showTroubles(totals) {
    const items = TROUBLES.map(([key, name, hint]) => ({ key, name, hint, recent: samples.grown(key, RECENT_S), hour: samples.grown(key, HOUR_S), all: totals[key] }));
    syncRows(troubles.body, items, (item) => item.key, (item) =>
      textRow([{}, ...Array(3).fill({ numeric: true })], ({ recent, hour, all }) => ["", count(recent), count(hour), count(all)], h("div", {}, `${item.name} `, h("div", { class: "hint" }, item.hint))),
    );
  }

  // Hidden until the first answer, because all figures would be empty.
  const contents = h(
    "div",
    { hidden: true },
    state.element,
    figures.element,
    drawn.element,
    h(
      "div",
      { class: "pair" },
      h("section", {}, h("h2", {}, "Nodes"), members.element, h("h2", {}, "Failed deliveries"), troubles.element),
      h("section", {}, h("h2", {}, "Queues with the most messages"), biggest.element, none, h("p", { class: "after" }, h("a", { href: "#/queues" }, "All queues"))),
    ),
  );

  return {
    title: "Overview",
    element: [h("h1", {}, "Overview"), contents],
    period: 5000,
    show,
    async refresh() {
      const [{ queues, stale }, { queues: [slowest] }] = await Promise.all([get(`/v1/queues?sort=size&order=desc&limit=${BUSIEST}&consumers`), get("/v1/queues?sort=oldest&order=desc&limit=1&fields=oldest_age_s")]);
      largest = { queues: queues.filter((queue) => queue.size > 0), oldest_age_s: slowest?.oldest_age_s ?? 0, stale };
      none.hidden = largest.queues.length > 0;
      answered(none, "No queues hold messages.");
      biggest.element.hidden = largest.queues.length === 0;
      showLargest();
    },
  };
}

/** Return the members by name; `self` marks the node that answered, `leads` the leader. */
export function sortedNodes(cluster) {
  const nodes = cluster.nodes.map((node) => ({ ...node, self: node.id === cluster.self, leads: node.id === cluster.leader }));
  return nodes.sort((one, other) => (one.name ?? one.id).localeCompare(other.name ?? other.id));
}

function nodeRow() {
  const badge = h("span");
  const row = textRow([{}, {}, { numeric: true }, { numeric: true }, { numeric: true }, { numeric: true }], () => []);
  row.element.children[1].append(badge);
  return {
    element: row.element,
    update(one) {
      const vitals = one.vitals;
      row.element.classList.toggle("old", !one.connected);
      stateBadge(badge, one.state);
      const texts = [one.name ?? one.id, null, count(one.lag), bytes(vitals?.stored_bytes), bytes(vitals?.disk_free_bytes), one.self ? "this node" : lastContact(one)];
      texts.forEach((text, place) => text !== null && setText(row.element.children[place], text));
    },
  };
}
