// What the audit and the form for queues say of texts.
import assert from "node:assert/strict";
import { test } from "node:test";

const pure = new URL("../../../vibemq/web/console/static/pure/", import.meta.url);
const { namedPieces, nameProblem } = await import(new URL("names.js", pure));
const { stillHere } = await import(new URL("format.js", pure));
const { codePieces } = await import(new URL("symbols.js", pure));
const { pairs, placeOf, withinMs } = await import(new URL("audit_words.js", pure));

test("names of queues are judged as the broker judges them", () => {
  for (const name of ["", "orders.eu", "Aufträge_7", "順番-1", "a".repeat(256)]) assert.equal(nameProblem(name), "", name);
  for (const name of ["a:b", "~own", "a/b", "a\u0000", "😀", "½"]) assert.match(nameProblem(name), /not allowed/, name);
  assert.match(nameProblem("a b"), /no spaces/);
  assert.match(nameProblem("a".repeat(257)), /257 of at most 256/);
});

test("names in a text are found whole, and no part of another", () => {
  const names = ["orders", "orders.eu", "a"];
  const found = namedPieces("orders, orders.eu, my-orders and orders.eu.x have a problem; in queue orders.", names);
  assert.deepEqual(found.filter(([, isName]) => isName).map(([piece]) => piece), ["orders", "orders.eu", "a", "orders"]);
  assert.equal(found.map(([piece]) => piece).join(""), "orders, orders.eu, my-orders and orders.eu.x have a problem; in queue orders.");
  assert.deepEqual(namedPieces("a b", []), [["a b", false]]);
});

test("arguments are pairs, without what is empty, and long ones are cut", () => {
  const given = { queue: "orders", to: null, header: {}, options: { mode: 3, max_attempts: 5, dead_letter: false }, ids: [1, 2, 3, 4, 5, 6, 7], note: "x".repeat(500) };
  const found = Object.fromEntries(pairs(given));
  assert.deepEqual(Object.keys(found), ["queue", "mode", "max_attempts", "dead_letter", "ids", "note"]);
  assert.equal(found.dead_letter, "no");
  assert.equal(found.mode, "priority");
  assert.equal(found.ids, "1, 2, 3, 4, 5 and 2 more");
  assert.equal(found.note.length, 161);
  assert.deepEqual(pairs(null), []);
});

test("queues and jobs have pages", () => {
  assert.deepEqual(placeOf("filter.queue", "orders"), ["queue", { queue: "orders" }]);
  assert.deepEqual(placeOf("to", "orders", "dlq.replay"), ["queue", { queue: "orders" }]);
  assert.deepEqual(placeOf("job_id", "j1"), ["job", { id: "j1" }]);
  assert.equal(placeOf("user", "ann"), null);
});

test("today began at midnight of the browser", () => {
  const now = new Date(2026, 10, 26, 1, 30);
  assert.equal(withinMs("today", now), 5_400_000);
  assert.equal(withinMs("hour", now), 3_600_000);
  assert.equal(withinMs("", now), null);
});

test("letters that are still here are told apart from all that died", () => {
  const rows = [{ count: 750 }, { count: 227 }];
  assert.equal(stillHere(rows, 999), "977 of the 999 messages that died; the others were replayed or purged since, or their queue was deleted.");
  assert.equal(stillHere([{ count: 1 }], 1), "The message that died.");
  assert.equal(stillHere(Array(10).fill({ count: 2 }), 1_030), "20 of the 1,030 messages that died; the others were replayed or purged since, or their queue was deleted, or their errors are rarer.");
});

test("code in a sentence stands between backticks, and one alone is a character", () => {
  assert.deepEqual(codePieces("run `vibemq-admin check` again"), [["run ", false], ["vibemq-admin check", true], [" again", false]]);
  assert.deepEqual(codePieces("`df -i`"), [["df -i", true]]);
  assert.deepEqual(codePieces("one ` alone"), [["one ` alone", false]]);
  assert.deepEqual(codePieces(""), []);
});
