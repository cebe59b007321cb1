// Text from outside, so that nothing in it can hide or reorder what stands beside it: control characters and those that
// change the direction of writing become visible symbols.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]/;
const NAMED = { 0x7f: "\u2421", 0x00ad: "[SHY]", 0xfeff: "[BOM]", 0x200b: "[ZWSP]", 0x200e: "[LRM]", 0x200f: "[RLM]" };

/** The symbol of a character that would not be seen as itself; null for all others. */
export function symbolOf(character, { lines = false } = {}) {
  const code = character.codePointAt(0);
  if (code === 0x0a || code === 0x09) return lines ? null : String.fromCodePoint(0x2400 + code);
  if (!HIDDEN.test(character) || code > 0xffff) return null;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  // Joiners are part of the writing of several languages, and change the order of nothing.
  if (code === 0x200c || code === 0x200d) return null;
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
