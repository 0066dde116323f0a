// Requests to the node that served this page, and the state of the connection to it.

const TIMEOUT_MS = 8000;
const CHANGE_TIMEOUT_MS = 900_000;
const TOKEN_KEY = "lmqcluster.token";
const ROLES = ["read", "write", "admin"];
const EVERY_QUEUE = ".*";

/** An error of a request. `status` is 0 if there was no answer. */
export class ApiError extends Error {
  constructor(status, code, detail, retryable = false) {
    super(detail);
    this.status = status;
    this.code = code;
    this.retryable = retryable;
  }
}

/** Dispatches "connection" (the node answers or does not) and "access" (a token is needed, or the role has changed). */
export const events = new EventTarget();

/** `node` is the name of the node, its address until that is known; `quorum` is false while it can store no changes. */
export const connection = { node: location.host, up: true, since: new Date(), reason: "", quorum: true };
export const access = { role: "admin", queues: "", tokens: false, wanted: "" };

/** Return true if the token, if one is needed, includes the role `role`. */
export function may(role) {
  return ROLES.indexOf(access.role) >= ROLES.indexOf(role);
}

/** Use another token, or none. It is kept until the tab is closed. */
export async function useToken(token) {
  if (token) sessionStorage.setItem(TOKEN_KEY, token);
  else sessionStorage.removeItem(TOKEN_KEY);
  await learnAccess();
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN_KEY) !== null;
}

/** Load the rights of the token. In a cluster without tokens, everything is allowed. */
export async function learnAccess() {
  access.wanted = "";
  try {
    const answer = await get("/v1/access");
    Object.assign(access, { role: answer.role, queues: answer.queues === EVERY_QUEUE ? "" : answer.queues, tokens: answer.required });
  } catch (error) {
    if (error.status !== 401) throw error;
  }
  events.dispatchEvent(new Event("access"));
}

export function get(path, { signal } = {}) {
  return request("GET", path, undefined, signal);
}

/** Send a request that changes something; `body` is sent as JSON. */
export function change(method, path, body = undefined) {
  return request(method, path, body);
}

async function request(method, path, body, signal) {
  // A page of another origin cannot send this header, so the node can recognise requests of the console.
  const headers = { accept: "application/json", "x-lmq-console": "1" };
  const token = sessionStorage.getItem(TOKEN_KEY);
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const limit = AbortSignal.timeout(method === "GET" ? TIMEOUT_MS : CHANGE_TIMEOUT_MS);
  let response;
  let text;
  try {
    response = await fetch(`..${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "same-origin",
      redirect: "error",
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw lost(method, error);
  }
  found();
  const answer = parse(text);
  if (response.ok) return answer;
  throw refused(response, answer);
}

function parse(text) {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

function lost(method, error) {
  const late = error.name === "TimeoutError";
  const reason = late ? "it did not answer in time" : "it cannot be reached";
  if (connection.up) {
    Object.assign(connection, { up: false, since: new Date(), reason });
    events.dispatchEvent(new Event("connection"));
  }
  const unknown = method === "GET" ? "" : " The outcome of the change is unknown.";
  return new ApiError(0, "unreachable", `The node does not answer: ${reason}.${unknown}`);
}

function found() {
  if (connection.up) return;
  Object.assign(connection, { up: true, since: new Date(), reason: "" });
  events.dispatchEvent(new Event("connection"));
}

function refused(response, answer) {
  const detail = answer?.detail ?? response.headers.get("x-lmq-error") ?? `HTTP ${response.status}`;
  const error = new ApiError(response.status, answer?.code ?? "", detail, answer?.retryable ?? false);
  if (response.status === 401) {
    access.wanted = detail;
    events.dispatchEvent(new Event("access"));
  }
  return error;
}
