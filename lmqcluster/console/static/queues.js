// All queues. The node searches, sorts and pages them, so ten thousand queues cost no more than ten.

import { actionButton, commandBox, commandLine, field } from "./actions.js";
import { connection, get } from "./api.js";
import { answered, asking } from "./asking.js";
import { columnChoice } from "./columns.js";
import { debounce, h, setText, syncRows, table, textRow, wrapping } from "./dom.js";
import { csv, save } from "./export.js";
import { age, bytes, count, rate } from "./format.js";
import { quoted, segmentOf, textOf } from "./names.js";
import { newQueue } from "./new_queue.js";

export const label = "Queues";

const STATES = [["", "all"], ["ready", "with ready messages"], ["leased", "with leased messages"], ["delayed", "with delayed messages"], ["empty", "empty"], ["suspended", "suspended"], ["dropped", "that dropped messages"], ["dead_letters", "with dead letters"]];
const PAGE_SIZES = [25, 50, 100, 250];
const PERIOD_MS = 3000;
const EXPORTED_AT_ONCE = 1000;
const EXPORTED_MAX = 100_000;
const COLUMNS = [
  { label: "Queue", sort: "name", order: "asc" },
  { label: "Ready", sort: "ready", numeric: true, text: (queue) => count(queue.ready) },
  { label: "Leased", sort: "leased", numeric: true, text: (queue) => count(queue.leased) },
  { label: "Delayed", sort: "delayed", numeric: true, text: (queue) => count(queue.delayed) },
  { label: "All", sort: "size", numeric: true, text: (queue) => count(queue.size) },
  { label: "Bodies", sort: "bytes", numeric: true, text: (queue) => bytes(queue.bytes) },
  { label: "Consumers", numeric: true, title: "Connections at all nodes that wait for messages of the queue or hold some", text: (queue) => count(queue.consumers) },
  { label: "Oldest", sort: "oldest", numeric: true, title: "Time for which the first message has been ready", text: (queue) => age(queue.oldest_age_s, queue.stale) },
  { label: "Pushed", sort: "pushed", numeric: true, title: "Messages pushed so far", text: (queue) => count(queue.pushed_total) },
  { label: "Pushed/s", sort: "push_rate", numeric: true, title: "Messages pushed per second, over the last five seconds", text: (queue) => rate(queue.push_rate, queue.stale) },
  { label: "Delivered", sort: "pulled", numeric: true, title: "Deliveries so far", text: (queue) => count(queue.pulled_total) },
  { label: "Delivered/s", sort: "pull_rate", numeric: true, title: "Deliveries per second, over the last five seconds", text: (queue) => rate(queue.pull_rate, queue.stale) },
  { label: "Timed out", sort: "redelivered", numeric: true, title: "Messages redelivered because their leases ended without an answer", text: (queue) => count(queue.redelivered_total) },
  { label: "Dead letters", sort: "dead_letters", numeric: true, title: "Messages that the cluster moved here", text: (queue) => count(queue.dead_letters) },
  { label: "Dropped", sort: "dropped", numeric: true, title: "Messages removed after their last delivery", text: (queue) => count(queue.dropped_total) },
];

// Names of the columns in lmq-admin.
const SORT_KEYS = { name: "queue", ready: "ready", leased: "leased", delayed: "delayed", bytes: "bytes", oldest: "oldest_age_s", pushed: "pushed_total", pulled: "pulled_total", push_rate: "push_rate", pull_rate: "pull_rate", redelivered: "redelivered_total", dropped: "dropped_total", dead_letters: "dead_letters" };

export function open({ query }) {
  const view = {
    name: query.get("name") ?? "",
    state: query.get("state") ?? "",
    sort: query.get("sort") ?? "name",
    order: query.get("order") ?? (query.has("sort") ? "desc" : "asc"),
    limit: Number(query.get("limit")) || 50,
    offset: Number(query.get("offset")) || 0,
  };
  const search = field("name", "Search", h("input", { type: "search", placeholder: "part of a name  ( / )", autocomplete: "off", spellcheck: "false", value: view.name }));
  const states = field("state", "Show", h("select", {}, STATES.map(([value, text]) => h("option", { value, selected: value === view.state }, text))));
  const size = field("limit", "Rows", h("select", { }, PAGE_SIZES.map((one) => h("option", { value: one, selected: one === view.limit }, String(one)))));
  const summary = asking();
  const pagers = [pager("Previous page", "Next page"), pager("Previous", "Next")];
  const grid = table("Queues", COLUMNS.map((column) => ({ ...column, head: heading(column) })));
  const choice = columnChoice("queues", COLUMNS, grid);
  const complaint = h("p", { class: "complaint", role: "alert" });
  const line = commandBox("");
  const below = h("div", { class: "bar", hidden: true }, h("div", { class: "spring" }), pagers[1].element);
  let asked = null;
  let listed = { queues: [], stale: false };
  let total = 0;

  function heading(column) {
    if (!column.sort) return column.label;
    return h("button", { type: "button", class: "sort", dataset: { sort: column.sort }, onclick: () => sortBy(column) }, column.label);
  }

  function pager(before, behind) {
    const back = h("button", { type: "button", onclick: () => turn(-view.limit) }, before);
    const forth = h("button", { type: "button", onclick: () => turn(view.limit) }, behind);
    return { back, forth, element: h("div", { class: "pages" }, back, " ", forth) };
  }

  function sortBy({ sort, order = "desc" }) {
    view.order = view.sort === sort ? (view.order === "asc" ? "desc" : "asc") : order;
    view.sort = sort;
    view.offset = 0;
    load();
  }

  function turn(by) {
    view.offset = Math.max(0, view.offset + by);
    load();
  }

  /** Load the view at once, and update the URL, so that it can be bookmarked. */
  async function load() {
    const parameters = new URLSearchParams();
    for (const [key, value] of Object.entries(view)) if (value !== "" && value !== 0) parameters.set(key, value);
    history.replaceState(null, "", `#/queues?${parameters}`);
    try {
      await refresh();
      complain(null);
    } catch (error) {
      if (error.name !== "AbortError") complain(error);
    }
  }

  async function refresh() {
    asked?.abort();
    asked = new AbortController();
    const parameters = new URLSearchParams({ sort: view.sort, order: view.order, limit: view.limit, offset: view.offset });
    if (view.name) parameters.set("name", view.name);
    if (view.state) parameters.set("state", view.state);
    const answer = await get(`/v1/queues?${parameters}&consumers`, { signal: asked.signal });
    total = answer.total;
    if (answer.queues.length === 0 && view.offset > 0 && total > 0) {
      view.offset = Math.floor((total - 1) / view.limit) * view.limit;
      await refresh();
      return;
    }
    listed = answer;
    showRows();
    showFrame(answer.queues.length);
  }

  function showRows() {
    const stale = listed.stale || !connection.quorum;
    const items = listed.queues.map((queue) => ({ queue: { ...queue, stale }, segment: segmentOf(queue.name) }));
    syncRows(grid.body, items, (item) => item.segment, ({ segment }) => {
      const paused = h("span", { class: "badge warn", hidden: true }, "suspended");
      const first = h("span", {}, h("a", { href: `#/queue/${segment}` }, wrapping(textOf(segment))), " ", paused);
      const row = textRow(COLUMNS, (item) => COLUMNS.map((column) => (column.text ? column.text(item.queue) : "")), first);
      return { element: row.element, update: (item) => ((paused.hidden = !item.queue.suspended), row.update(item)) };
    });
  }

  function showFrame(shown) {
    const kind = view.state && STATES.find(([value]) => value === view.state)?.[1];
    const named = view.name ? ` with ${JSON.stringify(view.name)} in their name` : "";
    const what = `${kind && !kind.includes(" ") ? `${kind} ` : ""}queues${kind?.includes(" ") ? ` ${kind}` : ""}${named}`;
    answered(summary, total === 0 ? (view.name || view.state ? `No ${what}.` : "There are no queues yet. The first push to a queue creates it.") : `${count(view.offset + 1)} to ${count(view.offset + shown)} of ${count(total)} ${what}.`);
    for (const { back, forth } of pagers) {
      back.disabled = view.offset === 0;
      forth.disabled = view.offset + shown >= total;
    }
    // A single page needs one pager only.
    below.hidden = shown === total;
    grid.element.hidden = total === 0;
    for (const cell of grid.head.children) {
      const sort = cell.firstElementChild?.dataset.sort;
      if (sort === view.sort) cell.setAttribute("aria-sort", view.order === "asc" ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    }
    setText(line.querySelector("code"), listCommand(view));
  }

  /** Export all queues that match, also those on other pages, with all their fields. */
  async function exportAll() {
    const found = [];
    const parameters = new URLSearchParams({ limit: EXPORTED_AT_ONCE });
    if (view.name) parameters.set("name", view.name);
    if (view.state) parameters.set("state", view.state);
    try {
      let answer = { next: null };
      do {
        const after = answer.next === null ? "" : `&after=${segmentOf(answer.next)}`;
        answer = await get(`/v1/queues?${parameters}${after}`);
        found.push(...answer.queues);
      } while (answer.next !== null && found.length < EXPORTED_MAX);
      const fields = found.length ? Object.keys(found[0]) : ["name"];
      save("queues.csv", "text/csv;charset=utf-8", csv(fields, found.map((queue) => fields.map((key) => (key === "name" ? textOf(segmentOf(queue.name)) : queue[key])))));
      complain(answer.next === null ? null : { message: `Only the first ${count(found.length)} queues are in the file.` });
    } catch (error) {
      if (error.status === undefined) throw error;
      complain(error);
    }
  }

  function complain(error) {
    setText(complaint, error ? error.message : "");
  }

  search.control.addEventListener("input", debounce(() => {
    view.name = search.control.value;
    view.offset = 0;
    load();
  }, 200));
  states.control.addEventListener("change", () => {
    view.state = states.control.value;
    view.offset = 0;
    load();
  });
  size.control.addEventListener("change", () => {
    view.limit = Number(size.control.value);
    view.offset = 0;
    load();
  });

  return {
    title: "Queues",
    element: [
      h("h1", {}, "Queues"),
      h("div", { class: "bar" }, search.element, states.element, size.element, choice.element, h("div", { class: "spring" }), h("button", { type: "button", onclick: exportAll }, "Export"), actionButton("New queue", "write", newQueue)),
      complaint,
      h("div", { class: "bar" }, summary, h("div", { class: "spring" }), pagers[0].element),
      grid.element,
      below,
      h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), line),
    ],
    period: PERIOD_MS,
    show: showRows,
    refresh,
    complain,
    close: () => asked?.abort(),
  };
}

function listCommand({ name, state, sort, order, limit }) {
  const options = name ? ["--name", quoted(name)] : [];
  if (state) options.push("--state", state);
  const key = SORT_KEYS[sort];
  if (key && (sort !== "name" || order === "desc")) options.push(`--sort=${order === "desc" ? "-" : ""}${key}`);
  options.push("--limit", String(limit));
  return commandLine("queue ls", [], options);
}
