// What the one stream of the browser is asked for.

export const TOPICS_MAX = 32;
/** Of the query; names of queues may have 256 characters of nine bytes each. */
export const QUERY_BYTES_MAX = 6000;

/** Of the topics of all tabs as many as one stream takes: the first of each tab, then the second of each. */
export function chooseTopics(tabs) {
  const chosen = new Set();
  let bytes = 0;
  const longest = Math.max(0, ...tabs.map((topics) => topics.length));
  for (let place = 0; place < longest; place++) {
    for (const topics of tabs) {
      if (place >= topics.length || chosen.has(topics[place])) continue;
      const more = "&topic=".length + encodeURIComponent(topics[place]).length;
      if (chosen.size === TOPICS_MAX || bytes + more > QUERY_BYTES_MAX) continue;
      chosen.add(topics[place]);
      bytes += more;
    }
  }
  return [...chosen].sort();
}

const areEqual = (one, other) => Object.keys(one).length === Object.keys(other).length && Object.keys(one).every((name) => one[name] === other[name]);

/** A description of a queue with the figures of a frame, which is as the engine has it: its options are not those of the API, and not of
 * the ETag that one has. Undefined when they have changed, or the queue was made anew. */
export function queueMoved({ options, name, size, ...figures }, before) {
  const told = { ...options, incarnation: figures.incarnation };
  if (before.told !== undefined && !areEqual(before.told, told)) return undefined;
  return { ...before, ...figures, bytes: size, told };
}
