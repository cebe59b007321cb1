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

/** Lines of 16 bytes: offset, hexadecimal, ASCII. */
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

/** In words: by the first bytes, then by whether it is text, then by whether the text looks like JSON. */
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
