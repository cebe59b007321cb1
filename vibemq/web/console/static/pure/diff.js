// A message and its edited form, line by line.

const LINES_MAX = 2_000;
/** Beyond this the middle is shown as one change: the table of the comparison would have millions of cells. */

/** @typedef {{kind: "same" | "removed" | "added", text: string, before?: number, after?: number}} DiffLine */

export function diffLines(before, after) {
  const old = before.split("\n");
  const now = after.split("\n");
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < now.length - start && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  const lines = [];
  for (let i = 0; i < start; i += 1) lines.push(same(old[i], i, i));
  for (const line of middle(old.slice(start, old.length - end), now.slice(start, now.length - end), start)) lines.push(line);
  for (let i = end; i > 0; i -= 1) lines.push(same(old.at(-i), old.length - i, now.length - i));
  return lines;
}

function same(text, before, after) {
  return { kind: "same", text, before: before + 1, after: after + 1 };
}

function middle(old, now, start) {
  const removed = (i) => ({ kind: "removed", text: old[i], before: start + i + 1 });
  const added = (j) => ({ kind: "added", text: now[j], after: start + j + 1 });
  if (old.length * now.length > LINES_MAX * LINES_MAX) {
    return [...old.map((_, i) => removed(i)), ...now.map((_, j) => added(j))];
  }
  const longest = table(old, now);
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      lines.push(same(old[i], start + i, start + j));
      i += 1;
      j += 1;
    } else if (j >= now.length || (i < old.length && longest[i + 1][j] >= longest[i][j + 1])) {
      lines.push(removed(i));
      i += 1;
    } else {
      lines.push(added(j));
      j += 1;
    }
  }
  return lines;
}

/** Length of the longest common part of what is left from each pair of lines on. */
function table(old, now) {
  const rows = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      rows[i][j] = old[i] === now[j] ? rows[i + 1][j + 1] + 1 : Math.max(rows[i + 1][j], rows[i][j + 1]);
    }
  }
  return rows;
}

/** More lines of one kind, one below the other, are shown by their ends. */
const CHANGED_MAX = 500;
const ENDS = 100;

/** Unchanged stretches folded to `context` lines around each change, and long changes to their ends: {kind: "fold", of, count}. */
export function folded(lines, context = 3) {
  const near = lines.map(() => false);
  lines.forEach((line, at) => {
    if (line.kind === "same") return;
    for (let i = Math.max(0, at - context); i <= Math.min(lines.length - 1, at + context); i += 1) near[i] = true;
  });
  const shown = [];
  lines.forEach((line, at) => {
    if (near[at]) shown.push(line);
    else if (shown.at(-1)?.kind === "fold") shown.at(-1).count += 1;
    else shown.push({ kind: "fold", of: "same", text: "", count: 1 });
  });
  return runsOf(shown).flatMap(shortened);
}

/** Stretches of lines of one kind. */
function runsOf(lines) {
  const runs = [];
  for (const line of lines) {
    if (runs.at(-1)?.[0].kind === line.kind) runs.at(-1).push(line);
    else runs.push([line]);
  }
  return runs;
}

function shortened(run) {
  if (run.length <= CHANGED_MAX) return run;
  return [...run.slice(0, ENDS), { kind: "fold", of: run[0].kind, text: "", count: run.length - 2 * ENDS }, ...run.slice(-ENDS)];
}

/** Headers that were taken out, came in, or changed. */
export function diffHeaders(before, after) {
  // A header may be called "constructor".
  const given = (headers, name) => (Object.hasOwn(headers, name) ? headers[name] : null);
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  return names
    .map((name) => ({ name, before: given(before, name), after: given(after, name) }))
    .filter((pair) => pair.before !== pair.after);
}
