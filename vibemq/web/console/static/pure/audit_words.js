// Records of the audit log in words.
import { digits } from "./format.js";

const TEXT_MAX = 160;
const LIST_MAX = 5;
/** Options that records have as numbers (`vibemq.model.options`). */
const CHOICES = {
  mode: ["round robin", "fan-out", "fan-out without acks", "priority"],
  durability: ["transient", "async", "weak", "strong"],
  overflow: ["drop oldest", "drop newest", "block publisher", "redirect to DLQ"],
  retention: ["settled", "log"],
  lost_connection: ["fail", "release"],
};

const isNothing = (value) => value === null || value === undefined || value === "" || (typeof value === "object" && Object.keys(value).length === 0);

/** [["max_attempts", "5"], ["ids", "1, 2, 3, 4, 5 and 40 more"]]: what is nested has the names joined by dots, options of queues
 * only their own. */
export function pairs(given, before = "") {
  return Object.entries(given ?? {}).flatMap(([name, value]) => {
    if (isNothing(value)) return [];
    const whole = before + name;
    if (Array.isArray(value)) return [[whole, listed(value)]];
    if (typeof value === "object") return pairs(value, name === "options" || name === "changes" ? before : `${whole}.`);
    return [[whole, short(wordOf(name, value))]];
  });
}

function wordOf(name, value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return (typeof value === "number" && CHOICES[name]?.[value]) || digits(value);
}

function listed(values) {
  const first = values.slice(0, LIST_MAX).map((value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value)));
  const more = values.length - first.length;
  return short(first.join(", ")) + (more > 0 ? ` and ${more} more` : "");
}

const short = (text) => (text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}…` : text);

/** The page that shows what a pair names, and its parameters; null when there is none. */
export function placeOf(name, value, operation = "") {
  const last = name.split(".").at(-1);
  if (last === "queue" || ((last === "to" || last === "from") && operation.startsWith("dlq."))) return ["queue", { queue: value }];
  if (last === "job" || last === "job_id") return ["job", { id: value }];
  return null;
}

const HOUR_MS = 3_600_000;

/** For the filter of times: how long ago "today" and the others began. */
export function withinMs(word, now) {
  if (word === "today") return now.getTime() - new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  return { hour: HOUR_MS, day: 24 * HOUR_MS, week: 168 * HOUR_MS }[word] ?? null;
}
