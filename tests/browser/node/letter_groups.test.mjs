import assert from "node:assert/strict";
import { test } from "node:test";
import { sumOf, treeOf, withGroupsOf } from "../../../vibemq/web/console/static/pure/letter_groups.js";

const at = (minute) => `2026-11-22T10:${String(minute).padStart(2, "0")}:00.000Z`;
const group = (queue, reason, fingerprint, count, first, last) => ({
  queue,
  reason,
  fingerprint,
  count,
  first_id: first,
  last_id: last,
  first_at: at(first),
  last_at: at(last),
  sample: "",
});
const GROUPS = [
  group("a", "rejected", "1", 5, 10, 20),
  group("b", "expired", "2", 50, 1, 9),
  group("a", "max_attempts", "3", 7, 3, 30),
  group("a", "rejected", "4", 6, 12, 25),
];

test("sums, firsts and lasts go up the tree", () => {
  const [b, a] = treeOf(GROUPS, "count");
  assert.deepEqual([b.key, b.count, a.key, a.count], ["b", 50, "a", 18]);
  assert.equal(a.first_at, at(3));
  assert.equal(a.last_at, at(30));
  assert.deepEqual(a.reasons.map((reason) => [reason.key, reason.count]), [["rejected", 11], ["max_attempts", 7]]);
  assert.deepEqual(a.reasons[0].groups.map((one) => one.fingerprint), ["4", "1"]);
});

test("the latest first", () => {
  assert.deepEqual(treeOf(GROUPS, "latest").map((queue) => queue.key), ["a", "b"]);
  assert.deepEqual(treeOf(GROUPS, "queue").map((queue) => queue.key), ["a", "b"]);
});

test("the whole in one line", () => {
  assert.deepEqual(sumOf(GROUPS), { count: 68, queues: 2, kinds: 4, last_at: at(30) });
  assert.deepEqual(sumOf([]), { count: 0, queues: 0, kinds: 0, last_at: null });
});

test("all groups of one queue take the place of some", () => {
  const own = [group("a", "rejected", "1", 5, 10, 20), group("a", "rejected", "9", 1, 40, 40)];
  assert.deepEqual(withGroupsOf("a", GROUPS, own).map((one) => [one.queue, one.fingerprint]), [["b", "2"], ["a", "1"], ["a", "9"]]);
  assert.equal(withGroupsOf("a", GROUPS, undefined), GROUPS);
});
