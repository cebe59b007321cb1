import assert from "node:assert/strict";
import { test } from "node:test";
import { durationArgument, parseDuration } from "../../../vibemq/web/console/static/pure/format.js";

test("the command line's form is exact and reads back", () => {
  for (const ms of [0, 1, 999, 1_000, 61_001, 5_400_000, 86_400_000, 90_061_001, 8_640_000_000]) {
    assert.equal(parseDuration(durationArgument(ms)), ms);
  }
  assert.equal(durationArgument(5_400_000), "1h30m");
});

test("durations have units, may be sums, and a plain number is milliseconds", () => {
  assert.equal(parseDuration("90 min"), 5_400_000);
  assert.equal(parseDuration("1h 30m"), 5_400_000);
  assert.equal(parseDuration("1.5h"), 5_400_000);
  assert.equal(parseDuration("250"), 250);
  for (const text of ["", "soon", "-1h", "1h x", "1e3s"]) assert.equal(parseDuration(text), null, text);
});
