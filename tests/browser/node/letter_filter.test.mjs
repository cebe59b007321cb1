import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bodyOfFilter,
  filterOfBody,
  filterOfSearch,
  hasOptions,
  optionsOfFilter,
  idsOf,
  lettersOf,
  meantOf,
  isEmpty,
  isTold,
  partsOf,
  queryOfFilter,
  runsOf,
  searchOfFilter,
  without,
} from "../../../vibemq/web/console/static/pure/letters.js";

const FULL = {
  queue: "orders.eu",
  reason: "max_attempts",
  fingerprint: "00a1b2c3d4e5f607",
  error: "no such article & more",
  message_id: "it's-7",
  older_than_ms: 60_000,
  newer_than_ms: 5_400_000,
  from_id: 17,
  to_id: 9_007_199,
  replayed: false,
  header: { tenant: "a:b", "x y": "=" },
  ids: "17,20-22",
};

test("a job's instants stay, though the command line has no option for them", () => {
  const filter = filterOfBody({ queue: "a", since: 1_700_000_000_000, until: 1_700_000_100_000 });
  assert.deepEqual(bodyOfFilter(filter), { queue: "a", since: 1_700_000_000_000, until: 1_700_000_100_000 });
  assert.deepEqual(partsOf(filter).map(({ part }) => part), ["queue", "since", "until"]);
  const answered = filterOfBody({ queue: "a", since: "2023-11-14T22:13:20.000Z", until: "2023-11-14T22:15:00.000Z" });
  assert.deepEqual(answered, filter);
  assert.deepEqual(filterOfSearch(new URLSearchParams(searchOfFilter(answered))), filter);
  assert.ok(!hasOptions(filter) && hasOptions({ queue: "a" }));
});

test("a part of a job's filter that is hidden from who looks is told to be there, and nothing wider is asked for again", () => {
  for (const [body, words] of [[{ queue: "a", error: null }, "error contains (hidden from you)"], [{ queue: "a", header: { tenant: null } }, "header tenant (hidden from you)"]]) {
    const parts = partsOf(filterOfBody(body));
    assert.deepEqual(parts.map(({ label, value }) => `${label} ${value}`), ["queue a", words]);
    assert.equal(isTold(body), false);
  }
  assert.ok(isTold({ queue: "a", error: "timeout", header: { tenant: "acme" } }) && isTold({}) && isTold(undefined));
});

test("a kind of error is shown by its text", () => {
  assert.equal(partsOf({ fingerprint: "00a1" }, (one) => (one === "00a1" ? "no such article" : undefined))[0].value, "no such article");
});

test("a filter survives the address of a page", () => {
  const search = new URLSearchParams(searchOfFilter(FULL)).toString();
  assert.deepEqual(filterOfSearch(new URLSearchParams(search)), FULL);
});

test("a filter survives the body of a job, where ids are numbers", () => {
  const body = bodyOfFilter(FULL);
  assert.deepEqual(body.ids, [17, 20, 21, 22]);
  assert.deepEqual(filterOfBody(JSON.parse(JSON.stringify(body))), FULL);
});

test("what cannot be read of an address is left out", () => {
  const params = new URLSearchParams("queue=&older_than_ms=-1&newer_than_ms=1e3&replayed=maybe&header=x&ids=1-2000000&to_id=a");
  assert.deepEqual(filterOfSearch(params), {});
  assert.ok(isEmpty({}));
});

test("the command line has an option for every part", () => {
  const options = optionsOfFilter(FULL);
  assert.deepEqual(options.header, ["tenant=a:b", "x y=="]);
  assert.equal(options["newer-than"], "1h30m");
  assert.equal(options["not-replayed"], true);
  assert.equal(options.id, "17,20-22");
  const given = Object.values(options).filter((value) => value !== undefined && value !== false);
  assert.equal(given.length, Object.keys(FULL).length);
});

test("a long run of ids makes no long query, and other bounds hold beside it", () => {
  assert.deepEqual(queryOfFilter({ queue: "a", ids: "1-9999" }), [["queue", "a"], ["from_id", "1"], ["to_id", "9999"]]);
  assert.deepEqual(queryOfFilter({ ids: "20-29", from_id: 25 }), [["from_id", "25"], ["to_id", "29"]]);
  assert.deepEqual(queryOfFilter({ ids: "20-29", from_id: 1, to_id: 22 }), [["from_id", "20"], ["to_id", "22"]]);
});

test("a query of the API has no runs of ids", () => {
  assert.deepEqual(queryOfFilter({ queue: "a", ids: "17,20-22" }), [["queue", "a"], ["ids", "17,20,21,22"]]);
});

test("every part has words and can be taken out", () => {
  let left = FULL;
  for (const { part, label, value } of partsOf(FULL)) {
    assert.ok(label && value, part);
    const fewer = without(left, part);
    assert.equal(partsOf(fewer).length, partsOf(left).length - 1, part);
    left = fewer;
  }
  assert.ok(isEmpty(left));
});

test("ticked letters are meant with their queue, where all are of one", () => {
  const letters = [{ dead_id: 1, queue: "a" }, { dead_id: 2, queue: "a" }, { dead_id: 3, queue: "b" }];
  const filter = { error: "no" };
  assert.equal(meantOf(filter, new Set(), letters), filter);
  assert.deepEqual(meantOf(filter, new Set([1, 2]), letters), { queue: "a", ids: "1-2" });
  // Neither of two queues can be named, nor one of which a letter stands on another page.
  assert.deepEqual(meantOf(filter, new Set([1, 3]), letters), { ids: "1,3" });
  assert.deepEqual(meantOf(filter, new Set([1, 9]), letters), { ids: "1,9" });
  assert.deepEqual(meantOf({ queue: "a" }, new Set([1, 9]), letters), { queue: "a", ids: "1,9" });
  const ofTwoPages = lettersOf(new Set([1, 2]), [...letters, { dead_id: 1, queue: "a" }, { dead_id: 7, queue: "b" }]);
  assert.deepEqual(ofTwoPages.map(({ dead_id: id }) => id), [1, 2]);
});

test("instants of a filter are in the zone of all others on the page", () => {
  const [at, here] = [Date.UTC(2026, 10, 26, 0, 35), process.env.TZ];
  process.env.TZ = "Asia/Tokyo";
  const told = (utc) => partsOf({ since: at, until: at }, undefined, utc).map(({ value }) => value);
  assert.deepEqual(told(true), ["2026-11-26 00:35:00", "2026-11-26 00:35:00"]);
  assert.deepEqual(told(false), ["2026-11-26 09:35:00", "2026-11-26 09:35:00"]);
  if (here === undefined) delete process.env.TZ;
  else process.env.TZ = here;
});

test("runs of ids", () => {
  assert.deepEqual(idsOf("20-22, 17"), [17, 20, 21, 22]);
  assert.equal(idsOf("3-1"), null);
  assert.equal(idsOf("1-99999999"), null);
  assert.equal(idsOf("x"), null);
  assert.equal(runsOf([22, 17, 21, 20, 20]), "17,20-22");
});
