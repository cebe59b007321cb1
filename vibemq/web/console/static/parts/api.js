// The client of /api/v1: JSON in and out, problems as sentences, conditional requests, retries, and the end of a session.
import { signal } from "../vendor/ui.js";
import { query as queryText } from "../pure/commands.js";
import { clockAhead, exactJson } from "../pure/format.js";
import { matches } from "../pure/patterns.js";

export const BASE = new URL("../api/v1/", document.baseURI);
const TRIES = 3;
const KEPT_ANSWERS = 50;
/** What the broker has not answered by then it does not answer: it needs at most 30 seconds for what is read. */
const LATE_MS = 60_000;
/** What proxies answer for a broker that they do not reach. */
const PROXY_STATUSES = new Set([502, 503, 504]);

/** Since when the API has not been reached (ms since 1970); 0: it answers. */
export const lostSince = signal(0);

/** By how much the browser's clock is ahead of the broker's, ms. */
export const ahead = signal(0);

/** What the API, or the way to it, said instead of an answer. `message` is a sentence for people. */
export class Problem extends Error {
  constructor(status, told, { retryAfterS = 0 } = {}) {
    super(told.detail || told.title || told.message || `The API answered with status ${status}.`);
    this.status = status;
    this.code = told.code ?? "";
    this.requestId = told.instance ?? "";
    this.errors = told.errors ?? [];
    this.told = told;
    this.retryAfterS = retryAfterS;
  }

  /** Whether the same request may be answered in a moment. */
  get isPassing() {
    return [0, 429, 503].includes(this.status) || this.code === "IDEMPOTENCY_BUSY";
  }

  /** Whether the page of a list that the address names is not known any more: the broker was started anew, or the filter is another. */
  get isOldPage() {
    return this.errors.some(({ pointer }) => pointer === "/cursor");
  }
}

const answers = new Map();

/** The URL of a request, for links, downloads and shown commands. */
export function urlOf(path, values) {
  return new URL(path + queryText(values), BASE);
}

export const get = (path, query, options = {}) => call("GET", path, { query, ...options });
export const post = (path, body = {}, options = {}) => call("POST", path, { body, ...options });
export const put = (path, body = {}, options = {}) => call("PUT", path, { body, ...options });
export const patch = (path, body = {}, options = {}) => call("PATCH", path, { body, ...options });
export const remove = (path, query, options = {}) => call("DELETE", path, { query, ...options });

/** One request. Reading, and what has a key of its own, is tried again when the way was bad; nothing else is.
 * `changesNothing`: of a POST that only asks. Returns the value of the answer; `onAnswer` is given the response itself (for its ETag
 * and Location). */
export async function call(method, path, options = {}) {
  const url = urlOf(path, options.query);
  const headers = { accept: "application/json", ...options.headers };
  let body;
  if (options.raw !== undefined) body = options.raw;
  else if (options.body !== undefined) {
    body = exactJson(options.body);
    headers["content-type"] = method === "PATCH" ? "application/merge-patch+json" : "application/json";
  }
  if (options.ifMatch) headers["if-match"] = options.ifMatch;
  if (method === "POST" && options.key !== null) headers["idempotency-key"] = options.key ?? newKey();
  const kept = method === "GET" ? answers.get(url.href) : undefined;
  if (kept) headers["if-none-match"] = kept.etag;
  const mayRetry = method === "GET" || "idempotency-key" in headers;
  for (let attempt = 1; ; attempt += 1) {
    const isLast = attempt >= TRIES || !mayRetry;
    try {
      const sentAt = Date.now();
      const response = await fetch(url, { method, headers, body, signal: signalOf(method, options.signal), credentials: "same-origin" });
      noteClock(clockAhead(response.headers.get("date"), sentAt, Date.now(), ahead.value));
      options.onAnswer?.(response);
      const value = await valueIn(response, url.href, kept);
      lostSince.value = 0;
      return value;
    } catch (error) {
      if (error.name === "AbortError") throw error;
      const problem = error instanceof Problem && error.status !== 0 ? error : unreached(method === "GET" ? "read" : options.changesNothing ? "asked" : "changed");
      lostSince.value = problem.status === 0 ? lostSince.value || Date.now() : 0;
      if (problem.status === 401 && !options.atLogin) leaveForLogin();
      if (isLast || !problem.isPassing) throw problem;
      await pause(Math.max(problem.retryAfterS * 1000, 300 * 2 ** attempt * (0.5 + Math.random())), options.signal);
    }
  }
}

/** A little more or less is the way of the answer. */
function noteClock(found) {
  if (found !== null && Math.abs(found - ahead.value) > 1_000) ahead.value = found;
}

/** Only what reads has an end: a backup takes as long as it takes. */
function signalOf(method, leaving) {
  return method === "GET" ? AbortSignal.any([AbortSignal.timeout(LATE_MS), ...(leaving ? [leaving] : [])]) : leaving;
}

async function valueIn(response, href, kept) {
  if (response.status === 304 && kept) return kept.value;
  const text = await response.text();
  if (!response.ok) throw problemOf(response, text);
  const value = parsed(text);
  if (value === undefined) {
    throw new Problem(response.status, { detail: "What has answered is not the broker, but something before it, perhaps a proxy that asks for a login. Load the page again." });
  }
  const etag = response.headers.get("etag");
  answers.delete(href);
  if (etag && value !== null) {
    answers.set(href, { etag, value });
    if (answers.size > KEPT_ANSWERS) answers.delete(answers.keys().next().value);
  }
  return value;
}

/** What the API has refused, or what a proxy says in its place: the broker has every refusal as JSON, or says when to come again. */
export function problemOf(response, text) {
  const value = parsed(text);
  const isTold = value !== null && typeof value === "object";
  const retryAfterS = Number(response.headers.get("retry-after")) || 0;
  if (!isTold && !retryAfterS && PROXY_STATUSES.has(response.status)) return unreached();
  const isPage = /html/.test(response.headers.get("content-type") ?? "");
  return new Problem(response.status, isTold ? value : { detail: isPage ? "" : text.slice(0, 500) }, { retryAfterS });
}

/** The value of a JSON text; null of none, undefined of any other text. */
function parsed(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return undefined;
  }
}

const LOST = {
  read: "This page tries again by itself.",
  asked: "Try again in a moment.",
  changed: "Whether this was carried out is not known: look at what is there, and do it again if it was not.",
};

/** Only what is read is asked for until there is an answer. @param {keyof typeof LOST} what */
export const unreached = (what = "read") => new Problem(0, { detail: `The broker cannot be reached. ${LOST[what]}` });

/** Numbers of 128 bits; `crypto.randomUUID` is missing on plain http. */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function pause(ms, signalled) {
  return new Promise((/** @type {(nothing?: void) => void} */ done, failed) => {
    const leave = () => {
      clearTimeout(timer);
      failed(new DOMException("left", "AbortError"));
    };
    // A page that stays open for days pauses as often as the broker is away, with one signal.
    const timer = setTimeout(() => {
      signalled?.removeEventListener("abort", leave);
      done();
    }, ms);
    signalled?.addEventListener("abort", leave, { once: true });
  });
}

/** What somebody is typing is not thrown away, nor what is shown only once. */
export const isFilling = () => document.querySelector("dialog[open] form, [data-keep]") !== null;
const isShownOnce = () => document.querySelector("[data-keep=once]") !== null;

/** A way to the log-in page that takes longer has not come about, and is taken again. */
const LEAVING_MS = 10_000;
let isLeaving = false;

/** To the log-in page, which comes back to where one was. */
export function leaveForLogin() {
  // A form says that the session has ended.
  if (isLeaving || isFilling()) return;
  isLeaving = true;
  setTimeout(() => {
    isLeaving = false;
  }, LEAVING_MS);
  const here = location.pathname.split("/").at(-1) + location.search;
  location.replace(`./login${queryText({ then: here })}`);
}

// Who is here, and what they may do. The API enforces it; the pages only leave out what would be refused.

/** The answer of GET /session; null until it has come. */
export const session = signal(null);
export const sessionProblem = signal(null);

const AGAIN_MS = 2000;
let again;

const OWNER = "vibemq.who";

/** What a tab keeps is of one user: another one, however they have come, begins with nothing. */
function claimTab({ user, token }) {
  const who = exactJson([user, token]);
  try {
    if (sessionStorage.getItem(OWNER) !== who) sessionStorage.clear();
    sessionStorage.setItem(OWNER, who);
  } catch {
    // Without a place to keep things nothing is kept.
  }
}

/** A broker that recovers its store or stops is asked again, until it has answered. */
export async function loadSession() {
  clearTimeout(again);
  try {
    const found = await get("session");
    if (found.auth_enabled && !found.authenticated) leaveForLogin();
    else {
      claimTab(found);
      session.value = found;
    }
    sessionProblem.value = null;
  } catch (problem) {
    sessionProblem.value = problem;
    if (problem.isPassing) again = setTimeout(loadSession, Math.max(AGAIN_MS, problem.retryAfterS * 1000));
  }
}

/** For whom the page was loaded: what it shows is theirs. @type {any} */
let shownTo = null;

/** Rights change, and in another tab somebody else may have logged in, whose cookie this one sends then. */
export async function lookWhoIsHere() {
  const before = session.value;
  if (before === null || document.visibilityState !== "visible") return;
  shownTo ??= before;
  const found = await get("session").catch(() => before);
  // Whoever may see less would be shown another page in its place.
  if (isShownOnce()) return;
  const hasEnded = found.auth_enabled && !found.authenticated;
  if (hasEnded && isFilling()) return;
  if ((found.user === shownTo.user && found.token === shownTo.token) || isFilling()) {
    session.value = found;
    return;
  }
  // What the one before was shown is not for this one.
  sessionStorage.clear();
  location.reload();
}

export async function logOut({ everywhere = false } = {}) {
  await remove("session", { everywhere });
  // What this user was shown is not for the next one in the same tab.
  sessionStorage.clear();
  location.assign("./login");
}

/** Whether the broker asks for anything: for users, or for the one token of the setting `http.token`. */
export const asksForLogin = () => session.value === null || session.value.authenticated;

export const isSuperuser = () => session.value !== null && (!session.value.auth_enabled || session.value.superuser);

/** Whether an operation that concerns no single queue may be done. */
export function mayDo(operation) {
  const found = session.value;
  if (found === null) return false;
  return isSuperuser() || found.may?.[operation] === true;
}

/** Whether an action is allowed on a queue (or, with `kind`, on a group or a transaction). What is allowed on a queue is on its
 * groups. */
export function may(action, name, kind = "queue") {
  const found = session.value;
  if (found === null) return false;
  const covers = ({ kind: of, pattern }) => (of === kind && matches(pattern, name)) || (kind === "group" && of === "queue" && matches(pattern, name.split("/")[0]));
  const allow = (rules) => rules.some((rule) => covers(rule) && (rule.actions.includes(action) || rule.actions.includes("*")));
  return (isSuperuser() || allow(found.permissions)) && (!found.narrowed_to || allow(found.narrowed_to));
}

/** Whether a group may be moved, limited and deleted: by its owner, and by who may manage those of others and of nobody. */
export const mayManage = (queue, group, owner) =>
  may("subscribe", queue) && ((Boolean(owner) && owner === session.value?.user) || may("manage", `${queue}/${group}`, "group"));

/** On any queue at all. */
export function mayAnywhere(action) {
  const allow = (rules) => (rules ?? []).some(({ kind, actions }) => kind === "queue" && (actions.includes(action) || actions.includes("*")));
  const { permissions, narrowed_to: narrowed } = session.value ?? {};
  return (isSuperuser() || allow(permissions)) && (!narrowed || allow(narrowed));
}
