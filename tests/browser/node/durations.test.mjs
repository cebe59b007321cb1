import assert from "node:assert/strict";
import { test } from "node:test";
import { clockAhead, durationArgument, parseDuration } from "../../../vibemq/web/console/static/pure/format.js";

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

test("what is above 0 is at least a millisecond, because 0 is often no limit", () => {
  assert.deepEqual(["0.4ms", "0.0001s", "0ms", "0", "2.4ms"].map(parseDuration), [1, 1, 0, 0, 2]);
});

test("a clock that is ahead or behind is found from the date of an answer", () => {
  const date = "Sat, 28 Nov 2026 10:00:00 GMT";
  const at = Date.parse(date);
  assert.equal(clockAhead(date, at, at + 900), 0);
  assert.equal(clockAhead(date, at - 3_000, at + 1_000), 0);
  assert.equal(clockAhead(date, at + 3_600_400, at + 3_600_600), 3_600_000);
  assert.equal(clockAhead(date, at - 86_399_600, at - 86_399_400), -86_400_000);
  assert.deepEqual([0, 5_000].map((before) => clockAhead(date, at + 4_500, at + 4_500, before)), [0, 4_000]);
  assert.equal(clockAhead(date, at + 2_000, at + 2_000, 5_000), 0);
  // A machine that slept in between, a clock that was set, and a proxy that leaves the date out, tell nothing.
  assert.equal(clockAhead(date, at, at + 3_600_000), null);
  assert.equal(clockAhead(date, at + 500, at), null);
  for (const none of [null, "", "soon"]) assert.equal(clockAhead(none, at, at), null);
});
