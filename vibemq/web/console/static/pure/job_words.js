// What a job has come to, in sentences.
import { count, counted } from "./format.js";
import { settled } from "./job_figures.js";

/** A text as a sentence: with a capital letter and a full stop. */
export function sentence(text) {
  const plain = String(text ?? "").trim();
  if (!plain) return "";
  const first = plain[0].toUpperCase() + plain.slice(1);
  return /[.!?…]$/.test(first) ? first : `${first}.`;
}

/** The queue all letters of a replay go to; null when they go where each died. */
export const targetOf = (job) => (job.kind === "replay" ? job.to || job.filter?.queue || null : null);

/** Whether a job waits for the end of its trial. */
export function isInTrial(job) {
  return job.state === "waiting" && Boolean(job.canary) && !job.canary_passed && job.done >= job.canary;
}

/** Whether nothing can end the trial: the queue is looked at and has no consumer. */
export function isTrialStuck(job, queue) {
  return isInTrial(job) && queue?.consumers === 0;
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
  if (isInTrial(job)) return trialOf(job, queue);
  if (job.state === "waiting") return [sentence(job.why), "The job goes on by itself as soon as it can."];
  if (job.state === "done" && job.kind === "export_dead") return endOfExport(job);
  if (job.state === "done") return job.kind === "replay" ? endOf(job, queue) : ["Done."];
  return SENTENCES[job.state] ? [SENTENCES[job.state], sentence(job.why)].filter(Boolean) : [];
}

function trialOf(job, queue) {
  const tried = counted(job.done, "letter");
  if (!isTrialStuck(job, queue)) {
    return [`${tried} ${job.done === 1 ? "is" : "are"} tried first and not all settled yet. The others go when all of them are settled and none has died again.`];
  }
  return [
    `${targetOf(job)} has no consumer, so the trial cannot end.`,
    `${tried} ${job.done === 1 ? "waits" : "wait"} there until something consumes ${job.done === 1 ? "it" : "them"}.`,
  ];
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
  } else if (waiting !== null && queue.consumers === 0) {
    const wait = `${counted(waiting, "message")} ${waiting === 1 ? "waits" : "wait"} in ${name}, and it has no consumer.`;
    told.push(again > 0 ? wait : `${job.done === 1 ? "It" : "None"} has ${job.done === 1 ? "not " : ""}died again, which says nothing yet: ${wait}`);
  } else if (again === 0) {
    told.push(job.done === 1 ? "It has not died again so far." : "None of them has died again so far.");
  }
  return told;
}
