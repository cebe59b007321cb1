// Numbers, sizes, durations and instants as text. Pure: nothing here asks a clock or the page.

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const MINUS = "\u2212";

/** 1234567 -> "1,234,567"; null -> "–". */
export function count(value) {
  if (value === null || value === undefined) return "–";
  const whole = typeof value === "number" ? Math.round(value) : value;
  return String(whole).replace(/^-/, MINUS).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** "1 message", "2 messages": `many` only where an s does not do. */
export function counted(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Errors begin with a small letter where a prefix may stand before them; a name such as audit.list stays what it is. */
export const capitalized = (text) => (/^[a-z]+[._][a-z]/.test(text) ? text : text.charAt(0).toUpperCase() + text.slice(1));

/** The largest number of the broker, which stands for no limit: a number of JavaScript only comes near it. */
const UNLIMITED = "9223372036854775807";
const MARK = "\u0000no limit\u0000";

/** A number as the broker has written it. */
export const digits = (value) => (value === Number(UNLIMITED) ? UNLIMITED : String(value));

/** As `JSON.stringify`, with that number digit for digit. */
export const exactJson = (value, indent = 0) =>
  JSON.stringify(value, (_, inner) => (inner === Number(UNLIMITED) ? MARK : inner), indent)?.replaceAll(JSON.stringify(MARK), UNLIMITED);

/** Events per second: exact when small, rounded when large. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (Math.abs(value) < 10) return value.toFixed(1);
  return count(Math.round(value));
}

/** A limit as it was given: 0.1, 2, 1,000. */
export function rateLimit(value) {
  return Number.isInteger(value) ? count(value) : String(value);
}

/** 1536 -> ["1.5", "KiB"]. */
export function sizeParts(bytes) {
  if (bytes === null || bytes === undefined) return ["–", ""];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < SIZES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return [value.toFixed(digits).replace(/\.0$/, ""), SIZES[unit]];
}

export const size = (bytes) => sizeParts(bytes).join(" ").trim();

/** The two largest units that say something: "3 d 4 h", "2 min 5 s", "350 ms". */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 0) return `${MINUS}${duration(-ms)}`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 10 && ms % 1000 >= 100) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  /** @type {[number, string][]} */
  const parts = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ");
}

/** An instant in UTC or in the zone of the browser: "2026-11-22 14:03:07", with ".123" if wanted. */
export function instant(at, { utc = false, millis = false } = {}) {
  const date = toDate(at);
  if (date === null) return "–";
  const get = (name) => (utc ? date[`getUTC${name}`]() : date[`get${name}`]());
  const two = (value) => String(value).padStart(2, "0");
  const day = `${get("FullYear")}-${two(get("Month") + 1)}-${two(get("Date"))}`;
  const time = `${two(get("Hours"))}:${two(get("Minutes"))}:${two(get("Seconds"))}`;
  return `${day} ${time}${millis ? `.${String(get("Milliseconds")).padStart(3, "0")}` : ""}`;
}

/** Texts of RFC 3339 and numbers of ms since 1970; 0, null and what cannot be read are no instant. */
export function toDate(at) {
  if (at === null || at === undefined || at === 0 || at === "") return null;
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? null : date;
}

const SLOW_MS = 10_000;
const AGREED_MS = 5_000;
const AGREED_AGAIN_MS = 2_000;

/** By how much the clock here is ahead of the broker's (ms), found from the header Date of an answer: 0 where they agree, null where
 * that cannot be known. `before`: what was found by the last answer; clocks that differed agree again when they are nearer than others
 * may be, so that ages do not jump with each answer. */
export function clockAhead(date, sentAt, answeredAt, before = 0) {
  const told = Date.parse(date ?? "");
  if (Number.isNaN(told) || answeredAt < sentAt || answeredAt - sentAt > SLOW_MS) return null;
  // It is cut to the second.
  const ahead = (sentAt + answeredAt) / 2 - (told + 500);
  return Math.abs(ahead) < (before ? AGREED_AGAIN_MS : AGREED_MS) ? 0 : Math.round(ahead);
}

const UNIT_MS = { ms: 1, s: 1e3, m: 6e4, min: 6e4, h: 36e5, d: 864e5, w: 6048e5 };

/** "250ms", "1.5s", "5m", "2h", "3d", sums such as "1h30m", or a plain number of ms; null for what is none of these. */
export function parseDuration(text) {
  const plain = text.trim();
  if (/^\d+$/.test(plain)) return Number(plain);
  if (!/^(\d+(\.\d+)?\s*(ms|min|[smhdw])\s*)+$/.test(plain)) return null;
  let total = 0;
  for (const [, number, unit] of plain.matchAll(/(\d+(?:\.\d+)?)\s*(ms|min|[smhdw])/g)) total += Number(number) * UNIT_MS[unit];
  // What is above 0 is no 0, which often means no limit.
  return Math.round(total) || (total > 0 ? 1 : 0);
}

/** "1048576", "512KiB" or "2GiB" in bytes; null for what is none of these. */
export function parseSize(text) {
  const found = /^(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB)?$/i.exec(text.trim());
  if (found === null) return null;
  return Math.round(Number(found[1]) * 1024 ** ["b", "kib", "mib", "gib", "tib"].indexOf((found[2] ?? "B").toLowerCase()));
}

/** Exactly, as the command line reads it: 5400000 -> "1h30m". */
export function durationArgument(ms) {
  let left = Math.max(0, Math.round(ms));
  if (left === 0) return "0";
  let text = "";
  for (const unit of ["d", "h", "m", "s", "ms"]) {
    const whole = Math.floor(left / UNIT_MS[unit]);
    if (whole) text += `${whole}${unit}`;
    left -= whole * UNIT_MS[unit];
  }
  return text;
}

const KINDS_MAX = 10;

/** What the rows {count} of letters that are still here are of all that died in the same time. Of ten there may be more. */
export function stillHere(rows, died) {
  const here = rows.reduce((sum, row) => sum + row.count, 0);
  if (here >= died) return here === 1 ? "The message that died." : `All ${counted(here, "message")} that died.`;
  return `${count(here)} of the ${counted(died, "message")} that died; the others were replayed or purged since, or their queue was deleted${rows.length < KINDS_MAX ? "" : ", or their errors are rarer"}.`;
}

/** [title, sentence] of an empty page of a search that is not over, or was begun on the pages before; null where nothing fits. The
 * broker looks at one letter or record after the other for a moment, and then answers what it has.
 * @param {{next?: string | null, examined?: number} | undefined} page @param {string} one what is searched */
export function emptyPage(page, cursor, one) {
  if (page?.next) return ["Nothing found so far", `${counted(page.examined ?? 0, one)} could be looked at in a moment. The next page goes on there.`];
  return cursor ? [`No more ${one}s fit`, "What was found is on the pages before."] : null;
}
