// Sessions, which hold leases, locks and turns until they end, and the locks that they have.

import { actionButton, ask, commandBox, commandLine, readOnlyNote } from "./actions.js";
import { change, get, may } from "./api.js";
import { h, setText, textRow } from "./dom.js";
import { count, duration } from "./format.js";
import { list } from "./list.js";
import { queueWord, segmentOf, textOf } from "./names.js";

export const label = "Sessions";

const ROWS = 100;
const SESSIONS = [
  { label: "Session" },
  { label: "Token", title: "Whose it is" },
  { label: "Leased", numeric: true, title: "Deliveries that it holds" },
  { label: "Locks", numeric: true, title: "Locks that it has or waits for" },
  { label: "Queues", numeric: true, title: "Exclusive queues that it has or waits for" },
  { label: "Ends in", numeric: true, title: "Unless its client renews it" },
  { label: "Change" },
];
const LOCKS = [
  { label: "Lock" },
  { label: "Session", title: "Who has it" },
  { label: "Fencing token", numeric: true },
  { label: "Waiting", numeric: true, title: "Sessions that wait for it" },
  { label: "Change" },
];

export function open() {
  const sessions = list("Sessions", SESSIONS, "There are no sessions. A client opens one to hold locks, exclusive queues, or leases that end with it.");
  const locks = list("Locks", LOCKS, "No lock is held.");
  const complaint = h("p", { class: "complaint", role: "alert" });

  async function refresh() {
    if (!may("admin")) return;
    const found = await get(`/v1/sessions?limit=${ROWS}`);
    sessions.show(found.sessions, found.total, (one) => one.session, (one) => sessionRow(one, refresh));
    const held = await get(`/v1/locks?limit=${ROWS}`);
    // A lock that has passed on is another row: its buttons are about who has it.
    locks.show(held.locks, held.total, (one) => `${segmentOf(one.name)} ${one.session}`, (one) => lockRow(one, refresh));
  }

  return {
    title: "Sessions",
    element: [
      h("h1", {}, "Sessions"),
      readOnlyNote("admin"),
      complaint,
      sessions.element,
      locks.element,
      h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), commandBox(commandLine("session ls")), commandBox(commandLine("lock ls"))),
    ].filter(Boolean),
    period: 3000,
    refresh,
    complain: (error) => setText(complaint, error ? error.message : ""),
  };
}

function sessionRow({ session }, refresh) {
  const button = actionButton("End", "admin", () => endSession(session, refresh), { kind: "small danger" });
  button.setAttribute("aria-label", `End: ${session}`);
  const row = textRow(SESSIONS.slice(0, -1), (one) => [session, textOf(segmentOf(one.owner)) || "–", count(one.leased), count(one.locks), count(one.queues), duration(one.ends_in_s)]);
  row.element.append(h("td", {}, button));
  return row;
}

function lockRow({ name: given, session }, refresh) {
  const segment = segmentOf(given);
  const name = textOf(segment);
  const button = actionButton("Free", "admin", () => freeLock(segment, name, session, refresh), { kind: "small danger" });
  button.setAttribute("aria-label", `Free: ${name}`);
  const row = textRow(LOCKS.slice(0, -1), (one) => [name, session, count(one.token), count(one.waiting)]);
  row.element.append(h("td", {}, button));
  return row;
}

async function endSession(session, refresh) {
  const done = await ask({
    title: "End a session",
    text: [session, "Its leases return to their places in the queues, its locks and turns pass on. A client that is still at work in it is told so with its next request; what it does until then may be done twice."],
    verb: "End",
    danger: true,
    command: () => commandLine("session end", [session], ["--yes"]),
    run: async () => {
      const { ended } = await change("DELETE", `/v1/sessions/${session}`);
      return ended ? "The session is ended." : "The session had ended already.";
    },
  });
  if (done) await refresh();
}

async function freeLock(segment, name, session, refresh) {
  const done = await ask({
    title: `Free lock ${name}`,
    text: ["The next session in line gets it, with a larger fencing token. The client that had it is not told: what the lock protects must refuse its token, or both work at once."],
    verb: "Free",
    danger: true,
    typed: name,
    command: () => commandLine("lock free", [queueWord(segment)], ["--yes"]),
    run: async () => {
      const { freed } = await change("DELETE", `/v1/locks/${segment}`, { session });
      return freed ? "The lock is freed." : "The lock was freed already.";
    },
  });
  if (done) await refresh();
}
