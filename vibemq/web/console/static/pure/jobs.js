// Arithmetic of jobs: how far, how fast, how long, and what that means in a sentence.
import { capitalized, count, counted } from "./format.js";

export const RATE_MIN = 1;
export const RATE_MAX = 10_000;
export const SLIDER_MAX = 100;

const ENDED = new Set(["done", "cancelled", "failed"]);

/** @param {{state: string}} job */
export function hasEnded(job) {
  return ENDED.has(job.state);
}

/** What a person may ask of a job in this state. @param {{state: string}} job */
export function actionsOf(job) {
  if (hasEnded(job)) return [];
  if (job.state === "paused" || job.state === "held") return ["running", "cancelled"];
  return ["paused", "cancelled"];
}

/** Letters that are settled for the job: done, gone before it came, or unreadable. */
export function settled(job) {
  return (job.done ?? 0) + (job.skipped ?? 0) + (job.damaged ?? 0);
}

/** Whether it is known how many letters there are to do. */
export function isCounted(job) {
  return Number.isFinite(job.selected) && job.selected >= 0;
}

/** From 0 to 1; null while the broker still counts. */
export function fraction(job) {
  if (job.state === "done") return 1;
  if (!isCounted(job)) return null;
  if (job.selected === 0) return 0;
  return Math.min(1, settled(job) / job.selected);
}

/** Time left in ms, as the broker says, else by the present rate; null when nothing can be said. */
export function leftMs(job) {
  if (hasEnded(job) || job.state === "paused" || job.state === "held" || job.state === "waiting") return null;
  if (Number.isFinite(job.left_ms)) return job.left_ms;
  const rate = job.rate_now || job.rate;
  if (!rate || !isCounted(job)) return null;
  return Math.round((Math.max(0, job.selected - settled(job)) / rate) * 1000);
}

/** How long `count` letters take at a rate; null without one. */
export function durationAt(count, rate) {
  return rate > 0 ? Math.ceil((count / rate) * 1000) : null;
}

/** A slider is logarithmic: each tenth of its way multiplies the rate. Its last place means no limit (null). */
export function rateOfSlider(place) {
  if (place >= SLIDER_MAX) return null;
  const exact = RATE_MIN * (RATE_MAX / RATE_MIN) ** (Math.max(0, place) / (SLIDER_MAX - 1));
  return Math.max(RATE_MIN, rounded(exact));
}

export function sliderOfRate(rate) {
  if (rate === null || rate === undefined || rate === 0) return SLIDER_MAX;
  const within = Math.min(RATE_MAX, Math.max(RATE_MIN, rate));
  return Math.round((Math.log(within / RATE_MIN) / Math.log(RATE_MAX / RATE_MIN)) * (SLIDER_MAX - 1));
}

/** Two digits are as exact as a slider is. */
function rounded(value) {
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(value)) - 1);
  return Math.round(value / unit) * unit;
}

export const CANARY = 10;
export const CANARY_FROM = 100;

/** The guard that a dialog begins with: many letters go behind a few first. */
export function canaryFor(count) {
  return count > CANARY_FROM ? CANARY : null;
}

/** What a canary of so many letters means when only so many go at all; "" when it holds some back. */
export function wholeCanary(canary, chosen) {
  if (!canary || canary < chosen) return "";
  return chosen === canary
    ? `All ${chosen} letters are the canary: they go at once, and none is held back. That is fine for a first look; to hold some back, make the canary smaller.`
    : `Only ${chosen} ${chosen === 1 ? "letter goes" : "letters go"}, fewer than the canary of ${canary}: ${chosen === 1 ? "it goes" : "they go"} at once, and none is held back. Make the canary smaller, or replay more.`;
}

/** So many of `count` letters are the canary, if somebody wants one. */
export function fewFirst(count) {
  return count > 2 * CANARY ? CANARY : Math.max(1, Math.floor(count / 2));
}

export const LEVEL_2_FROM = 10_000;

/** Which confirmation an action on so many letters asks for (1: a button; 2: the number is typed). */
export function levelOf(kind, count) {
  if (kind === "export_dead") return 0;
  if (kind === "purge_dead") return count === 1 ? 1 : 2;
  return count > LEVEL_2_FROM ? 2 : 1;
}

export const EXPORT_JOB_FROM = 10_000;

/** Whether a browser fetches so many letters in a moment. */
export function isSmallExport(count) {
  return count < EXPORT_JOB_FROM;
}

/** Where the letters of a preview go, in words for a button: "orders", "the 3 queues they died in". */
export function targetText(targets, to) {
  if (to) return to;
  if (targets?.length === 1) return targets[0].queue;
  return targets?.length ? `the ${targets.length} queues they died in` : "where they died";
}

const VERBS = {
  replay: ["Replay", "Replaying", "Replayed"],
  purge_dead: ["Purge", "Purging", "Purged"],
  export_dead: ["Export", "Exporting", "Exported"],
};

/** "Replay", "Replaying" or "Replayed", as the state of the job wants it. */
export function verbOf(kind, form = 0) {
  return (VERBS[kind] ?? [kind, kind, kind])[form];
}

const STATES = {
  queued: ["waits for its turn", ""],
  running: ["running", "good"],
  waiting: ["waiting", "warn"],
  paused: ["paused", "warn"],
  held: ["held by a guard", "bad"],
  done: ["done", ""],
  cancelled: ["cancelled", ""],
  failed: ["failed", "bad"],
};

/** [word, tone] */
export function stateOf(job) {
  return STATES[job.state] ?? [job.state, ""];
}

// What a job has come to, in sentences.

/** A text as a sentence: with a capital letter and a full stop. */
export function sentence(text) {
  const plain = String(text ?? "").trim();
  if (!plain) return "";
  const first = capitalized(plain);
  return /[.!?…]$/.test(first) ? first : `${first}.`;
}

/** Whether the letters of a replay go to another queue than the one they died in. @param {Row<"jobs">} job */
export const isElsewhere = ({ to, filter }) => Boolean(to) && to !== filter?.queue;
/** The queue all letters of a replay go to; null when they go where each died. */
export const targetOf = (job) => (job.kind === "replay" ? job.to || job.filter?.queue || null : null);

/** Whether a job waits for what becomes of its canary. */
export function isInCanary(job) {
  return job.state === "waiting" && Boolean(job.canary) && !job.canary_passed && job.done >= job.canary;
}

/** Whether a queue that is looked at has no consumer, and no group that reads it by ranges, as Spark does. */
export function isUnread(queue) {
  return queue?.consumers === 0 && !(queue.groups ?? []).some(({ cursor }) => cursor);
}

/** Whether a job holds letters back until its canary has passed; where the canary is all there is, there are none. */
export function holdsBack(job) {
  return isInCanary(job) && restOf(job) !== 0;
}

/** Whether nothing can settle the canary: the queue is looked at and nobody reads it. */
export function isCanaryStuck(job, queue) {
  return isInCanary(job) && isUnread(queue);
}

/** How many letters are not done yet; null while that is not known. */
export function restOf(job) {
  return Number.isFinite(job.selected) && job.selected >= 0 ? Math.max(0, job.selected - settled(job)) : null;
}

/** Whether a job that has ended has left letters that it might have replayed: it was limited, or cancelled. */
export function mayHaveLeft(job) {
  if (job.kind !== "replay") return false;
  return job.state === "cancelled" || (job.state === "done" && Boolean(job.limit) && job.done >= job.limit);
}

const SENTENCES = {
  held: "A guard holds the job. Look at the letters that died again, then let it go on or cancel it.",
  failed: "The job has failed.",
  paused: "The job is paused. Nothing is moved until it goes on.",
};

/** The state in sentences, or none. `queue`: what is known of the queue the letters go to, or null. */
export function toldOf(job, queue = null) {
  if (isInCanary(job)) return canaryOf(job, queue);
  if (job.state === "waiting") return [sentence(job.why), "The job goes on by itself as soon as it can."];
  if (job.state === "done" && job.kind === "export_dead") return endOfExport(job);
  if (job.state === "done") return job.kind === "replay" ? endOf(job, queue) : ["Done."];
  return SENTENCES[job.state] ? [SENTENCES[job.state], sentence(job.why)].filter(Boolean) : [];
}

function canaryOf(job, queue) {
  const [letters, isOne] = [counted(job.done, "letter"), job.done === 1];
  if (isCanaryStuck(job, queue)) {
    return [`${targetOf(job)} has no consumer, so the canary cannot pass.`, `${letters} ${isOne ? "waits" : "wait"} there until something consumes ${isOne ? "it" : "them"}.`];
  }
  if (!holdsBack(job)) {
    return [`The canary is all there is: ${letters} ${isOne ? "was" : "were"} replayed, and no others are held back.`, `The job ends when ${isOne ? "it is" : "all of them are"} settled.`];
  }
  return [
    `${letters} ${isOne ? "is" : "are"} the canary, and ${isOne ? "not settled yet" : "not all of them are settled yet"}.`,
    `${othersOf(job)} when ${isOne ? "it is settled and has not" : "all of them are settled and none has"} died again.`,
  ];
}

function othersOf(job) {
  const rest = restOf(job);
  if (rest === null) return "The others go";
  return rest === 1 ? "The other one goes" : `The other ${count(rest)} go`;
}

function endOfExport(job) {
  if (!job.has_result) return ["Done. The file was deleted.", "As long as the letters are dead, the same can be exported again."];
  const told = [`Done. ${counted(job.done, "letter")} ${job.done === 1 ? "is" : "are"} in the file.`];
  if (job.skipped > 0) told.push(`${counted(job.skipped, "letter")} had gone before the job came to ${job.skipped === 1 ? "it" : "them"}.`);
  return [...told, "The broker deletes the file seven days after the end of the job. Its last line counts the letters."];
}

function endOf(job, queue) {
  if (job.done === 0) return ["Done. There was no letter to replay."];
  const isLimited = Boolean(job.limit) && job.done >= job.limit;
  const told = [`Done. ${counted(job.done, "letter")} ${job.done === 1 ? "was" : "were"} replayed${isLimited ? ", as many as were asked for" : ""}.`];
  const again = job.dead_again ?? 0;
  if (again > 0) told.push(`${count(again)} of them died again.`);
  const name = targetOf(job);
  const waiting = queue ? queue.ready + queue.in_flight + queue.delayed : null;
  if (waiting === 0) {
    const others = job.done - again;
    if (others > 0) told.push(`Nothing waits in ${name} any more: ${again > 0 ? `the other ${count(others)}` : "all"} left it.`);
  } else if (waiting !== null && isUnread(queue)) {
    const wait = `${counted(waiting, "message")} ${waiting === 1 ? "waits" : "wait"} in ${name}, and it has no consumer.`;
    told.push(again > 0 ? wait : `${job.done === 1 ? "It" : "None"} has ${job.done === 1 ? "not " : ""}died again, which says nothing yet: ${wait}`);
  } else if (again === 0) {
    told.push(job.done === 1 ? "It has not died again so far." : "None of them has died again so far.");
  }
  return told;
}
