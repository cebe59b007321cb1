import assert from "node:assert/strict";
import { test } from "node:test";
import { paceOf, withLook } from "../../../vibemq/web/console/static/pure/pace.js";

const look = (seconds, committed, backlog) => ({ at: seconds * 1000, committed, backlog });
const paceAfter = (...looks) => paceOf(looks.reduce(withLook, []));

test("a reader that comes nearer says when it is at the end", () => {
  assert.equal(paceAfter(look(0, 100, 1_000)), null);
  assert.deepEqual(paceAfter(look(0, 100, 1_000), look(10, 400, 800)), { rate: 30, left_ms: 40_000 });
  assert.deepEqual(paceAfter(look(0, 100, 50), look(10, 150, 0)), { rate: 5, left_ms: 0 });
});

test("one that falls behind or stands still does not", () => {
  assert.deepEqual(paceAfter(look(0, 100, 10), look(10, 200, 500)), { rate: 10, left_ms: null });
  assert.deepEqual(paceAfter(look(0, 100, 10), look(10, 100, 10)), { rate: 0, left_ms: null });
});

test("what is long ago does not count, nor what was before a seek", () => {
  assert.deepEqual(paceAfter(look(0, 0, 900), look(100, 0, 900), look(200, 500, 400)), { rate: 5, left_ms: 80_000 });
  assert.equal(paceAfter(look(0, 900, 0), look(10, 0, 900)), null);
  assert.equal(withLook([look(1, 2, 3)], look(1, 2, 3)).length, 1);
});
