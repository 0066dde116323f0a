// The frame around the pages: navigation, state of the connection, and one request per second that feeds all pages.

import { ask, field, permitActions } from "./actions.js";
import { access, connection, events, get, hasToken, learnAccess, useToken } from "./api.js";
import { updateAsking } from "./asking.js";
import { announce, h, setText } from "./dom.js";
import { stateOf } from "./findings.js";
import { clock, duration, plural } from "./format.js";
import { Samples } from "./samples.js";
import * as clients from "./clients.js";
import * as cluster from "./cluster.js";
import * as dead_letters from "./dead_letters.js";
import * as defaults from "./defaults.js";
import * as message from "./message.js";
import * as nodes from "./nodes.js";
import * as overview from "./overview.js";
import * as queue from "./queue.js";
import * as queues from "./queues.js";
import * as schedules from "./schedules.js";
import * as sessions from "./sessions.js";
import * as subscriptions from "./subscriptions.js";
import * as tokens from "./tokens.js";

const PAGES = { overview, nodes, queues, queue, dead_letters, clients, schedules, sessions, subscriptions, defaults, tokens, cluster };
const MENU = ["overview", "nodes", "queues", "dead_letters", "clients", "schedules", "sessions", "subscriptions", "defaults", "tokens", "cluster"];
const BEAT_MS = 1000;
const COUNTERS = ["pushed_total", "pulled_total", "acked_total", "nacked_total", "redelivered_total", "dropped_total"];
const THEMES = ["system", "light", "dark"];

const main = document.getElementById("main");
const notices = document.getElementById("notices");
const badge = document.getElementById("connection");
const state = { page: null, latest: null, samples: new Samples(COUNTERS), wantsHistory: true, polling: null, refused: null };

// --- pages ---------------------------------------------------------------------------------------------------------

/**
 * Return the page that the URL names, its name, its argument and its query: #/queues?name=x, #/queue/jobs,
 * #/queue/jobs/message/12.
 */
function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const known = Object.hasOwn(PAGES, name) ? name : "overview";
  const page = known === "queue" && rest[1] === "message" ? message : PAGES[known];
  return { page, name: known, argument: rest.join("/"), query: new URLSearchParams(query) };
}

function open({ focus = true } = {}) {
  state.page?.close?.();
  clearTimeout(state.polling);
  const { page: opened, name, argument, query } = route();
  const page = opened.open({ argument, query, samples: state.samples, latest: () => state.latest, reopen: open });
  state.page = page;
  document.title = `${page.title} – lmqcluster`;
  main.replaceChildren(...(Array.isArray(page.element) ? page.element : [page.element]));
  for (const link of document.querySelectorAll("#pages a")) {
    const current = link.dataset.page === (name === "queue" ? "queues" : name);
    if (!current) link.removeAttribute("aria-current");
    else if (!link.hasAttribute("aria-current")) {
      link.setAttribute("aria-current", "page");
      // On a phone the menu scrolls.
      link.parentElement.scrollLeft = link.offsetLeft - link.parentElement.offsetLeft - link.parentElement.clientWidth / 2 + link.offsetWidth / 2;
    }
  }
  if (focus) {
    main.focus();
    scrollTo(0, 0);
  }
  if (state.latest) page.show?.(state.latest);
  page.opened?.();
  poll(page);
}

/** Refresh the data that a page shows beside the overview, every `period` milliseconds. */
async function poll(page) {
  if (page.refresh === undefined) return;
  try {
    if (!document.hidden && access.wanted === "") {
      await page.refresh();
      if (state.page === page) page.complain?.(null);
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === undefined) throw error;
    // A missing answer is reported above all pages.
    if (state.page === page && error.status !== 0) page.complain?.(error);
  } finally {
    if (state.page === page) state.polling = setTimeout(() => poll(page), page.period);
  }
}

// --- the beat ------------------------------------------------------------------------------------------------------

async function beat() {
  // A background tab requests nothing after its first answer.
  if ((!document.hidden || state.latest === null) && access.wanted === "") {
    try {
      const answer = await get(state.wantsHistory ? "/v1/overview?history" : "/v1/overview");
      // A restarted node has another history.
      state.wantsHistory = !answer.history && state.samples.tip !== null && answer.totals.at_s < state.samples.tip.at;
      if (answer.history || state.wantsHistory) state.samples.begin(answer.history ?? []);
      state.samples.add(answer.totals, answer.cluster.has_quorum);
      state.latest = answer;
      connection.quorum = answer.cluster.has_quorum;
      state.refused = null;
      state.page?.show?.(answer);
    } catch (error) {
      if (error.status === undefined) throw error;
      state.refused = error.status > 0 && error.status !== 401 ? error : null;
    } finally {
      showState();
      setTimeout(beat, BEAT_MS);
    }
  } else {
    setTimeout(beat, BEAT_MS);
  }
}

function showState() {
  const latest = state.latest;
  const self = latest?.cluster.nodes.find((node) => node.id === latest.cluster.self);
  const name = self?.name ?? location.host;
  document.body.classList.toggle("stale", !connection.up);
  document.body.classList.toggle("cut-off", !connection.quorum);
  if (!connection.up) {
    show(badge, "bad", `${name}: no answer`);
  } else if (access.wanted !== "") {
    show(badge, "warn", `${name}: no access`);
  } else if (state.refused !== null) {
    show(badge, "bad", `${name}: ${state.refused.code || "refused"}`);
  } else if (latest === null) {
    show(badge, "", "connecting");
  } else if (latest.cluster.has_quorum) {
    showFindings(stateOf(latest, state.samples.grown("refused_total", overview.RECENT_S)), name);
  } else {
    show(badge, "bad", `${name}: no quorum`);
  }
  permitActions();
  connection.node = name;
  updateAsking();
  if (self) setText(document.getElementById("whereabouts"), `${name} at ${location.host}, version ${latest.cluster.version}, durability ${latest.cluster.durability}`);
  showNotices(latest, name);
}

function showFindings({ findings, isOutage }, name) {
  if (findings === null) show(badge, "plain", `${name}: in quorum`);
  else if (findings === 0) show(badge, "good", `${name}: no findings`);
  else show(badge, isOutage ? "bad" : "warn", `${name}: ${plural(findings, "finding")}`);
}

function show(element, kind, text) {
  element.className = `badge ${kind}`;
  setText(element, text);
}

function showNotices(latest, name) {
  if (!connection.up) {
    const ago = (Date.now() - connection.since) / 1000;
    const others = latest ? latest.cluster.nodes.filter((node) => node.http && node.id !== latest.cluster.self) : [];
    notice("lost", `${name} does not answer since ${clock(connection.since)} (${duration(ago)}): ${connection.reason}. The figures are the last known ones. The console retries every second.`, others);
  } else if (access.wanted !== "") {
    notice("token", sentence(access.wanted), []);
  } else if (state.refused !== null) {
    notice("refused", `${name} answers with an error: ${state.refused.message}. The console retries every second.`, []);
  } else if (latest !== null && !latest.cluster.has_quorum) {
    notice("quorum", whyNoQuorum(latest.cluster, name), []);
  } else {
    notice(null);
  }
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

let noticed = null;

function notice(kind, text = "", others = []) {
  if (kind === null) {
    if (noticed !== null) {
      notices.replaceChildren();
      announce(noticed === "lost" ? "The node answers again." : "");
      noticed = null;
    }
    return;
  }
  if (noticed !== kind) {
    const links = others.length ? h("span", {}, " Other nodes: ", others.map((node) => [h("a", { href: `//${node.http}/console/` }, node.name ?? node.http), " "])) : null;
    const enter = kind === "token" ? h("button", { type: "button", onclick: askForToken }, "Enter a token") : null;
    notices.replaceChildren(h("div", { class: "notice", role: "alert", dataset: { kind } }, h("strong", {}, TITLES[kind]), " ", h("span", { "aria-live": "off" }), links, enter));
    noticed = kind;
  }
  setText(notices.querySelector(".notice > span"), text);
}

const TITLES = { lost: "No answer.", refused: "Refused.", quorum: "No quorum.", token: "Access." };

function whyNoQuorum({ nodes, quorum, self }, name) {
  if (nodes.some((node) => node.id === self && node.state === "removed")) {
    return `${name} was removed from its cluster and serves no requests. Let it join again.`;
  }
  if (nodes.some((node) => node.id === self && node.state === "left")) {
    return `${name} has left its cluster and serves no requests. Let it join a cluster.`;
  }
  const present = nodes.filter((node) => node.connected).length;
  const missing = nodes.filter((node) => !node.connected).map((node) => node.name ?? node.id).sort().join(" or ");
  if (present >= quorum) return `${name} knows no leader, but reaches ${present} of ${nodes.length} nodes. An election takes a second or two.`;
  return `${name} reaches ${present} of ${nodes.length} nodes and ${quorum} are needed. It stores and delivers nothing until enough of them are back: start or reconnect ${missing}. The figures show its copy of the data; rates are unknown.`;
}

// --- access and theme ----------------------------------------------------------------------------------------------

async function askForToken() {
  if (document.querySelector("dialog")) return;
  const secret = field("token", "Token", h("input", { type: "password", autocomplete: "off", spellcheck: "false" }), "The token is kept until this tab is closed. An empty field removes it.");
  await ask({
    title: "Access token",
    text: access.wanted ? [access.wanted] : [`The role is ${access.role}${access.queues ? `, for queues that match ${access.queues}` : ""}.`],
    fields: [secret],
    verb: "Use",
    run: async ({ token }) => {
      await useToken(token.trim());
      if (access.wanted) throw new RangeError(access.wanted);
      state.wantsHistory = true;
      open({ focus: false });
      return `The role is ${access.role}.`;
    },
  });
}

function showAccess() {
  const button = document.getElementById("token");
  button.hidden = !access.tokens && !hasToken() && access.wanted === "";
  setText(button, access.wanted ? "Token" : `Token: ${access.role}`);
  showState();
  if (access.wanted) askForToken();
}

function applyTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.getElementById("theme").replaceChildren("Theme", h("span", { class: "wide" }, `: ${theme}`));
}

function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(localStorage.getItem("lmqcluster.theme") ?? "system") + 1) % THEMES.length];
  localStorage.setItem("lmqcluster.theme", theme);
  applyTheme(theme);
}

// --- beginning -----------------------------------------------------------------------------------------------------

document.getElementById("pages").append(
  ...MENU.map((name) => h("a", { href: `#/${name}`, dataset: { page: name } }, PAGES[name].label)),
);
document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("token").addEventListener("click", askForToken);
events.addEventListener("connection", showState);
events.addEventListener("access", showAccess);
addEventListener("hashchange", () => open());
document.addEventListener("visibilitychange", () => (state.wantsHistory = true));
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  const search = document.querySelector("main input[type=search]");
  if (event.key === "/" && !typing && search && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
  }
});
applyTheme(localStorage.getItem("lmqcluster.theme") ?? "system");

beat();
try {
  await learnAccess();
} catch (error) {
  if (error.status === undefined) throw error;
}
showAccess();
open({ focus: false });
