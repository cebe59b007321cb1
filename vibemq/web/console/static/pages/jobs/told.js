// What a job has come to, in sentences, for its own page.
import { capitalized, count, counted } from "../../pure/format.js";
import { isCounted, settled } from "../../pure/jobs.js";

/** A text as a sentence: with a capital letter and a full stop. */
export function sentence(text) {
  const plain = String(text ?? "").trim();
  if (!plain) return "";
  const first = capitalized(plain);
  return /[.!?…]$/.test(first) ? first : `${first}.`;
}

/** The queue all letters of a replay go to; null when they go where each died. */
export const targetOf = (job) => (job.kind === "replay" ? job.to || job.filter?.queue || null : null);

/** Whether a job waits for what becomes of its canary. */
export function isInCanary(job) {
  return job.state === "waiting" && Boolean(job.canary) && !job.canary_passed && !job.canary_waived && job.done >= job.canary;
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

/** Whether as many letters are done as were asked for. */
export const isLimitReached = (job) => Boolean(job.limit) && job.done >= job.limit;

/** How many letters are not done yet; null while that is not known. */
export function restOf(job) {
  if (isLimitReached(job)) return 0;
  return isCounted(job) ? Math.max(0, job.selected - settled(job)) : null;
}

/** Whether a job that has ended has left letters that it might have replayed: it was limited, or cancelled. */
export function mayHaveLeft(job) {
  if (job.kind !== "replay") return false;
  return job.state === "cancelled" || (job.state === "done" && isLimitReached(job));
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
    return [`${targetOf(job)} has no consumer, so the canary cannot pass.`, `${letters} ${isOne ? "waits" : "wait"} there for one.`];
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
  const told = [`Done. ${counted(job.done, "letter")} ${job.done === 1 ? "was" : "were"} replayed${isLimitReached(job) ? ", as many as were asked for" : ""}.`];
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
