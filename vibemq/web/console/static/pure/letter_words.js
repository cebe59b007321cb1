// Attempts of a dead letter, and what to know before a replay, in words.
import { count, counted } from "./format.js";

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

/** @param {{replayed_before?: number, replayed_before_of?: number, targets?: {queue: string, count: number, state: string}[]}} preview */
export function previewSentences(preview) {
  const told = [];
  const { replayed_before: again, replayed_before_of: read, targets = [] } = preview;
  if (again > 0) told.push(`${count(again)} of ${counted(read ?? preview.count, "letter")} ${again === 1 ? "has" : "have"} been replayed before, and died again.`);
  for (const { queue, count: letters, state } of targets) if (STATES[state]) told.push(STATES[state](queue, letters));
  return told;
}
