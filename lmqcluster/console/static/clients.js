// Queues with leases; and of this node, the holders of messages, waiting pulls and connections.

import { commandBox, commandLine, readOnlyNote } from "./actions.js";
import { get, may } from "./api.js";
import { h, setText, textRow, wrapping } from "./dom.js";
import { bytes, count, duration } from "./format.js";
import { list } from "./list.js";
import { segmentOf, textOf } from "./names.js";

export const label = "Clients";

const ROWS = 100;
const PORTS = { http: "HTTP", msgpack_rpc: "MessagePack-RPC", queued: "queued" };
const WAITING = [{ label: "Queue or pattern" }, { label: "Waiting pulls", numeric: true }, { label: "Messages wanted", numeric: true }];
const LEASED = [{ label: "Queue" }, { label: "Leased", numeric: true }, { label: "Ready", numeric: true }, { label: "Timed out", numeric: true, title: "Messages redelivered because their leases ended without an answer" }];
const HELD = [
  { label: "Queue" },
  { label: "Leased", numeric: true },
  { label: "First ends in", numeric: true, title: "Time until the first lease ends" },
  { label: "Client" },
  { label: "Connection", title: "A lease outlives its connection" },
  { label: "Protocol" },
  { label: "Token" },
];
const CONNECTED = [{ label: "Client" }, { label: "Protocol" }, { label: "Token" }, { label: "Open for", numeric: true }, { label: "Memory", numeric: true }];

export function open() {
  const waiting = list("Waiting pulls", WAITING, "No pull waits at this node.");
  const leased = list("Queues with leases", LEASED, "No message is under lease.");
  const holders = list("Who holds messages", HELD, "No client holds a message that this node delivered.");
  const partly = h("p", { class: "note", hidden: true }, "Incomplete: there are more leases than this node stores or shows.");
  const connected = list("Connections", CONNECTED, "No client is connected.");
  const complaint = h("p", { class: "complaint", role: "alert" });

  async function refresh() {
    const { queues } = await get(`/v1/queues?sort=leased&order=desc&limit=${ROWS}`);
    const held = queues.filter((queue) => queue.leased > 0);
    leased.show(held, held.length, (queue) => segmentOf(queue.name), ({ name }) => {
      const segment = segmentOf(name);
      const link = h("a", { href: `#/queue/${segment}` }, wrapping(textOf(segment)));
      return textRow(LEASED, (queue) => ["", count(queue.leased), count(queue.ready), count(queue.redelivered_total)], link);
    });
    if (!may("admin")) return;
    const given = await get(`/v1/leases?limit=${ROWS}`);
    partly.hidden = given.complete;
    holders.show(given.leases, given.total, (one) => `${one.port} ${one.address} ${segmentOf(one.queue)}`, holderRow);
    const { consumers, total } = await get(`/v1/consumers?limit=${ROWS}`);
    waiting.show(consumers.map((one, place) => ({ ...one, place })), total, (one) => one.place, () =>
      textRow(WAITING, (one) => [one.pattern === undefined ? textOf(segmentOf(one.queue)) : `pattern ${textOf(segmentOf(one.pattern))}`, count(one.pulls), count(one.messages)]),
    );
    const { connections, total: all } = await get(`/v1/connections?limit=${ROWS}`);
    connected.show(connections, all, (one) => `${one.port} ${one.address}`, () =>
      textRow(CONNECTED, (one) => [one.address, PORTS[one.port] ?? one.port, one.user || "–", duration(one.age_s), bytes(one.held_bytes)]),
    );
  }

  return {
    title: "Clients",
    element: [
      h("h1", {}, "Clients"),
      readOnlyNote("admin"),
      complaint,
      leased.element,
      h("p", { class: "muted" }, "The following lists contain only the clients of this node."),
      holders.element,
      partly,
      waiting.element,
      connected.element,
      h("div", { class: "same" }, h("span", { class: "muted" }, "The clients of all nodes by command:"), commandBox(commandLine("client leases")), commandBox(commandLine("client waiting")), commandBox(commandLine("client ls"))),
    ].filter(Boolean),
    period: 3000,
    refresh,
    complain: (error) => setText(complaint, error ? error.message : ""),
  };
}

function holderRow({ queue }) {
  const segment = segmentOf(queue);
  const link = h("a", { href: `#/queue/${segment}` }, wrapping(textOf(segment)));
  return textRow(
    HELD,
    (one) => ["", count(one.leased), one.ends_in_s === null ? "with its session" : duration(one.ends_in_s), one.address, one.connected ? "open" : "closed", PORTS[one.port] ?? one.port, one.user || "–"],
    link,
  );
}
