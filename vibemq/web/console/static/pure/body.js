// Bytes of messages: base64, hexadecimal lines, and what they seem to be.

export function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

export function toBase64(bytes) {
  let binary = "";
  for (let at = 0; at < bytes.length; at += 8192) binary += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(binary);
}

/** The text of valid UTF-8, without a change of any byte; null for what is not valid. */
export function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** Whether the API keeps what is in this message, or letter, from who asks: it then says null, which is neither an empty body nor no error. */
export const isHidden = ({ payload, payload_base64, error }) => [payload, payload_base64, error].includes(null);

/** Whether all of a body is there, as text and as it is stored: neither cut, opened from gzip or brotli, nor hidden. */
export const isStoredText = ({ payload, truncated, decoded_size }) => typeof payload === "string" && !truncated && decoded_size === undefined;

export function hexLines(bytes, { from = 0 } = {}) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0"));
    const halves = `${hex.slice(0, 8).join(" ")}  ${hex.slice(8).join(" ")}`.padEnd(48);
    const ascii = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${(from + at).toString(16).padStart(8, "0")}  ${halves}  ${ascii}`);
  }
  return lines;
}

/** @type {[string, number[]][]} */
const MAGIC = [
  ["gzip", [0x1f, 0x8b]],
  ["zstd", [0x28, 0xb5, 0x2f, 0xfd]],
  ["PNG image", [0x89, 0x50, 0x4e, 0x47]],
  ["JPEG image", [0xff, 0xd8, 0xff]],
  ["PDF", [0x25, 0x50, 0x44, 0x46]],
  ["ZIP", [0x50, 0x4b, 0x03, 0x04]],
  ["Parquet", [0x50, 0x41, 0x52, 0x31]],
  ["Avro file", [0x4f, 0x62, 0x6a, 0x01]],
  ["Arrow file", [0x41, 0x52, 0x52, 0x4f, 0x57, 0x31]],
];

/** In a word. */
export function kindOf(bytes) {
  if (bytes.length === 0) return "empty";
  for (const [name, magic] of MAGIC) {
    if (magic.every((byte, at) => bytes[at] === byte)) return name;
  }
  const text = textOf(bytes);
  if (text === null) return "binary";
  const first = text.trimStart()[0];
  if (first === "{" || first === "[") return "JSON";
  return "text";
}

// JSON is laid out as tokens, of which none changes: 9007199254740993 stays what it is, and so do repeated keys.

const TOKEN = /[ \n\r\t]+|"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:]/y;
const KINDS = { '"': "text", "-": "number", t: "word", f: "word", n: "word" };
const UNFINISHED = /^("|([-.]|[eE][-+]?|tr?u?|fa?l?s?|nu?l?)$)/;
const DEPTH_MAX = 200;
/** Characters of a step: some milliseconds. */
export const STEP_CHARACTERS = 65536;

/** Tokens [kind, text] of a JSON text; null if it is none. Kinds: text, number, word, and the character of a mark.
 * `isCut`: it may end anywhere; what is left of its last token is of kind "rest". */
export function tokens(source, isCut = false) {
  const steps = tokenSteps(source, isCut);
  let step;
  do step = steps.next();
  while (!step.done);
  return step.value;
}

/** The same in steps. */
export function* tokenSteps(source, isCut = false) {
  const found = [];
  let stepEnds = STEP_CHARACTERS;
  for (let at = 0; at < source.length; ) {
    if (at > stepEnds) {
      yield;
      stepEnds = at + STEP_CHARACTERS;
    }
    TOKEN.lastIndex = at;
    const match = TOKEN.exec(source);
    if (match === null) {
      if (!isCut || !UNFINISHED.test(source.slice(at))) return null;
      found.push(["rest", source.slice(at)]);
      break;
    }
    const text = match[0];
    at += text.length;
    const first = text[0];
    if (first > " ") found.push([KINDS[first] ?? (first >= "0" && first <= "9" ? "number" : text), text]);
  }
  return isValue(found, isCut) ? found : null;
}

/** Why a text is no JSON and where, in a sentence; "" if it is JSON. */
export function jsonProblem(source) {
  if (tokens(source) !== null) return "";
  try {
    JSON.parse(source);
  } catch (error) {
    return `${error.message.replace(/[.\s]+$/, "")}.`;
  }
  return "It is nested too deep to be laid out.";
}

/** Whether the tokens are one value of JSON. Without recursion: a text may nest 100,000 deep. */
function isValue(found, isCut) {
  const open = [];
  let wanted = "value";
  const behind = () => (open.length ? `, ${open.at(-1)}` : "end");
  for (const [kind] of found) {
    if (kind === "rest") return true;
    if (kind === "text" && wanted.includes("key")) wanted = ":";
    else if (wanted.includes("value") && "text number word".includes(kind)) wanted = behind();
    else if (wanted.includes("value") && "{[".includes(kind)) {
      open.push(kind === "{" ? "}" : "]");
      wanted = kind === "{" ? "key }" : "value ]";
    } else if (!wanted.includes(kind)) return false;
    else if (kind === ",") wanted = open.at(-1) === "}" ? "key" : "value";
    else if (kind === ":") wanted = "value";
    else {
      open.pop();
      wanted = behind();
    }
  }
  return isCut || wanted === "end";
}

const PIECE_COST = 30;

/** Slices of about `most` characters: {pieces, isWhole}. A whole one has whole lines, without the line end behind it; the
 * others belong to a line that is too long. */
export function* slices(pieces, most = 16384) {
  let now = [];
  let room = most;
  let isAtStart = true;
  for (const [kind, whole] of pieces) {
    let text = whole;
    while (text.length + PIECE_COST > room) {
      const before = text.lastIndexOf("\n", Math.max(0, room));
      const line = before >= 0 ? before : text.indexOf("\n");
      const isFar = (line < 0 ? text.length : line) > room + most;
      if (line < 0 && !isFar) break;
      let to = isFar ? most : line;
      if (isFar && (text.charCodeAt(to - 1) & 0xfc00) === 0xd800) to += 1;
      now.push([kind, text.slice(0, isFar || isAtStart ? to : to + 1)]);
      text = text.slice(isFar ? to : to + 1);
      yield { pieces: now, isWhole: isAtStart && !isFar };
      [now, room, isAtStart] = [[], most, !isFar];
    }
    now.push([kind, text]);
    room -= text.length + PIECE_COST;
  }
  yield { pieces: now, isWhole: isAtStart };
}

/** Pieces [kind, text] to show one behind the other; kinds: key, text, number, word, or "" for marks and white space. */
export function layout(source, isCut = false) {
  const found = tokens(source, isCut);
  return found === null ? null : [...laid(found)];
}

/** The same of tokens, piece by piece. */
export function* laid(found) {
  let depth = 0;
  const line = () => `\n${"  ".repeat(Math.min(depth, DEPTH_MAX))}`;
  for (let at = 0; at < found.length; at += 1) {
    const [kind, text] = found[at];
    const next = found[at + 1]?.[0];
    if (kind === "{" || kind === "[") {
      const isEmpty = next === "}" || next === "]";
      if (!isEmpty) depth += 1;
      yield ["", text + (isEmpty ? "" : line())];
    } else if (kind === "}" || kind === "]") {
      const before = found[at - 1][0];
      if (before === "{" || before === "[") yield ["", text];
      else {
        depth -= 1;
        yield ["", line() + text];
      }
    } else if (kind === ",") yield ["", text + line()];
    else if (kind === ":") yield ["", ": "];
    else yield [kind === "text" && next === ":" ? "key" : kind, text];
  }
}

export const laidOut = (source) => layout(source)?.map(([, text]) => text).join("") ?? null;
