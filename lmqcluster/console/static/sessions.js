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
  { label: "Token", title: "Owner" },
  { label: "Leased", numeric: true, title: "Deliveries of the session" },
  { label: "Locks", numeric: true, title: "Locks that it holds or waits for" },
  { label: "Queues", numeric: true, title: "Exclusive queues that it holds or waits for" },
  { label: "Ends in", numeric: true, title: "Unless its client renews it" },
  { label: "Change" },
];
const LOCKS = [
  { label: "Lock" },
  { label: "Session", title: "Holder" },
  { label: "Fencing token", numeric: true },
  { label: "Waiting", numeric: true, title: "Sessions that wait for it" },
  { label: "Change" },
];

export function open() {
  const sessions = list("Sessions", SESSIONS, "There are no sessions. A client opens one to hold locks, exclusive queues or leases.");
  const locks = list("Locks", LOCKS, "No lock is held.");
  const complaint = h("p", { class: "complaint", role: "alert" });

  async function refresh() {
    if (!may("admin")) return;
    const found = await get(`/v1/sessions?limit=${ROWS}`);
    sessions.show(found.sessions, found.total, (one) => one.session, (one) => sessionRow(one, refresh));
    const held = await get(`/v1/locks?limit=${ROWS}`);
    // A lock with a new holder gets a new row, because the button names the holder.
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
    text: [session, "Its messages return to their places in the queues, and its locks and turns go to the next session. The next request of its client fails with session_lost; work until that request may be done twice."],
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
    text: ["The next waiting session gets the lock with a larger fencing token. The former holder is not notified: unless the protected resource refuses its token, both work at the same time."],
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
