// The body of a letter in the form that the viewer takes.

const OWN_HEADERS = new Set(["vibemq-replay-of", "vibemq-replay-count", "vibemq-edited", "vibemq-dedup-id"]);

/** `payload` of a letter is text, `payload_base64` bytes that are no text; a very large one has its size alone. */
export function messageOf(letter) {
  if (typeof letter.payload_base64 === "string") return { payload: letter.payload_base64, size_bytes: letter.size_bytes };
  if (typeof letter.payload === "string") return { text: letter.payload, size_bytes: letter.size_bytes };
  if (typeof letter.text === "string") return { text: letter.text, size_bytes: letter.size_bytes };
  return { text: "", size_bytes: letter.payload_size ?? letter.size_bytes, truncated: true };
}

/** Headers that the producer has set; the broker's own change with every replay. */
export function producerHeaders(headers) {
  return Object.fromEntries(Object.entries(headers ?? {}).filter(([name]) => !OWN_HEADERS.has(name)));
}

/** The letter that this message was before it was replayed, as its headers say; null for a first life. */
export function earlierLife(headers) {
  const id = headers?.["vibemq-replay-of"];
  return /^\d{1,18}$/.test(id ?? "") ? id : null;
}
