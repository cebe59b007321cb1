// Which dead letters are meant: one filter for address, API, jobs and command line.
//
// In memory a filter is a plain object with the API's own names; a part that is not given is not there. Ids are kept as
// runs ("17,20-25"), as the command line writes them.
import { count, counted, duration, durationArgument, instant } from "./format.js";
import { visible } from "./symbols.js";

const TEXTS = ["queue", "reason", "fingerprint", "error", "message_id"];
const NUMBERS = ["older_than_ms", "newer_than_ms", "since", "until", "from_id", "to_id"];
/** More ids than this are not written out: a range such as 1-9999999 would fill the memory of the page. */
export const IDS_MAX = 10_000;

/** @typedef {{queue?: string, reason?: string, fingerprint?: string, error?: string, message_id?: string,
 *   older_than_ms?: number, newer_than_ms?: number, since?: number, until?: number, from_id?: number, to_id?: number, replayed?: boolean,
 *   header?: Record<string, string>, ids?: string}} LetterFilter */

/** What a page's address or a query says; parts that cannot be read are left out.
 * @param {URLSearchParams} params @returns {LetterFilter} */
export function filterOfSearch(params) {
  /** @type {LetterFilter} */
  const filter = {};
  for (const name of TEXTS) {
    const value = params.get(name);
    if (value) filter[name] = value;
  }
  for (const name of NUMBERS) {
    const value = params.get(name);
    if (value !== null && /^\d{1,16}$/.test(value)) filter[name] = Number(value);
  }
  const replayed = params.get("replayed");
  if (replayed === "true" || replayed === "false") filter.replayed = replayed === "true";
  const headers = params.getAll("header").map(splitHeader).filter(Boolean);
  if (headers.length) filter.header = Object.fromEntries(headers);
  const ids = params.get("ids");
  if (ids && idsOf(ids)) filter.ids = ids;
  return filter;
}

/** "name:value" of a query; the value may have colons of its own. */
function splitHeader(text) {
  const at = text.indexOf(":");
  return at > 0 ? [text.slice(0, at), text.slice(at + 1)] : null;
}

/** As a page's address has it, in a fixed order.
 * @param {LetterFilter} filter @returns {[string, string][]} */
export function searchOfFilter(filter) {
  /** @type {[string, string][]} */
  const pairs = [];
  for (const name of [...TEXTS, ...NUMBERS]) {
    if (filter[name] !== undefined && filter[name] !== "") pairs.push([name, String(filter[name])]);
  }
  if (filter.replayed !== undefined) pairs.push(["replayed", String(filter.replayed)]);
  for (const [name, value] of Object.entries(filter.header ?? {})) pairs.push(["header", `${name}:${value}`]);
  if (filter.ids) pairs.push(["ids", filter.ids]);
  return pairs;
}

/** As the query of a request has it, which knows no runs. @param {LetterFilter} filter @returns {[string, string][]} */
export function queryOfFilter(filter) {
  return searchOfFilter(withEnds(filter)).map(([name, value]) => [name, name === "ids" ? String(idsOf(value)) : value]);
}

/** One run of ids is named by its ends: the ids of a long one make an address that the broker refuses.
 * @param {LetterFilter} filter @returns {LetterFilter} */
function withEnds({ ids, ...rest }) {
  const [, first, last] = /^\s*(\d{1,15})-(\d{1,15})\s*$/.exec(ids ?? "") ?? [];
  if (first === undefined) return { ...rest, ids };
  return { ...rest, from_id: Math.max(rest.from_id ?? 0, Number(first)), to_id: Math.min(rest.to_id ?? Infinity, Number(last)) };
}

/** The object `filter` of a job, a preview or an export. */
export function bodyOfFilter(filter) {
  const { ids, ...rest } = filter;
  const body = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined && value !== ""));
  return ids ? { ...body, ids: idsOf(ids) } : body;
}

/** Back from the body that a job remembers. What is told as null, because it is hidden from who asks, stays null: without
 * it the filter would mean more letters. */
export function filterOfBody(body) {
  /** @type {LetterFilter} */
  const filter = {};
  for (const name of [...TEXTS, ...NUMBERS, "replayed"]) if (body?.[name] !== undefined) filter[name] = body[name];
  // A page's address has numbers; an answer writes instants out.
  for (const name of ["since", "until"]) if (typeof filter[name] === "string") filter[name] = Date.parse(filter[name]);
  if (body?.header && Object.keys(body.header).length) filter.header = { ...body.header };
  if (body?.ids?.length) filter.ids = runsOf(body.ids);
  return filter;
}

/** Whether all parts of a job's filter are told, so that the same can be asked for again. */
export const isTold = (body) => ![...Object.values(body ?? {}), ...Object.values(body?.header ?? {})].includes(null);

/** Whether `vibemq-admin` has options for all parts. It has ages, and a job keeps the instants they were counted from. */
export function hasOptions(filter) {
  return filter.since === undefined && filter.until === undefined;
}

/** Options of `vibemq-admin dlq …`, as `adminLine` takes them. */
export function optionsOfFilter(filter) {
  const age = (ms) => (ms === undefined ? undefined : durationArgument(ms));
  return {
    queue: filter.queue,
    reason: filter.reason,
    fingerprint: filter.fingerprint,
    error: filter.error,
    "older-than": age(filter.older_than_ms),
    "newer-than": age(filter.newer_than_ms),
    header: Object.entries(filter.header ?? {}).map(([name, value]) => `${name}=${value}`),
    "message-id": filter.message_id,
    "from-id": filter.from_id,
    "to-id": filter.to_id,
    replayed: filter.replayed === true,
    "not-replayed": filter.replayed === false,
    id: filter.ids,
  };
}

/** Each part in words, with its name, so that it can be taken out again.
 * `sampleOf`: the text of a kind of error. `utc`: whether instants are in UTC, as those of the page. */
export function partsOf(filter, sampleOf = (_) => "", utc = false) {
  const parts = [];
  const add = (part, label, value) => parts.push({ part, label, value: value ?? "(hidden from you)" });
  if (filter.queue) add("queue", "queue", filter.queue);
  if (filter.reason) add("reason", "reason", reasonText(filter.reason));
  if (filter.fingerprint) add("fingerprint", "kind of error", sampleOf(filter.fingerprint) || filter.fingerprint);
  if (filter.error || filter.error === null) add("error", "error contains", filter.error);
  if (filter.newer_than_ms !== undefined) add("newer_than_ms", "died in the last", duration(filter.newer_than_ms));
  if (filter.older_than_ms !== undefined) {
    add("older_than_ms", "dead for at least", duration(filter.older_than_ms));
  }
  if (filter.since !== undefined) add("since", "died since", instant(filter.since, { utc }));
  if (filter.until !== undefined) add("until", "died until", instant(filter.until, { utc }));
  for (const [name, value] of Object.entries(filter.header ?? {})) add(`header:${name}`, `header ${visible(name)}`, value);
  if (filter.message_id) add("message_id", "message id", filter.message_id);
  if (filter.from_id !== undefined) add("from_id", "from id", String(filter.from_id));
  if (filter.to_id !== undefined) add("to_id", "up to id", String(filter.to_id));
  if (filter.replayed !== undefined) add("replayed", "replayed before", filter.replayed ? "yes" : "no");
  if (filter.ids) add("ids", "ids", filter.ids);
  return parts;
}

/** The filter without one of its parts, as `partsOf` names them. */
export function without(filter, part) {
  const rest = { ...filter };
  if (!part.startsWith("header:")) {
    delete rest[part];
    return rest;
  }
  const { [part.slice(7)]: _taken, ...headers } = rest.header ?? {};
  delete rest.header;
  return Object.keys(headers).length ? { ...rest, header: headers } : rest;
}

export function isEmpty(filter) {
  return searchOfFilter(filter).length === 0;
}

const REASONS = {
  max_attempts: "attempts used up",
  expired: "expired",
  deserialization: "unreadable",
  rejected: "rejected",
  overflow: "no room",
  purged: "purged",
  retention: "past retention",
  queue_deleted: "queue deleted",
};
export const REASON_NAMES = ["max_attempts", "rejected", "expired", "deserialization", "overflow", "retention"];

export function reasonText(reason) {
  return REASONS[reason] ?? String(reason).replaceAll("_", " ");
}

/** Why a letter with this reason is here, and what usually helps. */
export function reasonHelp(reason) {
  const helps = {
    max_attempts: [
      "Every attempt failed: a consumer asked for another try, or its ack timeout ran out, as often as the queue allowed.",
      "Repair what the error names, then replay. Replaying into a consumer that still fails brings the letters back here.",
    ],
    rejected: [
      "A consumer rejected the message for good and said why.",
      "Repair the consumer, or the message with edit and replay.",
    ],
    expired: [
      "The message waited longer than its time to live, so no consumer got it.",
      "See whether the queue has consumers and keeps up. A replayed message starts a new time to live.",
    ],
    deserialization: [
      "The consumer could not read the message.",
      "Look at the body: the producer may write another format than the consumer reads.",
    ],
    overflow: [
      "The queue was full, and its option overflow is redirect_to_dlq: the message came here in place of the queue.",
      "Add consumers or raise max_messages or max_bytes before a replay; a full queue takes no letters back.",
    ],
    retention: ["The message was older than the log keeps.", "Raise the retention of the queue if readers need longer."],
  };
  return helps[reason] ?? ["The message left its queue without being settled.", "Look at the error and at the body."];
}

/** The numbers that runs such as "17,20-25" stand for, ascending; null for anything else and for too many. */
export function idsOf(text) {
  const ids = new Set();
  for (const part of text.split(",")) {
    const match = /^\s*(\d{1,15})(?:-(\d{1,15}))?\s*$/.exec(part);
    if (!match) return null;
    const first = Number(match[1]);
    const last = match[2] === undefined ? first : Number(match[2]);
    if (last < first || last - first >= IDS_MAX) return null;
    for (let id = first; id <= last; id += 1) ids.add(id);
    if (ids.size > IDS_MAX) return null;
  }
  return [...ids].sort((a, b) => a - b);
}

/** Numbers as runs. */
export function runsOf(ids) {
  const sorted = [...new Set([...ids].map(Number))].sort((a, b) => a - b);
  const runs = [];
  for (const id of sorted) {
    const run = runs.at(-1);
    if (run && id === run[1] + 1) run[1] = id;
    else runs.push([id, id]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

/** Of these letters each that is ticked, once.
 * @param {Set<number>} ticked @param {{dead_id: number, queue: string}[]} letters */
export const lettersOf = (ticked, letters) => [...new Map(letters.filter(({ dead_id: id }) => ticked.has(id)).map((letter) => [letter.dead_id, letter])).values()];

/** The letters that an action is for: those that are ticked, else all that fit. Of ticked ones the queue is named where all are of
 * one: who may not do it on every queue may do it there.
 * @param {LetterFilter} filter @param {Set<number>} ticked @param {{dead_id: number, queue: string}[]} letters that are known
 * @returns {LetterFilter} */
export function meantOf(filter, ticked, letters = []) {
  if (!ticked.size) return filter;
  const known = lettersOf(ticked, letters);
  const queues = new Set(known.map(({ queue }) => queue));
  const queue = filter.queue ?? (known.length === ticked.size && queues.size === 1 ? known[0].queue : undefined);
  return { ...(queue ? { queue } : {}), ids: runsOf(ticked) };
}

// Attempts of a dead letter, and what to know before a replay, in words.

/** "3, all of them failed": how often consumers got it, and how often they did not manage. */
export function attemptsText({ attempts, failed }) {
  if (!attempts) return "none: no consumer got it";
  if (!failed) return `${count(attempts)}; a rejection does not count as a failed attempt`;
  if (failed === attempts) return attempts === 1 ? "1, which failed" : `${count(attempts)}, all of them failed`;
  return `${count(attempts)}, of which ${count(failed)} failed`;
}

/** What the queue allows now, where a letter died of its attempts and the queue allows another number; else "".
 * @param {{reason: string, attempts: number, failed: number, queue: string}} letter @param {number | null} most */
export function attemptsSentence(letter, most) {
  const failed = letter.failed || letter.attempts;
  if (letter.reason !== "max_attempts" || most === null || most === failed) return "";
  const now = most > 1_000_000 ? "any number of attempts" : counted(most, "attempt");
  return `It died after ${counted(failed, "failed attempt")}, and ${letter.queue} allows ${now} now: its max_attempts may have been another one at that time.`;
}

const STATES = {
  missing: (queue) => `The queue ${queue} does not exist. Create it, or name another one at "To queue".`,
  full: (queue) => `The queue ${queue} is full and takes no letters now.`,
  no_consumers: (queue, letters) => `No consumer reads ${queue} now: ${letters === 1 ? "the letter waits" : "the letters wait"} there until one does.`,
};

export function previewSentences(preview) {
  const told = [];
  const { replayed_before: again, replayed_before_of: read, targets = [] } = preview;
  if (again > 0) told.push(`${count(again)} of ${counted(read ?? preview.count, "letter")} ${again === 1 ? "has" : "have"} been replayed before, and died again.`);
  for (const { queue, count: letters, state } of targets) if (STATES[state]) told.push(STATES[state](queue, letters));
  return told;
}
