// The cluster: members, leadership and checks.

import { actionButton, ask, commandBox, commandLine, field, readOnlyNote } from "./actions.js";
import { change } from "./api.js";
import { h, setText, syncRows, table } from "./dom.js";
import { bytes, count } from "./format.js";
import { quoted } from "./names.js";
import { LAG, stateBadge } from "./nodes.js";
import { sortedNodes } from "./overview.js";

export const label = "Cluster";

export function open({ latest }) {
  const summary = h("p", { class: "muted" });
  const members = table("Members", [{ label: "Member" }, { label: "State" }, { label: "Raft address" }, { label: "Lag", numeric: true, title: LAG }, { label: "Change" }]);
  const checks = table("Checks", [{ label: "Check" }, { label: "Result" }, { label: "Finding" }]);

  function show({ cluster, checks: findings }) {
    const leader = cluster.nodes.find((node) => node.id === cluster.leader);
    setText(summary, `${cluster.nodes.length} members, ${cluster.quorum} are needed for a quorum. ${leader ? `${leader.name ?? leader.id} leads in term ${count(cluster.term)}` : "No leader is known"}; commit index ${count(cluster.commit_index)}; durability ${cluster.durability}.`);
    const nodes = sortedNodes(cluster).map((node) => ({ ...node, alone: cluster.nodes.length === 1 }));
    syncRows(members.body, nodes, (node) => node.id, memberRow);
    syncRows(checks.body, findings, (check) => check.name, checkRow);
  }

  return {
    title: "Cluster",
    element: [
      h("h1", {}, "Cluster"),
      readOnlyNote("admin"),
      summary,
      h("section", {}, h("h2", {}, "Members"), members.element),
      h(
        "section",
        {},
        h("h2", {}, "This node"),
        h(
          "div",
          { class: "bar actions" },
          actionButton("Take a snapshot", "admin", takeSnapshot, { local: true }),
          actionButton("Hand over leadership", "admin", () => transfer(null)),
          actionButton("Join a cluster", "admin", () => join(latest()), { local: true, unless: () => whyNoJoin(latest()) }),
          actionButton("Leave the cluster", "admin", () => leave(latest()), { kind: "danger", unless: () => whyNoLeave(latest()) }),
        ),
      ),
      h(
        "section",
        {},
        h("h2", {}, "Backup"),
        h("p", { class: "muted" }, "A backup contains the state of all queues and can be made while the cluster runs. Make and restore backups on the command line:"),
        h("div", { class: "same" }, commandBox(commandLine("backup", ["lmqcluster.backup"]))),
      ),
      h(
        "section",
        {},
        h("h2", {}, "Checks"),
        checks.element,
        h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), commandBox(commandLine("check"))),
      ),
    ].filter(Boolean),
    show,
  };
}

const OUTSIDE = ["left", "removed"];

/** Return why this node cannot join a cluster, or "". */
function whyNoJoin(overview) {
  const { nodes = [], self, has_quorum: hasQuorum } = overview?.cluster ?? {};
  if (nodes.length < 2 || nodes.some(({ id, state }) => id === self && OUTSIDE.includes(state))) return "";
  return `This node is one of ${nodes.length} members of a cluster, which it has to leave before it joins another one.${hasQuorum ? "" : " Without a quorum it cannot leave."}`;
}

/** Return why this node cannot leave its cluster, or "". */
function whyNoLeave(overview) {
  return overview?.cluster.nodes.length === 1 ? "This node is alone, so there is no cluster to leave." : "";
}

function memberRow(first) {
  const badge = h("span");
  const lag = h("td", { class: "number" });
  const lead = actionButton("Make leader", "admin", () => transfer(first), { kind: "small" });
  const remove = actionButton("Remove", "admin", () => removeMember(current), { kind: "small danger" });
  const name = first.name ?? first.id;
  let current = first;
  lead.setAttribute("aria-label", `Make leader: ${name}`);
  remove.setAttribute("aria-label", `Remove: ${name}`);
  return {
    element: h("tr", {}, h("th", { scope: "row" }, `${name}${first.self ? " (this node)" : ""}`), h("td", {}, badge), h("td", {}, first.raft), lag, h("td", {}, h("div", { class: "row" }, lead, remove))),
    update(node) {
      current = node;
      stateBadge(badge, node.state);
      setText(lag, count(node.lag));
      lead.hidden = node.leads || !node.connected || node.alone;
      remove.hidden = node.self;
    },
  };
}

function checkRow() {
  const result = h("span");
  const finding = h("td", { class: "prose" });
  const name = h("th", { scope: "row" });
  return {
    element: h("tr", {}, name, h("td", {}, result), finding),
    update(check) {
      setText(name, check.name);
      setText(finding, check.detail);
      result.className = `badge ${check.ok ? "good" : "bad"}`;
      setText(result, check.ok ? "ok" : "problem");
    },
  };
}

function takeSnapshot() {
  return ask({
    title: "Take a snapshot",
    text: ["This node writes its state to disk in the background. Afterwards its log is shorter and it starts faster."],
    verb: "Take",
    command: () => commandLine("snapshot"),
    run: async () => {
      const info = await change("POST", "/v1/snapshots", {});
      return `A snapshot of entry ${count(info.index)} is written, ${bytes(info.size_bytes)}.`;
    },
  });
}

function transfer(node) {
  const words = node === null ? [] : [quoted(node.name ?? node.id)];
  return ask({
    title: node === null ? "Hand over leadership" : `Make ${node.name ?? node.id} the leader`,
    text: [`${node === null ? "The most up-to-date member" : (node.name ?? node.id)} becomes the leader. Requests wait for a moment; none is lost.`],
    verb: "Hand over",
    command: () => commandLine("transfer-leader", words),
    run: async () => {
      await change("POST", "/v1/cluster/transfer", node === null ? {} : { to: node.id });
      return "Leadership was handed over.";
    },
  });
}

function removeMember(node) {
  const name = node.name ?? node.id;
  const force = node.connected ? field("force", `Remove ${name} although it is alive`, h("input", { type: "checkbox" })) : null;
  return ask({
    title: `Remove ${name}`,
    text: [
      `${name} (${node.raft}) is removed from the cluster for good; its copy of the data no longer counts. If it restarts, it must join again.`,
      node.connected ? "To remove a live node, use Leave in the console of that node instead." : "This node cannot reach it.",
    ],
    fields: force ? [force] : [],
    verb: "Remove",
    danger: true,
    command: (values) => commandLine("remove", [quoted(name)], values.force ? ["--force"] : []),
    run: async (values) => {
      await change("POST", "/v1/cluster/remove", { node: node.id, force: Boolean(values.force) });
      return `${name} is removed.`;
    },
  });
}

function join(overview) {
  const held = overview ? overview.totals.ready + overview.totals.leased + overview.totals.delayed : 0;
  const peer = field("peer", "Address of a member", h("input", { required: true, placeholder: "HOST:PORT", autocomplete: "off", spellcheck: "false" }), "Its HTTP or Raft address.");
  const discard = held > 0 ? field("discard", `Discard the ${count(held)} messages of this node`, h("input", { type: "checkbox" })) : null;
  return ask({
    title: "Join a cluster",
    text: ["This node becomes a member of that cluster. It first copies the cluster's data, then counts for the quorum."],
    fields: discard ? [peer, discard] : [peer],
    verb: "Join",
    danger: held > 0,
    command: (values) => commandLine("join", [values.peer ? quoted(values.peer) : "PEER"], values.discard ? ["--discard-data"] : []),
    run: async (values) => {
      const cluster = await change("POST", "/v1/cluster/join", { peer: values.peer, discard_data: Boolean(values.discard) });
      return `This node is now one of ${cluster.nodes.length}.`;
    },
  });
}

function leave(overview) {
  const count = overview?.cluster.nodes.length ?? 0;
  return ask({
    title: "Leave the cluster",
    text: [`The other ${count - 1} nodes keep all data. This node becomes empty, closes the connections of its clients and refuses them.`],
    verb: "Leave",
    danger: true,
    typed: "leave",
    command: () => commandLine("leave"),
    run: async () => {
      await change("POST", "/v1/cluster/leave", {});
      return "The node has left the cluster and is empty.";
    },
  });
}
