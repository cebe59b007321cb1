import assert from "node:assert/strict";
import { test } from "node:test";
import { durationArgument, durationOf, durationText } from "../../../vibemq/web/console/static/pure/durations.js";

test("the command line's form is exact and reads back", () => {
  for (const ms of [0, 1, 999, 1_000, 61_001, 5_400_000, 86_400_000, 90_061_001, 8_640_000_000]) {
    assert.equal(durationOf(durationArgument(ms)), ms);
  }
  assert.equal(durationArgument(5_400_000), "1h30m");
});

test("people write durations in many ways", () => {
  assert.equal(durationOf("90 min"), 5_400_000);
  assert.equal(durationOf("15min"), 900_000);
  assert.equal(durationOf("2 days"), 172_800_000);
  assert.equal(durationOf("1.5h"), 5_400_000);
  for (const text of ["", "15", "soon", "-1h", "1h x", "1e3s"]) assert.equal(durationOf(text), null, text);
});

test("people read two units at most", () => {
  const texts = [[0, "0 s"], [250, "250 ms"], [1_500, "1.5 s"], [59_000, "59 s"], [90_000, "1 min 30 s"],
    [3_599_900, "1 h"], [5_400_000, "1 h 30 min"], [90_061_000, "1 d 1 h"], [null, "–"]];
  for (const [ms, text] of texts) assert.equal(durationText(ms), text, String(ms));
});
