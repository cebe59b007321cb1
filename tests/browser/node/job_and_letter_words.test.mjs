import assert from "node:assert/strict";
import { test } from "node:test";

const pure = new URL("../../../vibemq/web/console/static/pure/", import.meta.url);
const { isElsewhere, wholeCanary } = await import(new URL("jobs.js", pure));
const { holdsBack, isCanaryStuck, mayHaveLeft, restOf, sentence, toldOf } = await import(new URL("../pages/jobs/told.js", pure));
const { jsonProblem } = await import(new URL("body.js", pure));
const { isChosenGroup } = await import(new URL("letter_groups.js", pure));
const { attemptsSentence, attemptsText } = await import(new URL("letters.js", pure));
const { previewSentences } = await import(new URL("letters.js", pure));

const JOB = { job: "7", kind: "replay", state: "done", filter: { queue: "orders.eu" }, to: null, selected: 5, done: 5, skipped: 0, damaged: 0, dead_again: 0, limit: 5, why: "its limit is reached" };
const UNREAD = { consumers: 0, ready: 5, in_flight: 0, delayed: 0 };
const CANARY = { ...JOB, state: "waiting", limit: null, selected: 6_800, canary: 10, canary_passed: false, done: 10, why: "not all 10 letters of its canary are settled yet" };
const READ = { ...UNREAD, consumers: 1 };

test("a canary that nothing can settle is told from one that goes on", () => {
  assert.deepEqual(toldOf(CANARY, UNREAD)[0], "orders.eu has no consumer, so the canary cannot pass.");
  assert.ok(isCanaryStuck(CANARY, UNREAD));
  assert.equal(restOf(CANARY), 6_790);
  assert.ok(!isCanaryStuck(CANARY, READ));
  assert.equal(toldOf(CANARY, READ).join(" "), "10 letters are the canary, and not all of them are settled yet. The other 6,790 go when all of them are settled and none has died again.");
  assert.equal(toldOf({ ...CANARY, canary: 1, done: 1, selected: 2 }, READ).join(" "), "1 letter is the canary, and not settled yet. The other one goes when it is settled and has not died again.");
  assert.ok(!isCanaryStuck({ ...CANARY, canary_passed: true }, UNREAD));
});

test("where the canary is all there is, no others are held back, and none are told of", () => {
  const whole = { ...CANARY, selected: 10 };
  assert.ok(holdsBack(CANARY) && !holdsBack(whole));
  assert.ok(holdsBack({ ...whole, selected: null }), "nobody has counted them yet");
  assert.equal(toldOf(whole, READ).join(" "), "The canary is all there is: 10 letters were replayed, and no others are held back. The job ends when all of them are settled.");
  assert.equal(toldOf(whole, UNREAD)[0], "orders.eu has no consumer, so the canary cannot pass.");
});

test("a job whose canary was let go by hand waits for what the broker says", () => {
  const waived = { ...CANARY, canary_waived: true, done: 1_005, max_ready: 100, why: "queue 'orders.eu' has 120 messages ready, more than 100" };
  assert.deepEqual(toldOf(waived, UNREAD), ["Queue 'orders.eu' has 120 messages ready, more than 100.", "The job goes on by itself as soon as it can."]);
  assert.ok(!holdsBack(waived) && !isCanaryStuck(waived, UNREAD));
});

test("a job that has reached its limit has none to hold back, though nobody has counted its letters", () => {
  const limited = { ...CANARY, selected: null, limit: 10 };
  assert.equal(restOf(limited), 0);
  assert.ok(!holdsBack(limited) && holdsBack({ ...limited, limit: 11 }));
  assert.equal(toldOf(limited, READ)[0], "The canary is all there is: 10 letters were replayed, and no others are held back.");
});

test("what a finished replay says is not more than is known", () => {
  assert.equal(toldOf(JOB, UNREAD).join(" "), "Done. 5 letters were replayed, as many as were asked for. None has died again, which says nothing yet: 5 messages wait in orders.eu, and it has no consumer.");
  assert.equal(toldOf(JOB, { ...UNREAD, ready: 0 }).at(-1), "Nothing waits in orders.eu any more: all left it.");
  assert.equal(toldOf({ ...JOB, limit: null, dead_again: 2 }).join(" "), "Done. 5 letters were replayed. 2 of them died again.");
  assert.equal(toldOf(JOB).at(-1), "None of them has died again so far.");
  assert.deepEqual(toldOf({ ...JOB, state: "running" }), []);
});

test("a job that was limited or cancelled may have left letters", () => {
  assert.ok(mayHaveLeft(JOB));
  assert.ok(mayHaveLeft({ ...JOB, state: "cancelled", limit: null }));
  assert.ok(!mayHaveLeft({ ...JOB, limit: null }));
  assert.ok(!mayHaveLeft({ ...JOB, kind: "purge_dead" }));
});

test("a canary as large as all that goes is said to hold none back", () => {
  assert.equal(wholeCanary(10, 11), "");
  assert.equal(wholeCanary(null, 5), "");
  assert.match(wholeCanary(10, 5), /^Only 5 letters go, fewer than the canary of 10:/);
  assert.match(wholeCanary(10, 10), /^All 10 letters are the canary:/);
});

test("sentences begin large and end", () => {
  assert.equal(sentence("its limit is reached"), "Its limit is reached.");
  assert.equal(sentence("Done!"), "Done!");
  assert.equal(sentence(null), "");
  assert.equal(sentence("dlq.replay requires a superuser"), "dlq.replay requires a superuser.");
});

test("broken JSON is told with its place", () => {
  assert.equal(jsonProblem('{"a": [1, 2]}'), "");
  assert.match(jsonProblem('{"a": [1, 2}'), /position 11|column 12/);
});

test("a kind of error is chosen also without its reason", () => {
  const kind = { queue: "a", reason: "rejected", fingerprint: "1" };
  assert.ok(isChosenGroup({ queue: "a", fingerprint: "1" }, kind));
  assert.ok(!isChosenGroup({ queue: "b", fingerprint: "1" }, kind));
  assert.ok(!isChosenGroup({ queue: "a" }, kind));
  assert.ok(isChosenGroup({ queue: "a" }, { queue: "a" }));
  assert.ok(!isChosenGroup({ queue: "a", fingerprint: "1" }, { queue: "a" }));
});

test("attempts say what failed, and what the queue allows now", () => {
  assert.equal(attemptsText({ attempts: 1, failed: 1 }), "1, which failed");
  assert.equal(attemptsText({ attempts: 1, failed: 0 }), "1; a rejection does not count as a failed attempt");
  const letter = { reason: "max_attempts", attempts: 1, failed: 1, queue: "orders.eu" };
  assert.match(attemptsSentence(letter, 3), /^It died after 1 failed attempt, and orders.eu allows 3 attempts now/);
  assert.equal(attemptsSentence(letter, 1), "");
  assert.equal(attemptsSentence(letter, null), "");
});

test("a preview tells in plain sentences where letters would wait", () => {
  const targets = [{ queue: "orders.eu", count: 6_800, state: "no_consumers" }, { queue: "b", count: 1, state: "ok" }];
  assert.deepEqual(previewSentences({ count: 6_801, targets }), ["No consumer reads orders.eu now: the letters wait there until one does."]);
  assert.deepEqual(previewSentences({ count: 6_801, replayed_before: 1_200, replayed_before_of: 6_801 }), ["1,200 of 6,801 letters have been replayed before, and died again."]);
});

test("an export says whether its file is there", () => {
  const job = { kind: "export_dead", state: "done", done: 1_284, skipped: 2, has_result: true };
  assert.equal(toldOf(job).join(" "), "Done. 1,284 letters are in the file. 2 letters had gone before the job came to them. The broker deletes the file seven days after the end of the job. Its last line counts the letters.");
  assert.match(toldOf({ ...job, has_result: false })[0], /file was deleted/);
});

test("a replay to the queue that its letters died in goes nowhere else", () => {
  assert.equal(isElsewhere({ to: null, filter: {} }), false);
  assert.equal(isElsewhere({ to: null, filter: { queue: "payments" } }), false);
  assert.equal(isElsewhere({ to: "payments", filter: { queue: "payments" } }), false);
  assert.equal(isElsewhere({ to: "payments", filter: { queue: "orders" } }), true);
  assert.equal(isElsewhere({ to: "payments", filter: {} }), true);
});

test("a queue that a cursor reads is no queue without consumers", () => {
  const read = { ...UNREAD, groups: [{ name: "stream", cursor: true }] };
  assert.ok(isCanaryStuck(CANARY, { ...UNREAD, groups: [{ name: "billing", cursor: false }] }));
  assert.ok(!isCanaryStuck(CANARY, read));
  assert.doesNotMatch(toldOf(JOB, read).join(" "), /no consumer/);
});
