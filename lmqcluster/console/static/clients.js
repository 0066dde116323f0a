// Queues with leases; and of all nodes, the holders of messages, waiting pulls and connections.

import { actionButton, ask, commandBox, commandLine, readOnlyNote } from "./actions.js";
import { access, change, get, may } from "./api.js";
import { h, setText, textRow, wrapping } from "./dom.js";
import { bytes, count, duration } from "./format.js";
import { list } from "./list.js";
import { quoted, segmentOf, textOf } from "./names.js";

export const label = "Clients";

const ROWS = 100;
const PORTS = { http: "HTTP", msgpack_rpc: "MessagePack-RPC", queued: "queued" };
const NODE = { label: "Node" };
const WAITING = [{ label: "Queue or pattern" }, NODE, { label: "Waiting pulls", numeric: true }, { label: "Messages wanted", numeric: true }];
const LEASED = [{ label: "Queue" }, { label: "Leased", numeric: true }, { label: "Ready", numeric: true }, { label: "Timed out", numeric: true, title: "Messages redelivered because their leases ended without an answer" }];
const HELD = [
  { label: "Queue" },
  { label: "Leased", numeric: true },
  { label: "First ends in", numeric: true, title: "Time until the first lease ends" },
  { label: "Client" },
  NODE,
  { label: "Connection", title: "A lease outlives its connection" },
  { label: "Protocol" },
  { label: "Token" },
];
const CONNECTED = [{ label: "Client" }, NODE, { label: "Protocol" }, { label: "Token" }, { label: "Open for", numeric: true }, { label: "Memory", numeric: true }, { label: "Change" }];

export function open() {
  const waiting = list("Waiting pulls", WAITING, "No pull waits.");
  const leased = list("Queues with leases", LEASED, "No message is under lease.");
  const holders = list("Who holds messages", HELD, "No client holds a message.");
  const partly = h("p", { class: "note", hidden: true }, "Incomplete: there are more leases than the nodes remember or show.");
  const connected = list("Connections", CONNECTED, "No client is connected.");
  const missing = h("p", { class: "note", role: "status", hidden: true });
  const complaint = h("p", { class: "complaint", role: "alert" });

  async function refresh() {
    const { queues } = await get(`/v1/queues?sort=leased&order=desc&limit=${ROWS}`);
    const held = queues.filter((queue) => queue.leased > 0);
    leased.show(held, held.length, (queue) => segmentOf(queue.name), ({ name }) => {
      const segment = segmentOf(name);
      const link = h("a", { href: `#/queue/${segment}` }, wrapping(textOf(segment)));
      return textRow(LEASED, (queue) => ["", count(queue.leased), count(queue.ready), count(queue.redelivered_total)], link);
    });
    if (!may("admin")) {
      for (const one of [holders, waiting, connected]) one.explain("Shown to tokens with the role admin.");
      return;
    }
    const [given, pulls, open] = await Promise.all(["leases", "consumers", "connections"].map((list) => get(`/v1/${list}?all_nodes&limit=${ROWS}`)));
    showMissing(open.unreachable);
    partly.hidden = given.complete;
    holders.show(given.leases, given.total, (one) => `${one.node} ${one.port} ${one.address} ${segmentOf(one.queue)}`, holderRow);
    waiting.show(pulls.consumers.map((one, place) => ({ ...one, place })), pulls.total, (one) => one.place, () =>
      textRow(WAITING, (one) => [one.pattern === undefined ? textOf(segmentOf(one.queue)) : `pattern ${textOf(segmentOf(one.pattern))}`, one.node, count(one.pulls), count(one.messages)]),
    );
    connected.show(open.connections, open.total, (one) => `${one.node} ${one.port} ${one.address}`, (one) => connectionRow(one, refresh));
  }

  function showMissing(nodes) {
    missing.hidden = nodes.length === 0;
    setText(missing, `${nodes.join(", ")} ${nodes.length === 1 ? "does" : "do"} not answer, so ${nodes.length === 1 ? "its" : "their"} clients are missing here.`);
  }

  return {
    title: "Clients",
    element: [
      h("h1", {}, "Clients"),
      readOnlyNote("admin"),
      complaint,
      leased.element,
      missing,
      holders.element,
      partly,
      waiting.element,
      connected.element,
      h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), commandBox(commandLine("client leases")), commandBox(commandLine("client waiting")), commandBox(commandLine("client ls"))),
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
    (one) => ["", count(one.leased), one.ends_in_s === null ? "with its session" : duration(one.ends_in_s), one.address, one.node, one.connected ? "open" : "closed", PORTS[one.port] ?? one.port, one.user || "–"],
    link,
  );
}

function connectionRow(first, refresh) {
  const button = actionButton("Close", "admin", () => closeConnection(first, refresh), { kind: "small danger", local: true });
  button.setAttribute("aria-label", `Close: ${first.address}`);
  const row = textRow(CONNECTED.slice(0, -1), (one) => [one.address, one.node, PORTS[one.port] ?? one.port, one.user || "–", duration(one.age_s), bytes(one.held_bytes)]);
  row.element.append(h("td", {}, button));
  return row;
}

async function closeConnection({ node, address, user }, refresh) {
  // Without tokens, all clients have the same name.
  const again = user && access.tokens ? `The client may connect again. To refuse it, delete the token ${user}.` : "The client may connect again.";
  const done = await ask({
    title: `Close the connection of ${address}`,
    text: [`${node} closes the connection. Pulls that wait on it end; leases of its messages stay until they expire. ${again}`],
    verb: "Close",
    danger: true,
    command: () => commandLine("client close", [quoted(node), quoted(address)], ["--yes"]),
    run: async () => {
      const { closed } = await change("POST", "/v1/connections/close", { node, address });
      return closed > 0 ? "The connection is closed." : "The connection was closed already.";
    },
  });
  if (done) await refresh();
}
