// The options of queues: what each means, what a change of it does, and what cannot be changed.
import { count, duration, parseDuration, size } from "../../pure/format.js";

const MODES = [
  ["round_robin", "round robin: each message to one consumer"],
  ["priority_based", "priority: the most important message first"],
  ["fan_out_with_ack", "fan-out: each message to every group, which settles it"],
  ["fan_out_without_ack", "fan-out without acks: settled by the hand-out"],
];
const DURABILITIES = [
  ["strong", "strong: confirmed when it is on the disk"],
  ["weak", "weak: confirmed when the system has it"],
  ["async", "async: confirmed at once, written soon"],
  ["transient", "transient: never written"],
];
const OVERFLOWS = [
  ["drop_newest", "drop newest: the new message is refused"],
  ["drop_oldest", "drop oldest: the oldest message is dropped"],
  ["block_publisher", "block publisher: the publisher waits"],
  ["redirect_to_dlq", "redirect to DLQ: the oldest becomes a dead letter"],
];

/** name, label, kind, meaning, `change`: what a change does to what is there, `forLife`: why it cannot be changed, `none`: what 0
 * or null means, `group`: the heading it stands under. */
export const OPTIONS = [
  { name: "mode", label: "Mode", kind: "choice", choices: MODES, usual: "round_robin", group: "Delivery", meaning: "Who is given a message.", forLife: "It decides how the queue keeps its messages." },
  { name: "durability", label: "Durability", kind: "choice", choices: DURABILITIES, usual: "strong", group: "Delivery", meaning: "When a publish is confirmed, and what a crash can lose.", change: "For messages that come from now on. From and to transient it cannot be changed." },
  { name: "retention", label: "Kept until", kind: "choice", choices: [["settled", "settled: deleted when all groups are done"], ["log", "log: kept within the limits below"]], usual: "settled", group: "Delivery", meaning: "How long messages stay.", forLife: "A log and a queue keep their messages in different ways." },
  { name: "max_messages", label: "Most messages", kind: "count", usual: 0, none: "no limit", group: "Limits", meaning: "Most waiting messages.", change: "If more are waiting, they stay; the overflow applies to the next publish." },
  { name: "max_bytes", label: "Most bytes", kind: "bytes", usual: 0, none: "no limit", group: "Limits", meaning: "Most bytes of waiting messages.", change: "If more are waiting, they stay; the overflow applies to the next publish." },
  { name: "overflow", label: "When it is full", kind: "choice", choices: OVERFLOWS, usual: "drop_newest", group: "Limits", meaning: "What happens at a limit.", change: "From the next publish on." },
  { name: "message_ttl_ms", label: "Messages expire after", kind: "ms", usual: null, none: "no limit", group: "Limits", meaning: "Messages that wait longer expire.", change: "Also for messages that wait now: older ones expire at once." },
  { name: "max_attempts", label: "Attempts", kind: "count", usual: 3, group: "Failures", meaning: "Failed attempts after which a message becomes a dead letter.", change: "From the next failure on." },
  { name: "ack_timeout_ms", label: "Time to settle", kind: "ms", usual: 30000, none: "no limit", group: "Failures", meaning: "How long a consumer may hold a message without settling it.", change: "For messages that are handed out from now on." },
  { name: "retry_base_ms", label: "First retry after", kind: "ms", usual: 2000, none: "at once", group: "Failures", meaning: "Delay after the first failure; it doubles with each further one.", change: "From the next failure on." },
  { name: "retry_max_ms", label: "Longest retry delay", kind: "ms", usual: 120000, none: "no limit", group: "Failures", meaning: "Longest delay after a failure.", change: "From the next failure on." },
  { name: "lost_connection", label: "Lost connection", kind: "choice", choices: [["fail", "fail: a failed attempt is counted"], ["release", "release: nothing is counted"]], usual: "fail", group: "Failures", meaning: "What the loss of a consumer's connection means for what it held.", change: "From the next lost connection on." },
  { name: "hold_behind_failed", label: "Keep the order", kind: "switch", usual: false, group: "Failures", meaning: "A message that has failed keeps its place; what is behind it waits.", change: "Switched off, messages that wait behind a failed one go on at once." },
  { name: "dead_letter", label: "Dead letters", kind: "switch", usual: true, group: "Failures", meaning: "Messages that fail, expire or are rejected become dead letters; if not, they are dropped.", change: "Switched off, later failures leave nothing behind." },
  { name: "highest_priority_only", label: "Highest priority only", kind: "switch", usual: false, group: "Special", meaning: "Of the subscribers without a group, only those of the highest priority are given messages (fan-out).", change: "From the next message on." },
  { name: "dedup_window_ms", label: "Duplicates refused for", kind: "ms", usual: 120000, none: "no deduplication", group: "Special", meaning: "How long ids of messages are remembered, to refuse them a second time.", change: "A shorter window forgets older ids." },
  { name: "retain_ms", label: "Longest age in the log", kind: "ms", usual: 0, none: "no limit", group: "Log", meaning: "Messages of a log that are older may be deleted.", change: "A smaller limit deletes what is beyond it." },
  { name: "retain_messages", label: "Most messages in the log", kind: "count", usual: 0, none: "no limit", group: "Log", meaning: "Most messages of a log.", change: "A smaller limit deletes the oldest beyond it." },
  { name: "retain_bytes", label: "Most bytes in the log", kind: "bytes", usual: 0, none: "no limit", group: "Log", meaning: "Most bytes of a log.", change: "A smaller limit deletes the oldest beyond it." },
  { name: "expires_ms", label: "Deleted when unused for", kind: "ms", usual: 0, none: "never", group: "End of the queue", meaning: "The queue is deleted when nobody has used it for so long.", change: "The time begins anew with the change." },
  { name: "auto_delete", label: "Deleted with its last consumer", kind: "switch", usual: false, group: "End of the queue", meaning: "The queue is deleted when its last consumer has left.", change: "With the next consumer that leaves as the last." },
  { name: "exclusive", label: "Of one connection", kind: "switch", usual: false, group: "End of the queue", meaning: "The queue belongs to one connection and ends with it.", forLife: "It is decided when the queue is made." },
];

export const GROUPS = ["Delivery", "Limits", "Failures", "Log", "End of the queue", "Special"];

/** A value as people read it. */
export function shownValue(option, value) {
  if ((value === null || value === 0) && option.none) return option.none;
  if (option.kind === "ms") return duration(value);
  if (option.kind === "bytes") return size(value);
  if (option.kind === "count") return value >= Number.MAX_SAFE_INTEGER ? "no limit" : count(value);
  if (option.kind === "switch") return value ? "yes" : "no";
  const chosen = option.choices?.find(([choice]) => choice === value)?.[1] ?? String(value).replaceAll("_", " ");
  return chosen.split(":")[0];
}

/** As the field has it; the text that `readValue` reads as the same value. */
export function fieldValue(option, value) {
  if (option.kind === "switch" || option.kind === "choice") return value;
  if (value === null || value === undefined) return "";
  if (option.kind === "ms" && value % 1000 === 0 && value !== 0) return `${value / 1000}s`;
  if (option.kind === "ms" && value !== 0) return `${value}ms`;
  return String(value);
}

/** [value, what is wrong with the text]. */
export function readValue(option, text) {
  if (option.kind === "switch" || option.kind === "choice") return [text, ""];
  const plain = String(text).trim();
  if (plain === "") return [option.usual === null ? null : 0, ""];
  if (option.kind === "ms") {
    const ms = parseDuration(plain);
    return ms === null ? [null, "Write a duration, as 250ms, 30s, 5m, 2h or 7d."] : [ms, ""];
  }
  if (option.kind === "bytes") {
    const found = /^(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB)?$/i.exec(plain);
    if (found === null) return [null, "Write a size, as 1048576, 512KiB or 2GiB."];
    const power = ["b", "kib", "mib", "gib", "tib"].indexOf((found[2] ?? "B").toLowerCase());
    return [Math.round(Number(found[1]) * 1024 ** power), ""];
  }
  return /^\d+$/.test(plain) ? [Number(plain), ""] : [null, "Write a whole number, 0 or more."];
}
