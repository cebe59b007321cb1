// Text from outside, so that nothing in it can hide or reorder what stands beside it: control characters and those that
// change the direction of writing become visible symbols, and so do fillers, tags and selectors, which nobody sees.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]|\p{Default_Ignorable_Code_Point}|\u2800/u;
const PART_OF_WRITING = new Set([0x200c, 0x200d, 0xfe0e, 0xfe0f]);
const NAMED = { 0x7f: "\u2421", 0x00ad: "[SHY]", 0xfeff: "[BOM]", 0x200b: "[ZWSP]", 0x200e: "[LRM]", 0x200f: "[RLM]" };

/** The symbol of a character that would not be seen as itself; null for all others. */
export function symbolOf(character, { lines = false } = {}) {
  const code = character.codePointAt(0);
  if (code === 0x0a || code === 0x09) return lines ? null : String.fromCodePoint(0x2400 + code);
  if ((code >= 0x20 && code < 0x7f) || !HIDDEN.test(character)) return null;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  // Joiners, and what chooses the form of an emoji, are part of the writing, and change the order of nothing.
  if (PART_OF_WRITING.has(code)) return null;
  return NAMED[code] ?? `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
}

/** Pieces [text, isSymbol], in order; `lines`: line ends and tabs stay. */
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

export const visible = (text, options = {}) =>
  pieces(text, options)
    .map(([piece]) => piece)
    .join("");
