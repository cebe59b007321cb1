// What a letter says of its message: the body, the headers of its producer, its earlier life.

const OWN_HEADERS = new Set(["vibemq-replay-of", "vibemq-replay-count", "vibemq-edited", "vibemq-dedup-id"]);

/** A body that fits into no answer is not there, only its size. */
export const hasBody = (letter) => typeof letter.payload === "string" || typeof letter.payload_base64 === "string";

/** Headers that the producer has set; the broker's own change with every replay. */
export function producerHeaders(headers) {
  return Object.fromEntries(Object.entries(headers ?? {}).filter(([name]) => !OWN_HEADERS.has(name)));
}

/** The letter that this message was before it was replayed, as its headers say; null for a first life. */
export function earlierLife(headers) {
  const id = headers?.["vibemq-replay-of"];
  return /^\d{1,18}$/.test(id ?? "") ? id : null;
}
