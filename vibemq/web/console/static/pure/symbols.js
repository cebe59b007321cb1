// Text from outside, so that nothing in it can hide or reorder what stands beside it: what is not seen as itself becomes a
// visible symbol. That is by Unicode's categories, so that what a later version of it adds is among them: controls, formats
// (also those that change the direction of writing), halves of pairs, private and unassigned characters, separators, spaces
// that are none of the keyboard; and by the property of fillers, tags and selectors, which are letters and marks.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Zs}]|\p{Default_Ignorable_Code_Point}|\u2800/u;
const SPACE = /\p{Zs}/u;
const PART_OF_WRITING = new Set([0x200c, 0x200d, 0xfe0e, 0xfe0f]);
const NAMED = { 0x7f: "\u2421", 0xa0: "[NBSP]", 0x00ad: "[SHY]", 0xfeff: "[BOM]", 0x200b: "[ZWSP]", 0x200c: "[ZWNJ]", 0x200d: "[ZWJ]", 0x200e: "[LRM]", 0x200f: "[RLM]" };

/** The symbol of a character that would not be seen as itself; null for all others. `lines`: line ends and tabs are seen as such.
 * `isName`: no character may make one name look like another. */
export function symbolOf(character, { lines = false, isName = false } = {}) {
  const code = character.codePointAt(0);
  if (code === 0x0a || code === 0x09) return lines ? null : String.fromCodePoint(0x2400 + code);
  if ((code >= 0x20 && code < 0x7f) || !HIDDEN.test(character)) return null;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  // Joiners, what chooses the form of an emoji, and the spaces of other scripts are part of the writing of a text.
  if (!isName && (PART_OF_WRITING.has(code) || SPACE.test(character))) return null;
  return NAMED[code] ?? `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
}

/** Pieces [text, isSymbol], in order; the options are those of `symbolOf`. */
export function pieces(text, options = {}) {
  const made = [];
  let plain = "";
  for (const character of text) {
    const symbol = symbolOf(character, options);
    if (symbol === null) {
      plain += character;
      continue;
    }
    if (plain) made.push([plain, false]);
    plain = "";
    made.push([symbol, true]);
  }
  if (plain) made.push([plain, false]);
  return made;
}

/** A sentence in pieces: [["run ", false], ["vibemq-admin check", true], …]; true: code, which stood between backticks. One that has no
 * partner is a character as any other. */
export function codePieces(text) {
  return text
    .split(/`([^`]+)`/)
    .map((part, at) => /** @type {[string, boolean]} */ ([part, at % 2 === 1]))
    .filter(([part]) => part);
}

export const visible = (text, options = {}) =>
  pieces(text, options)
    .map(([piece]) => piece)
    .join("");
