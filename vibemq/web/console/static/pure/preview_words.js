// What somebody should know before a replay, in sentences.
import { count, counted } from "./format.js";

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
