import assert from "node:assert/strict";
import { test } from "node:test";
import {
  actionsOf,
  canaryFor,
  durationAt,
  fewFirst,
  fraction,
  leftMs,
  levelOf,
  rateOfSlider,
  SLIDER_MAX,
  sliderOfRate,
  targetText,
} from "../../../vibemq/web/console/static/pure/jobs.js";

test("how far a job is counts letters that were skipped and damaged", () => {
  assert.equal(fraction({ state: "running", selected: 100, done: 40, skipped: 8, damaged: 2 }), 0.5);
  assert.equal(fraction({ state: "running", selected: null, done: 4 }), null);
  assert.equal(fraction({ state: "running", selected: 10, done: 12 }), 1);
  assert.equal(fraction({ state: "done", selected: 0, done: 0 }), 1);
});

test("time left comes from the broker, else from the rate, and not at rest", () => {
  const job = { state: "running", selected: 1_000, done: 200, skipped: 0, damaged: 0, rate_now: 100 };
  assert.equal(leftMs(job), 8_000);
  assert.equal(leftMs({ ...job, left_ms: 5 }), 5);
  assert.equal(leftMs({ ...job, state: "paused", left_ms: 5 }), null);
  assert.equal(leftMs({ ...job, rate_now: 0, rate: null }), null);
  assert.equal(durationAt(1_000, 300), 3_334);
  assert.equal(durationAt(1_000, 0), null);
});

test("a slider's place and a rate find each other", () => {
  for (const rate of [1, 2, 5, 10, 50, 200, 1_000, 5_000, 10_000]) {
    const back = rateOfSlider(sliderOfRate(rate));
    assert.ok(Math.abs(back - rate) / rate < 0.06 || Math.abs(back - rate) < 1, `${rate} → ${back}`);
  }
  assert.equal(rateOfSlider(SLIDER_MAX), null);
  assert.equal(sliderOfRate(null), SLIDER_MAX);
  let last = 0;
  for (let place = 0; place < SLIDER_MAX; place += 1) {
    assert.ok(rateOfSlider(place) >= last);
    last = rateOfSlider(place);
  }
});

test("only what a job can do is offered", () => {
  assert.deepEqual(actionsOf({ state: "running" }), ["paused", "cancelled"]);
  assert.deepEqual(actionsOf({ state: "held" }), ["running", "cancelled"]);
  assert.deepEqual(actionsOf({ state: "done" }), []);
});

test("guards and confirmation grow with the number", () => {
  assert.equal(canaryFor(100), null);
  assert.equal(canaryFor(101), 10);
  assert.deepEqual([1, 2, 10, 20, 21, 5_000].map(fewFirst), [1, 1, 5, 10, 10, 10]);
  assert.equal(levelOf("replay", 10_000), 1);
  assert.equal(levelOf("replay", 10_001), 2);
  assert.equal(levelOf("purge_dead", 2), 2);
  assert.equal(levelOf("purge_dead", 1), 1);
});

test("where letters go, in words", () => {
  assert.equal(targetText([{ queue: "a" }], null), "a");
  assert.equal(targetText([{ queue: "a" }, { queue: "b" }], null), "the 2 queues they died in");
  assert.equal(targetText([{ queue: "a" }], "repair"), "repair");
});
