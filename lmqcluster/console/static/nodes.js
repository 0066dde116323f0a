// The nodes side by side: state in the cluster, progress, and free memory and disk.

import { h, setText, syncRows } from "./dom.js";
import { bytes, count, duration, percent, rate } from "./format.js";
import { sortedNodes } from "./overview.js";
import { Rates } from "./rates.js";

export const label = "Nodes";

const STATES = { leader: "good", follower: "plain", candidate: "warn", recovering: "warn", installing: "warn", removed: "bad", unreachable: "bad" };
const OLD_S = 5;
export const LAG = "Committed log entries that the node has not applied";

/** Return the time since another node last answered, as text. */
export function lastContact(node) {
  return node.last_contact_s === null ? "–" : `${duration(node.last_contact_s)} ago`;
}

/** Show a member's state as a badge. */
export function stateBadge(element, state) {
  element.className = `badge ${STATES[state] ?? ""}`;
  setText(element, state);
}

const LINES = [
  {
    title: "In the cluster",
    lines: [
      { label: "Lag in log entries", title: LAG, text: (node) => count(node.lag) },
      { label: "Last contact", title: "When the node last answered this one", text: (node) => (node.self ? "–" : lastContact(node)) },
      { label: "Round trip", title: "Time of that answer, including the connection set-up", text: (node) => (node.self || node.round_trip_s === null ? "–" : `${(node.round_trip_s * 1000).toFixed(1)} ms`) },
      { label: "Term", text: (node) => count(node.vitals?.term) },
      { label: "Commit index", title: "Last log entry that the node knows to be committed", text: (node) => count(node.vitals?.commit_index) },
      { label: "Applied index", title: "Last log entry in the node's queues", text: (node) => count(node.vitals?.applied_index) },
      { label: "Match index", title: "Last log entry that the leader knows to be on the node's disk", text: (node) => count(node.match) },
      { label: "Snapshot", title: "Last log entry in the newest snapshot", text: (node) => count(node.vitals?.snapshot_index || null) },
    ],
  },
  {
    title: "Work",
    lines: [
      { label: "Entries applied", title: "Log entries applied per second; an entry is a batch of operations", text: (node) => perSecond(node.recent?.applied_index) },
      { label: "Connections", title: "Client connections on all ports", text: (node) => count(node.vitals?.connections) },
      { label: "Waiting pulls", text: (node) => count(node.vitals?.waiting_pulls) },
      { label: "Processor", title: "Share of one processor core over the last seconds", text: (node) => (node.recent ? percent(node.recent.processor_s, 1) : "–") },
    ],
  },
  {
    title: "Memory and disk",
    lines: [
      { label: "Messages in memory", title: "Memory of messages, and its limit (memory_bytes_max)", cell: (node, cell) => gauge(cell, node.vitals?.stored_bytes, node.vitals?.stored_bytes_max, "of memory_bytes_max") },
      { label: "Messages on disk", title: "Disk space of snapshots and pages, and its limit (disk_bytes_max)", cell: (node, cell) => gauge(cell, node.vitals?.kept_bytes, node.vitals?.kept_bytes_max, "of disk_bytes_max") },
      { label: "Disk", title: "The file system of the data directory", cell: (node, cell) => gauge(cell, used(node.vitals), node.vitals?.disk_total_bytes, "used", `${bytes(node.vitals?.disk_free_bytes)} free of ${bytes(node.vitals?.disk_total_bytes)}`) },
      { label: "Process", title: "Memory of the process", text: (node) => bytes(node.vitals?.process_bytes) },
      { label: "Log", title: "Log entries kept in memory", text: (node) => bytes(node.vitals?.log_bytes) },
    ],
  },
  {
    title: "Program and addresses",
    lines: [
      { label: "Up for", title: "Time since the process started", text: (node) => duration(node.vitals?.uptime_s) },
      { label: "Version", text: (node) => node.vitals?.version ?? "–" },
      { label: "Id", text: (node) => node.id },
      { label: "HTTP", text: (node) => node.http ?? "off" },
      { label: "MessagePack-RPC", text: (node) => node.rpc ?? "off" },
      { label: "Raft", text: (node) => node.raft },
    ],
  },
];

export function open() {
  const counters = new Map();

  /** Return the rates of a node's counters by its clock; null before there are two samples, and while it is unreachable. */
  function recently({ id, vitals, connected }) {
    if (vitals?.processor_s === undefined || !connected) return null;
    if (!counters.has(id)) counters.set(id, new Rates(["processor_s", "applied_index"]));
    const rates = counters.get(id);
    if (rates.samples.at(-1)?.at !== vitals.uptime_s) rates.add(vitals.uptime_s, vitals);
    return rates.recent();
  }

  // Above the table, because on a phone the columns of other nodes are out of sight.
  const states = h("ul", { class: "states", "aria-label": "States" });
  const head = h("tr");
  const bodies = LINES.map(({ title, lines }) => {
    const heading = h("th", { scope: "rowgroup", class: "group" }, title);
    const rows = lines.map((line) => ({ line, element: h("tr", {}, h("th", { scope: "row", title: line.title }, line.label)), cells: [] }));
    return { heading, rows, element: h("tbody", {}, h("tr", {}, heading), rows.map(({ element }) => element)) };
  });
  let shown = "";

  /** Create a column for each node. */
  function layOut(nodes) {
    head.replaceChildren(h("th", { scope: "col" }, "Figure"), ...nodes.map((node) => h("th", { scope: "col" }, nodeName(node), consoleLink(node))));
    for (const { heading, rows } of bodies) {
      heading.colSpan = nodes.length + 1;
      for (const row of rows) {
        for (const cell of row.cells) cell.remove();
        row.cells = nodes.map(() => h("td"));
        row.element.append(...row.cells);
      }
    }
  }

  return {
    title: "Nodes",
    element: [
      h("h1", {}, "Nodes"),
      h("div", { role: "status" }, states),
      h("div", { class: "scroll", role: "region", "aria-label": "Nodes", tabindex: "0" }, h("table", { class: "compared" }, h("caption", { class: "unseen" }, "The nodes side by side"), h("thead", {}, head), bodies.map(({ element }) => element))),
    ],
    show({ cluster }) {
      const match = cluster.nodes.find((node) => node.id === cluster.leader)?.vitals?.match ?? {};
      const nodes = sortedNodes(cluster).map((node) => ({ ...node, match: node.match_index ?? match[node.id] ?? null, recent: recently(node) }));
      syncRows(states, nodes, (node) => node.id, stateItem);
      const wanted = JSON.stringify(nodes.map(({ id, name, self, http }) => [id, name, self, http]));
      if (wanted !== shown) layOut(nodes);
      shown = wanted;
      for (const { line, cells } of bodies.flatMap(({ rows }) => rows)) {
        nodes.forEach((node, place) => {
          cells[place].classList.toggle("old", node.last_contact_s === null || node.last_contact_s > OLD_S);
          if (line.cell) line.cell(node, cells[place]);
          else setText(cells[place], line.text(node));
        });
      }
    },
  };
}

function stateItem(node) {
  const badge = h("span");
  return { element: h("li", {}, `${nodeName(node)} `, badge), update: ({ state }) => stateBadge(badge, state) };
}

function nodeName(node) {
  return `${node.name ?? node.id}${node.self ? " (this node)" : ""}`;
}

function consoleLink(node) {
  if (!node.http || node.self) return null;
  return [" ", h("a", { href: `//${node.http}/console/#/nodes`, "aria-label": `Console of ${node.name ?? node.id}` }, "console")];
}

function perSecond(value) {
  return value === undefined || value === null ? "–" : `${rate(value)}/s`;
}

function used(vitals) {
  return vitals && vitals.disk_total_bytes - vitals.disk_free_bytes;
}

/** Show a bar for a part of a whole, with the figures as text beside it. */
function gauge(cell, part, whole, word, text = null) {
  const meter = cell.querySelector("meter") ?? cell.appendChild(h("meter", { min: "0", max: "1", low: "0.8", high: "0.9", optimum: "0" }));
  const caption = cell.querySelector("span") ?? cell.appendChild(h("span"));
  const known = part !== null && part !== undefined;
  meter.hidden = !known;
  meter.value = known ? part / whole : 0;
  meter.title = known ? `${bytes(part)} of ${bytes(whole)}` : "";
  meter.setAttribute("aria-label", known ? `${percent(part, whole)} ${word}` : "unknown");
  setText(caption, known ? ` ${text ?? `${bytes(part)} of ${bytes(whole)}`}` : "–");
}
