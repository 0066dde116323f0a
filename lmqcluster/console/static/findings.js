// The state of the cluster in a few lines: what is wrong, and beside it what to do.

import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { segmentOf, textOf } from "./names.js";

const NODES = ["#/nodes", "Nodes"];
const LARGEST = ["#/queues?sort=bytes", "Largest queues"];

/** Return where the documentation says more; the nodes do not serve it. */
function docs(page, section = "") {
  return `${section && `“${section}” in `}docs/${page} of lmqcluster's source repository.`;
}

// What to do if a check fails.
const CHECKS = {
  leader: [`Start or reconnect the missing nodes. If they are lost for good: ${docs("operations.md", "Lost quorum")}`, NODES],
  members: [`Start the missing node, or restore its network. If it is lost for good: ${docs("operations.md", "Replace a dead node")}`, NODES],
  lag: [`It catches up by itself. If its lag grows, its disk or processor is too slow: ${docs("operations.md", "Overload")}`, NODES],
  disk: [`Free space or enlarge the file system, before the node stops: ${docs("operations.md", "Disk full")}`, NODES],
  "disk limit": [`Consume or purge messages, or raise disk_bytes_max: ${docs("operations.md", "Disk full")}`, LARGEST],
  memory: [`Consume or purge messages, or raise memory_bytes_max: ${docs("operations.md", "Overload")}`, LARGEST],
  quota: [`Remove what the client no longer uses, or divide its work among several tokens: ${docs("limits.md")}`, ["#/tokens", "Tokens"]],
  "safe to stop": ["Keep this node running until the others are back."],
};
// What a failed check is called, unless that is its name.
const FAILURES = { "safe to stop": "not safe to stop" };
const REFUSALS = ["Their queues are full. Consume messages, or raise max_items or max_size.", LARGEST];

// What to do about a queue, by the reason why it needs attention.
const REASONS = {
  dead_letters: ["Dead letters are kept: read why they failed, mend the consumer, then redrive them. Dropped messages are lost; the property dead_letter_queue prevents that.", ["#/dead_letters", "Dead letters"]],
  returns: ["Consumers give messages back or take too long. Look for errors in their logs, or set a longer timeout if they take too long.", ["#/clients", "Clients"]],
  waiting: ["Start consumers, or see why they have stopped.", ["#/clients", "Clients"]],
};
const QUEUES_SHOWN = 8;
const NONE = { queues: [], totals: {}, age_s: null };

/**
 * Return the state of a cluster that has a quorum: the number of its findings, null while the node has not looked at its
 * queues, and whether they are an outage. `refused` is the number of messages refused in the last ten minutes.
 */
export function stateOf({ checks, cluster, attention = NONE }, refused) {
  const queues = Object.values(attention.totals).reduce((sum, one) => sum + one, 0) + full(refused).length;
  const known = failed(checks, cluster).length + queues;
  return { findings: known === 0 && attention.age_s === null ? null : known, isOutage: isOutage(cluster, checks) };
}

/** Create the list; `show(overview, refused)` updates it. */
export function findings() {
  const element = h("ul", { class: "findings" });
  let shown = "";

  function show({ checks, cluster, attention = NONE }, refused) {
    const problems = failed(checks, cluster);
    const queues = [...needy(attention), ...full(refused)];
    const well = problems.length > 0 ? [] : [{ what: wellText(cluster, checks.length, queues.length > 0, attention) }];
    const found = [...problems, ...well, ...queues];
    const outage = isOutage(cluster, checks);
    const text = JSON.stringify([found, outage]);
    if (text === shown) return;
    shown = text;
    element.classList.toggle("problems", problems.length + queues.length > 0);
    element.classList.toggle("outage", outage);
    element.replaceChildren(...found.map(line));
  }

  return { element, show };
}

function isOutage(cluster, checks) {
  return !cluster.has_quorum || checks.some(refusesPushes);
}

/** Return whether a check says that the node refuses pushes because its memory or disk is full. */
function refusesPushes({ ok, figures }) {
  return !ok && figures.used_bytes >= figures.max_bytes;
}

function wellText(cluster, checks, hasNeedy, attention) {
  const alone = cluster.nodes.length === 1;
  const state = alone ? "The cluster is well, but has only this node: while it is down, no requests are served." : `The cluster is well: ${plural(cluster.nodes.length, "node")}, all ${checks} checks passed.`;
  if (hasNeedy) return `${state} Queues need attention:`;
  // The node has not looked at its queues yet.
  return attention.age_s === null ? state : `${state} No queue needs attention.`;
}

function line({ segment, what, todo = "", link }) {
  const queue = segment === undefined ? null : [h("a", { href: `#/queue/${segment}` }, textOf(segment)), ": "];
  return h("li", {}, h("b", {}, queue, what), " ", h("span", { class: "todo" }, todo, link ? [" ", h("a", { href: link[0] }, link[1])] : null));
}

/** Return the queues that need attention, the first ones by name, the others by their number. */
function needy({ queues, totals }) {
  const shown = queues.slice(0, QUEUES_SHOWN).map(({ queue, reason, detail }) => {
    const [todo, link] = REASONS[reason] ?? [""];
    return { segment: segmentOf(queue), what: `${detail}.`, todo, link };
  });
  const rest = Object.values(totals).reduce((sum, one) => sum + one, 0) - shown.length;
  if (rest > 0) shown.push({ what: `${count(rest)} more.`, todo: "All of them by command: lmq-admin check", link: ["#/queues?sort=oldest", "Oldest messages"] });
  return shown;
}

/** Return the failed checks. Without a quorum or in a cluster of one node, no stop is safe, and that is no finding. */
function failed(checks, cluster) {
  const isFinding = ({ name, ok }) => !ok && !(name === "safe to stop" && (cluster.nodes.length === 1 || !cluster.has_quorum));
  return checks.filter(isFinding).map(({ name, detail }) => {
    // Without a quorum no node can be replaced; the advice is that of the leader.
    const [todo, link] = (name !== "members" || cluster.has_quorum) && CHECKS[name] ? CHECKS[name] : [""];
    const title = FAILURES[name] ?? name;
    return { what: `${title.charAt(0).toUpperCase()}${title.slice(1)}: ${detail}.`, todo, link };
  });
}

function full(refused) {
  return refused > 0 ? [{ what: `${plural(refused, "message")} refused in the last 10 minutes.`, todo: REFUSALS[0], link: REFUSALS[1] }] : [];
}
