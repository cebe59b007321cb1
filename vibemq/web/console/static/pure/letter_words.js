// What is known of the attempts of a dead letter, in words.
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
