import assert from "node:assert/strict";
import { test } from "node:test";
import { QUERY_BYTES_MAX, TOPICS_MAX, chooseTopics, queueMoved } from "../../../vibemq/web/console/static/pure/topics.js";

const tabs = (count) => Array.from({ length: count }, (_, number) => [`queue:q${number}`, `queues?queue=q${number}`]);

test("twelve tabs have one stream with all they want, each topic once", () => {
  assert.equal(chooseTopics([["overview"], ["overview", "queues"], ...tabs(10)]).length, 22);
  assert.deepEqual(chooseTopics([]), []);
});

test("of more than a stream takes every tab has its first topic before any has its second", () => {
  const chosen = chooseTopics(tabs(20));
  assert.equal(chosen.length, TOPICS_MAX);
  assert.equal(chosen.filter((topic) => topic.startsWith("queue:")).length, 20);
});

test("long names do not make an address that is refused", () => {
  const long = tabs(20).map(([first, second]) => [first + "ก".repeat(250), second]);
  const chosen = chooseTopics(long);
  assert.ok(chosen.map((topic) => `&topic=${encodeURIComponent(topic)}`).join("").length <= QUERY_BYTES_MAX);
  assert.ok(chosen.includes("queues?queue=q19"));
});

test("a frame of a queue brings its figures, and says when its options are others", () => {
  const frame = { name: "q", size: 7, ready: 2, incarnation: "a", options: { mode: 0, max_messages: 5 } };
  const had = { queue: "q", bytes: 3, ready: 1, incarnation: "a", options: { mode: "round_robin", max_messages: 5 } };
  const moved = queueMoved(frame, had);
  assert.deepEqual([moved.ready, moved.bytes, moved.options, moved.name], [2, 7, had.options, undefined]);
  assert.equal(queueMoved({ ...frame, ready: 3 }, moved).ready, 3);
  assert.equal(queueMoved({ ...frame, options: { mode: 0, max_messages: 9 } }, moved), undefined);
  assert.equal(queueMoved({ ...frame, incarnation: "b" }, moved), undefined);
});
