// Who is connected to this node, what pulls wait for here, and which queues have messages under lease.

import { commandBox, commandLine, readOnlyNote } from "./actions.js";
import { get, may } from "./api.js";
import { h, setText, textRow } from "./dom.js";
import { bytes, count, duration } from "./format.js";
import { list } from "./list.js";
import { segmentOf, textOf } from "./names.js";

export const label = "Clients";

const ROWS = 100;
const PORTS = { http: "HTTP", msgpack_rpc: "MessagePack-RPC", queued: "queued" };
const WAITING = [{ label: "Queue or pattern" }, { label: "Waiting pulls", numeric: true }, { label: "Messages wanted", numeric: true }];
const LEASED = [{ label: "Queue" }, { label: "Leased", numeric: true }, { label: "Ready", numeric: true }, { label: "Redelivered", numeric: true }];
const CONNECTED = [{ label: "Client" }, { label: "Protocol" }, { label: "Token" }, { label: "Open for", numeric: true }, { label: "Memory held", numeric: true }];

export function open() {
  const waiting = list("Waiting pulls", WAITING, "No pull waits at this node.");
  const leased = list("Queues with leases", LEASED, "No message is under lease.");
  const connected = list("Connections", CONNECTED, "No client is connected.");
  const complaint = h("p", { class: "complaint", role: "alert" });

  async function refresh() {
    const { queues } = await get(`/v1/queues?sort=leased&order=desc&limit=${ROWS}`);
    const held = queues.filter((queue) => queue.leased > 0);
    leased.show(held, held.length, (queue) => segmentOf(queue.name), ({ name }) => {
      const segment = segmentOf(name);
      const link = h("a", { href: `#/queue/${segment}` }, textOf(segment));
      return textRow(LEASED, (queue) => ["", count(queue.leased), count(queue.ready), count(queue.redelivered_total)], link);
    });
    if (!may("admin")) return;
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
      h("p", { class: "muted" }, "Waiting pulls and connections are those of this node. The other nodes have their own."),
      waiting.element,
      connected.element,
      h("div", { class: "same" }, h("span", { class: "muted" }, "The queues by command:"), commandBox(commandLine("queue ls", [], ["--sort=-leased"]))),
    ].filter(Boolean),
    period: 3000,
    refresh,
    complain: (error) => setText(complaint, error ? error.message : ""),
  };
}
