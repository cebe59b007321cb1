// How fast a reader goes, from looks at it one after the other.

const WINDOW_MS = 120_000;

/** The looks {at, committed, backlog} with one more, without those that are too old. A seek begins anew. */
export function withLook(looks, look) {
  const last = looks.at(-1);
  if (last?.at === look.at) return looks;
  if (last && look.committed < last.committed) return [look];
  return [...looks.filter(({ at }) => look.at - at <= WINDOW_MS), look];
}

/** {rate: messages that it acknowledges in a second, left_ms: in how long it is at the end}; null before the second look.
 * `left_ms` null: it does not come nearer. */
export function paceOf(looks) {
  const [first, last] = [looks[0], looks.at(-1)];
  const seconds = looks.length > 1 ? (last.at - first.at) / 1000 : 0;
  if (seconds <= 0) return null;
  const nearer = (first.backlog - last.backlog) / seconds;
  return { rate: (last.committed - first.committed) / seconds, left_ms: nearer > 0 ? Math.round((last.backlog / nearer) * 1000) : null };
}
