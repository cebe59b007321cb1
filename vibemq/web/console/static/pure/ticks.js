// Sets of keys: the rows that are ticked, the columns that are hidden.

export function toggled(ticked, key) {
  const made = new Set(ticked);
  if (!made.delete(key)) made.add(key);
  return made;
}

/** With all of these keys, or without them; those of other pages stay. */
export function withAll(ticked, keys, isTicked) {
  return isTicked ? new Set([...ticked, ...keys]) : new Set([...ticked].filter((key) => !keys.includes(key)));
}
