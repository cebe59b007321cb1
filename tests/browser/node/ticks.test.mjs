import assert from "node:assert/strict";
import { test } from "node:test";
import { toggled, withAll } from "../../../vibemq/web/console/static/pure/ticks.js";

test("all rows of a page are ticked and unticked beside those of other pages", () => {
  const before = new Set([1, 2]);
  const ticked = withAll(before, [2, 3, 4], true);
  assert.deepEqual([...ticked], [1, 2, 3, 4]);
  assert.deepEqual([...withAll(ticked, [2, 3, 4], false)], [1]);
  assert.deepEqual([...before], [1, 2]);
});

test("one row is ticked and unticked", () => {
  assert.deepEqual([...toggled(new Set(["a"]), "b")], ["a", "b"]);
  assert.deepEqual([...toggled(new Set(["a", "b"]), "a")], ["b"]);
});
