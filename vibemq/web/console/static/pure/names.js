// The rule for names of queues, as the broker has it (`check_queue_name`).
import { visible } from "./symbols.js";

const NAME_UNITS_MAX = 256;
const ALLOWED = /^[\p{L}\p{Nd}._-]$/u;

export const NAME_RULE = "1 to 256 letters and digits of any script, hyphens, underscores and dots.";

/** What is wrong with a name; "" when nothing is. An empty one is not wrong yet. */
export function nameProblem(name) {
  const strange = [...name].find((character) => !ALLOWED.test(character) || character.length > 1);
  if (strange === " ") return "A name has no spaces. Hyphens, underscores and dots are allowed.";
  if (strange !== undefined) return `The character ${visible(strange, { isName: true })} is not allowed. Letters, digits, hyphens, underscores and dots are.`;
  return name.length > NAME_UNITS_MAX ? `The name is too long: ${name.length} of at most ${NAME_UNITS_MAX} characters.` : "";
}

/** Whether what was typed is the name that was asked for, which may begin and end with spaces of its own. */
export const isTyped = (typed, wanted) => typed === wanted || typed.trim() === wanted;

const escaped = (name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** A text in pieces: [["each of ", false], ["orders.eu", true], …]; true: one of these names, and not a part of another. */
export function namedPieces(text, names) {
  if (names.length === 0) return [[text, false]];
  const any = [...names].sort((a, b) => b.length - a.length).map(escaped).join("|");
  const parts = text.split(new RegExp(`(?<![\\p{L}\\p{Nd}._-])(${any})(?![\\p{L}\\p{Nd}_-]|\\.[\\p{L}\\p{Nd}_-])`, "u"));
  return parts.map((part, at) => [part, at % 2 === 1]).filter(([part]) => part);
}

/** The page that was wanted: one of our own, with its parameters, whatever the address says; else the front page. */
export function placeAfterLogin(then) {
  return /^[a-z-]*(\?[^#]*)?$/.test(then ?? "") && !/^login/.test(then ?? "") ? `./${then ?? ""}` : "./";
}
