// Groups of dead letters as a tree: queue, then reason, then kind of error.

/** @typedef {{queue: string, reason: string, fingerprint: string, count: number, first_at: string, last_at: string,
 *   first_id: number, last_id: number, sample: string}} Group */

const ORDERS = {
  count: (a, b) => b.count - a.count || later(a, b),
  latest: (a, b) => later(a, b) || b.count - a.count,
  queue: (a, b) => a.key.localeCompare(b.key) || b.count - a.count,
};

/** The groups, with all of one queue in place of those that the first page has of it. */
export function withGroupsOf(queue, groups, own) {
  return own ? [...groups.filter((group) => group.queue !== queue), ...own] : groups;
}

function later(a, b) {
  return msOf(b.last_at) - msOf(a.last_at);
}

function msOf(value) {
  return typeof value === "number" ? value : Date.parse(value);
}

/** @param {Group[]} groups @param {"count" | "latest" | "queue"} order */
export function treeOf(groups, order = "count") {
  const compare = ORDERS[order] ?? ORDERS.count;
  const queues = branches(groups, (group) => group.queue).map((queue) => ({
    ...queue,
    reasons: branches(queue.groups, (group) => group.reason)
      .map((reason) => ({
        ...reason,
        groups: reason.groups.map((group) => ({ ...group, key: group.fingerprint })).sort(compare),
      }))
      .sort(compare),
  }));
  return queues.sort(compare);
}

/** Split by a key, with the sum, the first and the last of each part. */
function branches(groups, keyOf) {
  const parts = new Map();
  for (const group of groups) {
    const key = keyOf(group);
    const part = parts.get(key);
    if (!part) {
      parts.set(key, { key, count: group.count, first_at: group.first_at, last_at: group.last_at, groups: [group] });
      continue;
    }
    part.count += group.count;
    if (msOf(group.first_at) < msOf(part.first_at)) part.first_at = group.first_at;
    if (msOf(group.last_at) > msOf(part.last_at)) part.last_at = group.last_at;
    part.groups.push(group);
  }
  return [...parts.values()];
}

/** Whether a filter chooses this place of the tree. A kind of error is chosen also without its reason or its queue. */
export function isChosenGroup(filter, wanted) {
  const names = ["queue", "reason", "fingerprint"];
  if (wanted.fingerprint && filter.fingerprint) return names.every((name) => filter[name] === undefined || filter[name] === wanted[name]);
  return names.every((name) => (filter[name] ?? null) === (wanted[name] ?? null));
}

export function sumOf(groups) {
  const last = groups.reduce((best, group) => (best && later(best, group) <= 0 ? best : group), null);
  return {
    count: groups.reduce((sum, group) => sum + group.count, 0),
    queues: new Set(groups.map((group) => group.queue)).size,
    kinds: new Set(groups.map((group) => `${group.reason} ${group.fingerprint}`)).size,
    last_at: last?.last_at ?? null,
  };
}
