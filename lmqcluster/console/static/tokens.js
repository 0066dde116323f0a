// Tokens: access to the cluster.

import { actionButton, ask, commandBox, commandLine, field, readOnlyNote } from "./actions.js";
import { access, change, get, may } from "./api.js";
import { answered, asking } from "./asking.js";
import { h, setText, syncRows, table, textRow } from "./dom.js";
import { day, plural } from "./format.js";
import { quoted } from "./names.js";

export const label = "Tokens";

const ROLES = ["read", "write", "admin"];
const LIFETIMES = [["", "never"], ["1h", "in an hour"], ["1d", "in a day"], ["30d", "in 30 days"], ["90d", "in 90 days"], ["365d", "in a year"]];
const UNITS = { h: 3600, d: 86400 };
const COLUMNS = [{ label: "Token" }, { label: "Role" }, { label: "Queues" }, { label: "Principal" }, { label: "SQS" }, { label: "Created" }, { label: "Expires" }, { label: "Change" }];

export function open() {
  const state = { tokens: [], refresh };
  const grid = table("Tokens", COLUMNS);
  const summary = asking();
  const complaint = h("p", { class: "complaint", role: "alert" });
  grid.element.hidden = true;

  async function refresh() {
    if (!may("admin")) {
      answered(summary, "Only administrators can see tokens.");
      return;
    }
    state.tokens = (await get("/v1/tokens")).tokens;
    grid.element.hidden = state.tokens.length === 0;
    answered(summary, state.tokens.length === 0 ? "There are no tokens: clients on a node's machine may do everything, and others nothing." : `${plural(state.tokens.length, "token")}. Every client needs one.`);
    syncRows(grid.body, state.tokens, (token) => token.name, (token) => tokenRow(token, state));
  }

  return {
    title: "Tokens",
    element: [
      h("h1", {}, "Tokens"),
      readOnlyNote("admin"),
      complaint,
      h("div", { class: "bar" }, summary, h("div", { class: "spring" }), actionButton("New token", "admin", () => newToken(state))),
      grid.element,
      h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), commandBox(commandLine("token ls"))),
    ].filter(Boolean),
    period: 5000,
    refresh,
    complain: (error) => setText(complaint, error ? error.message : ""),
  };
}

function tokenRow(token, state) {
  const remove = actionButton("Delete", "admin", () => deleteToken(token.name, state), { kind: "small danger" });
  remove.setAttribute("aria-label", `Delete token ${token.name}`);
  const row = textRow(COLUMNS.slice(0, -1), (one) => [one.name, one.role, one.queues, one.principal, one.sqs ? "yes" : "no", day(one.created_at), one.expires_at === null ? "never" : `${day(one.expires_at)}${one.expired ? " (expired)" : ""}`]);
  row.element.append(h("td", {}, remove));
  return row;
}

async function newToken(state) {
  const name = field("name", "Name", h("input", { required: true, maxlength: "100", pattern: "[^\\s\\/]+", autocomplete: "off", spellcheck: "false" }), "Without spaces and slashes.");
  const role = field("role", "Role", h("select", {}, ROLES.map((one) => h("option", { value: one, selected: one === (access.tokens ? "write" : "admin") }, one))), "read: view; write: also push, pull and settle; admin: also delete, purge and manage.");
  const queues = field("queues", "Queues", h("input", { required: true, value: ".*", autocomplete: "off", spellcheck: "false" }), "A regular expression that matches anywhere in queue names.");
  const principal = field("principal", "Principal", h("input", { maxlength: "100", pattern: "[^\\s\\/]+", autocomplete: "off", spellcheck: "false" }), "Owner of the state of its clients; several tokens can share one. Empty: the name of the token.");
  const lifetime = field("lifetime", "Expires", h("select", {}, LIFETIMES.map(([value, text]) => h("option", { value }, text))));
  const sqs = field("sqs", "Also for the SQS port", h("input", { type: "checkbox" }));
  let made = null;
  await ask({
    title: "New token",
    text: access.tokens ? [] : ["The first token must be an admin for all queues that never expires. Every client then needs a token, this console included."],
    fields: [name, role, queues, principal, lifetime, sqs],
    verb: "Create",
    command: (values) => commandLine("token create", [values.name ? quoted(values.name) : "NAME"], [`--role=${values.role}`, ...(values.queues === ".*" ? [] : [`--queues=${quoted(values.queues)}`]), ...(values.principal ? [`--principal=${quoted(values.principal)}`] : []), ...(values.lifetime ? [`--expires-in=${values.lifetime}`] : []), ...(values.sqs ? ["--sqs"] : [])]),
    run: async (values) => {
      made = await change("POST", "/v1/tokens", { name: values.name, role: values.role, queues: values.queues, lifetime: seconds(values.lifetime), principal: values.principal || null, sqs: values.sqs });
      return "The token is created.";
    },
  });
  if (made === null) return;
  await showSecret(made);
  await state.refresh();
}

function showSecret({ name, token, secret_access_key: key }) {
  const aws = key ? [`For the SQS port: access key ID ${name}, and this secret access key:`, commandBox(key)] : [];
  return ask({
    title: `Token ${name}`,
    text: ["The secret is shown only now. Store it where only its user can read it.", commandBox(token), ...aws],
    verb: "Done",
    run: async () => `Token ${name} is created.`,
  });
}

async function deleteToken(name, state) {
  const done = await ask({
    title: `Delete token ${name}`,
    text: ["The nodes refuse its users and close their connections. State of the clients belongs to the principal and stays."],
    verb: "Delete",
    danger: true,
    typed: name,
    command: () => commandLine("token delete", [quoted(name)]),
    run: async () => {
      await change("DELETE", `/v1/tokens/${encodeURIComponent(name)}`);
      return `Token ${name} is deleted.`;
    },
  });
  if (done) await state.refresh();
}

function seconds(lifetime) {
  return lifetime === "" ? null : Number(lifetime.slice(0, -1)) * UNITS[lifetime.at(-1)];
}
