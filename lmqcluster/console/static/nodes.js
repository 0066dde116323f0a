// The members: what each is in the cluster, how far it is, and what it has left.

import { columnChoice } from "./columns.js";
import { h, setText, syncRows, table } from "./dom.js";
import { bytes, count, duration, percent, rate } from "./format.js";
import { sortedNodes } from "./overview.js";
import { Rates } from "./rates.js";

export const label = "Nodes";

const STATES = { leader: "good", follower: "plain", candidate: "warn", recovering: "warn", installing: "warn", removed: "bad", unreachable: "bad" };
const OLD_S = 5;

/** Show a member's state as a badge. */
export function stateBadge(element, state) {
  element.className = `badge ${STATES[state] ?? ""}`;
  setText(element, state);
}

const ROLE = [
  { label: "Node", cell: nameCell },
  { label: "State", cell: (node, cell) => stateBadge((cell.firstElementChild ?? cell.appendChild(h("span"))), node.state) },
  { label: "Term", numeric: true, text: (node) => count(node.vitals?.term) },
  { label: "Commit index", numeric: true, title: "Last log entry that the node knows to be committed", text: (node) => count(node.vitals?.commit_index) },
  { label: "Applied index", numeric: true, title: "Last log entry in the node's queues", text: (node) => count(node.vitals?.applied_index) },
  { label: "Match index", numeric: true, title: "Last log entry that the leader knows to be on the node's disk", text: (node) => count(node.match) },
  { label: "Lag", numeric: true, title: "Committed log entries that the node has not applied", text: (node) => count(node.lag) },
  { label: "Snapshot", numeric: true, title: "Last log entry in the newest snapshot", text: (node) => count(node.vitals?.snapshot_index || null) },
  { label: "Last contact", numeric: true, title: "When the node last answered this one", text: (node) => (node.self ? "this node" : node.last_contact_s === null ? "–" : `${duration(node.last_contact_s)} ago`) },
  { label: "Round trip", numeric: true, title: "How long that took, connecting included", text: (node) => (node.self || node.round_trip_s === null ? "–" : `${(node.round_trip_s * 1000).toFixed(1)} ms`) },
];
const STOCK = [
  { label: "Node", cell: nameCell },
  { label: "Messages in memory", title: "What messages take in memory, and how much they may take (memory_bytes_max)", cell: (node, cell) => gauge(cell, node.vitals?.stored_bytes, node.vitals?.stored_bytes_max, "of memory_bytes_max") },
  { label: "Messages on disk", title: "Snapshots and pages, and how much they may take (disk_bytes_max)", cell: (node, cell) => gauge(cell, node.vitals?.kept_bytes, node.vitals?.kept_bytes_max, "of disk_bytes_max") },
  { label: "Disk", cell: (node, cell) => gauge(cell, used(node.vitals), node.vitals?.disk_total_bytes, "used", `${bytes(node.vitals?.disk_free_bytes)} free, ${percent(used(node.vitals), node.vitals?.disk_total_bytes)}`) },
  { label: "Process", numeric: true, title: "Memory of the process", text: (node) => bytes(node.vitals?.process_bytes) },
  { label: "Processor", numeric: true, title: "Share of one processor core, over the last seconds", text: (node) => (node.recent ? percent(node.recent.processor_s, 1) : "–") },
  { label: "Entries/s", numeric: true, title: "Log entries that the node applies a second: batches of operations", text: (node) => rate(node.recent?.applied_index) },
  { label: "Connections", numeric: true, title: "Of clients, on all ports", text: (node) => count(node.vitals?.connections) },
  { label: "Log", numeric: true, title: "Log entries kept", text: (node) => bytes(node.vitals?.log_bytes) },
  { label: "Waiting pulls", numeric: true, text: (node) => count(node.vitals?.waiting_pulls) },
  { label: "Up", numeric: true, text: (node) => duration(node.vitals?.uptime_s) },
  { label: "Version", text: (node) => node.vitals?.version ?? "–" },
];
const PLACES = [
  { label: "Node", cell: nameCell },
  { label: "Id", text: (node) => node.id },
  { label: "HTTP", text: (node) => node.http ?? "off" },
  { label: "MessagePack-RPC", text: (node) => node.rpc ?? "off" },
  { label: "Raft", text: (node) => node.raft },
  { label: "Console", cell: consoleCell },
];

export function open() {
  const counters = new Map();

  /** What a node's figures grow by in a second of its own time; null before there are two different ones. */
  function recently({ id, vitals }) {
    if (vitals?.processor_s === undefined) return null;
    if (!counters.has(id)) counters.set(id, new Rates(["processor_s", "applied_index"]));
    const rates = counters.get(id);
    if (rates.samples.at(-1)?.at !== vitals.uptime_s) rates.add(vitals.uptime_s, vitals);
    return rates.recent();
  }

  const tables = [
    ["In the cluster", ROLE],
    ["Resources", STOCK],
    ["Addresses", PLACES],
  ].map(([title, columns]) => {
    const grid = table(title, columns);
    return { title, columns, choice: columnChoice(title, columns, grid), ...grid };
  });
  return {
    title: "Nodes",
    element: [h("h1", {}, "Nodes"), tables.map(({ title, choice, element }) => h("section", {}, h("h2", {}, title), choice.element, element))].flat(),
    show({ cluster }) {
      const match = cluster.nodes.find((node) => node.id === cluster.leader)?.vitals?.match ?? {};
      const nodes = sortedNodes(cluster).map((node) => ({ ...node, match: node.match_index ?? match[node.id] ?? null, recent: recently(node) }));
      for (const { body, columns } of tables) syncRows(body, nodes, (node) => node.id, () => row(columns));
    },
  };
}

function row(columns) {
  const cells = columns.map(({ numeric }, place) => h(place === 0 ? "th" : "td", { scope: place === 0 ? "row" : undefined, class: numeric ? "number" : undefined }));
  return {
    element: h("tr", {}, cells),
    update(node) {
      this.element.classList.toggle("old", node.last_contact_s === null || node.last_contact_s > OLD_S);
      columns.forEach(({ cell, text }, place) => (cell ? cell(node, cells[place]) : setText(cells[place], text(node))));
    },
  };
}

function nameCell(node, cell) {
  setText(cell, `${node.name ?? node.id}${node.self ? " (this node)" : ""}`);
}

function consoleCell(node, cell) {
  const href = node.http && !node.self ? `//${node.http}/console/#/nodes` : "";
  if (cell.dataset.href === href) return;
  cell.dataset.href = href;
  cell.replaceChildren(href ? h("a", { href }, "Open") : "–");
}

function used(vitals) {
  return vitals && vitals.disk_total_bytes - vitals.disk_free_bytes;
}

/** A bar for a part of a whole, with the figures as text beside it. */
function gauge(cell, part, whole, word, text = null) {
  const meter = cell.querySelector("meter") ?? cell.appendChild(h("meter", { min: "0", max: "1", low: "0.8", high: "0.9", optimum: "0" }));
  const caption = cell.querySelector("span") ?? cell.appendChild(h("span"));
  const known = part !== null && part !== undefined;
  meter.hidden = !known;
  meter.value = known ? part / whole : 0;
  meter.title = known ? `${bytes(part)} of ${bytes(whole)}` : "";
  meter.setAttribute("aria-label", known ? `${percent(part, whole)} ${word}` : "not known");
  setText(caption, known ? ` ${text ?? `${bytes(part)} of ${bytes(whole)}`}` : "–");
}
