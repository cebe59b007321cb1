// The client of the API where there is no page: what it makes of a broker that is lost, of proxies, and of another user.
import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

const nothing = () => {};
const page = { dialog: null, once: null, reloaded: 0, cleared: 0, kept: {}, left: 0 };
const world = {
  document: { baseURI: "http://broker.test/console/", visibilityState: "visible", addEventListener: nothing, querySelector: (what) => (what.includes("form") ? page.dialog : page.once) },
  location: { pathname: "/console/queue", search: "", replace: () => page.left++, reload: () => page.reloaded++ },
  sessionStorage: {
    clear: () => {
      page.cleared++;
      page.kept = {};
    },
    getItem: (name) => page.kept[name] ?? null,
    setItem: (name, value) => {
      page.kept[name] = value;
    },
  },
  addEventListener: nothing,
  navigator: {},
  // A real one would keep the process alive.
  BroadcastChannel: class { postMessage() {} },
};
// Some of them node has itself, in part for reading alone.
for (const [name, value] of Object.entries(world)) Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
const { ahead, call, get, loadSession, lookWhoIsHere, lostSince, session, sessionProblem } = await import("../../../vibemq/web/console/static/parts/api.js");
const { live, onGoingOn, readEvents } = await import("../../../vibemq/web/console/static/parts/data.js");

const json = (value, status = 200, headers = {}) => new Response(JSON.stringify(value), { status, headers: { "content-type": "application/json", ...headers } });
const html = (status) => new Response("<html><h1>Bad Gateway</h1></html>", { status, headers: { "content-type": "text/html" } });
const leaving = () => new AbortController().signal;

/** The answers, one for each request; the last one for all further ones. A function makes one, or fails. */
function answering(...answers) {
  const asked = [];
  globalThis.fetch = async (url, options) => {
    asked.push(options);
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    return typeof answer === "function" ? answer(options) : answer.clone();
  };
  return asked;
}

const refused = () => Promise.reject(new TypeError("Failed to fetch"));

/** Nobody waits between two attempts. */
const withoutPauses = () => mock.method(globalThis, "setTimeout", (done) => void queueMicrotask(done));
/** What is on its way arrives. */
const arrived = async () => {
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
};

beforeEach(() => {
  mock.restoreAll();
  lostSince.value = 0;
  Object.assign(page, { dialog: null, once: null, reloaded: 0, cleared: 0, kept: {}, left: 0 });
});

test("a stream that cannot be had is a problem in a sentence, and does not say that the broker is lost", async () => {
  answering(refused);
  await assert.rejects(readEvents("queues/q/tail", {}, { signal: leaving(), onEvent: nothing }), { status: 0, errors: [], isPassing: true, message: /cannot be reached/ });
  answering(html(502));
  await assert.rejects(readEvents("events", {}, { signal: leaving(), onEvent: nothing }), { status: 0, isPassing: true });
  assert.equal(lostSince.value, 0);
});

/** A stream that has begun, and whoever feeds it. */
function streaming() {
  const made = {};
  answering(({ signal }) => new Response(new ReadableStream({
    start(controller) {
      signal.addEventListener("abort", () => controller.error(signal.reason));
      made.cut = () => controller.error(new TypeError("network error"));
      made.feed = (text) => controller.enqueue(new TextEncoder().encode(text));
    },
  })));
  return made;
}

test("a stream that is cut off is a problem as well, and does not say that the broker is lost", async () => {
  const told = [];
  const stream = streaming();
  const following = readEvents("events", {}, { signal: leaving(), onEvent: ({ data }) => told.push(data), onOpen: () => stream.feed("data: 1\n\n") });
  await Promise.all([assert.rejects(following, { status: 0, isPassing: true }), arrived().then(() => stream.cut())]);
  assert.deepEqual([told, lostSince.value], [["1"], 0]);
});

test("a stream of which nothing comes, not even a heartbeat, is over", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  let over = null;
  const stream = streaming();
  readEvents("events", {}, { signal: leaving(), onEvent: nothing }).catch((problem) => { over = problem; });
  await arrived();
  mock.timers.tick(39_000);
  stream.feed(": still here\n\n");
  await arrived();
  mock.timers.tick(39_000);
  await arrived();
  assert.equal(over, null);
  mock.timers.tick(1_000);
  await arrived();
  assert.deepEqual([over.status, over.isPassing], [0, true]);
  mock.timers.reset();
});

test("who leaves a stream is told so, and of no problem", async () => {
  streaming();
  const away = new AbortController();
  const following = readEvents("events", {}, { signal: away.signal, onEvent: nothing, onOpen: () => setImmediate(() => away.abort()) });
  await assert.rejects(following, { name: "AbortError" });
});

test("what a proxy says for a broker that it does not reach is no text for people, and is asked for again", async () => {
  withoutPauses();
  const asked = answering(html(502), html(502), json({ items: [] }));
  assert.deepEqual(await get("queues"), { items: [] });
  assert.deepEqual([asked.length, lostSince.value], [3, 0]);
  answering(html(504));
  await assert.rejects(get("queues"), { status: 0, message: /cannot be reached/ });
  const since = lostSince.value;
  assert.ok(since > 0);
  await assert.rejects(get("queues"), { status: 0 });
  assert.equal(lostSince.value, since);
});

test("the broker's own refusals stay what they are", async () => {
  answering(json({ status: 504, code: "TIMEOUT", detail: "there was no answer within 30 s" }, 504));
  await assert.rejects(get("queues"), { status: 504, code: "TIMEOUT", isPassing: false });
  answering(new Response("this name is not one of the broker's\n", { status: 421, headers: { "content-type": "text/plain" } }));
  await assert.rejects(get("queues"), { status: 421, message: /this name is not one/ });
  assert.equal(lostSince.value, 0);
});

test("a page of a list that a broker does not know which was started anew is told apart", async () => {
  answering(json({ status: 422, code: "INVALID_PAYLOAD", detail: "cursor does not belong", errors: [{ pointer: "/cursor", detail: "cursor does not belong" }] }, 422));
  await assert.rejects(get("queues", { cursor: "x" }), { isOldPage: true });
  answering(json({ status: 422, code: "INVALID_PAYLOAD", errors: [{ pointer: "/limit", detail: "too many" }] }, 422));
  await assert.rejects(get("queues"), { isOldPage: false });
});

test("a page where an answer should be, as that of a proxy's login, is a problem and no data", async () => {
  answering(html(200));
  await assert.rejects(get("queues"), { status: 200, message: /not the broker/ });
});

test("a broker that takes the request and does not answer is lost after a minute", async () => {
  withoutPauses();
  const limits = [];
  mock.method(AbortSignal, "timeout", (ms) => {
    limits.push(ms);
    return AbortSignal.abort(new DOMException("late", "TimeoutError"));
  });
  answering(({ signal }) => Promise.reject(signal.reason));
  await assert.rejects(get("queues"), { status: 0 });
  assert.deepEqual([...new Set(limits)], [60_000]);
  const asked = answering(json({}));
  await call("POST", "broker/backups", { body: {} });
  assert.equal(asked[0].signal, undefined);
});

test("of a change that has no answer it is not said that the page tries it again", async () => {
  withoutPauses();
  for (const answer of [refused, html(502)]) {
    answering(answer);
    await assert.rejects(get("queues"), { message: /cannot be reached. This page tries again/ });
    await assert.rejects(call("POST", "dead-letters/preview", { body: {}, key: null, changesNothing: true }), { message: /cannot be reached. Try again in a moment/ });
    for (const method of ["POST", "PATCH", "DELETE"]) await assert.rejects(call(method, "jobs/1", { body: {} }), { status: 0, message: /cannot be reached. Whether this was carried out is not known/ });
  }
});

test("a change whose first request is under way still is asked for again with its key", async () => {
  withoutPauses();
  const asked = answering(refused, json({ status: 409, code: "IDEMPOTENCY_BUSY" }, 409, { "retry-after": "1" }), json({ job: "7" }, 201));
  assert.deepEqual(await call("POST", "jobs", { body: {} }), { job: "7" });
  assert.equal(new Set(asked.map(({ headers }) => headers["idempotency-key"])).size, 1);
});

test("a page that is opened while the broker recovers goes on by itself when it has", async () => {
  withoutPauses();
  const recovers = json({ status: 503, code: "RECOVERING", detail: "the broker recovers its store; ask again later" }, 503, { "retry-after": "1" });
  const asked = answering(...Array(7).fill(recovers), json({ user: "ann", token: null, auth_enabled: true, authenticated: true }));
  session.value = null;
  await loadSession();
  assert.deepEqual([session.value, sessionProblem.value.code], [null, "RECOVERING"]);
  await arrived();
  assert.deepEqual([session.value.user, sessionProblem.value, asked.length], ["ann", null, 8]);
});

test("a tab does not go on under the name of somebody whose cookie is another one's now", async () => {
  session.value = { user: "ann", token: null };
  answering(json({ user: "ann", token: null, may: { "audit.list": true } }));
  await lookWhoIsHere();
  assert.deepEqual([page.reloaded, session.value.may], [0, { "audit.list": true }]);
  answering(json({ user: "bob", token: null }));
  await lookWhoIsHere();
  assert.deepEqual([page.reloaded, page.cleared, session.value.user], [1, 1, "ann"]);
});

test("what a tab keeps is of one user, in whatever way another one has come", async () => {
  const enter = async (user, token = null) => {
    answering(json({ user, token, auth_enabled: true, authenticated: true }));
    await loadSession();
  };
  await enter("ann");
  page.kept["vibemq.kinds"] = "what ann was shown";
  await enter("ann");
  assert.equal(page.kept["vibemq.kinds"], "what ann was shown");
  for (const [user, token] of [["bob"], ["bob", "t1"], ["ann"]]) {
    page.kept["vibemq.kinds"] = "of the one before";
    await enter(user, token);
    assert.equal(page.kept["vibemq.kinds"], undefined, user);
  }
});

test("a way to the log-in page that has not come about is taken again", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  answering(json({ status: 401, code: "AUTH_REQUIRED" }, 401));
  const refusedTwice = async () => {
    for (let turn = 0; turn < 2; turn++) await assert.rejects(get("queues"), { status: 401 });
  };
  await refusedTwice();
  assert.equal(page.left, 1);
  mock.timers.tick(10_000);
  await refusedTwice();
  assert.equal(page.left, 2);
  mock.timers.tick(10_000);
  mock.timers.reset();
});

test("what was kept as it is asks anew when it goes on: the stream tells no frame twice", () => {
  const asked = [];
  const leave = onGoingOn(() => asked.push(live.value));
  live.value = false;
  assert.deepEqual(asked, []);
  live.value = true;
  assert.deepEqual(asked, [true]);
  leave();
  live.value = false;
  live.value = true;
  assert.deepEqual(asked, [true]);
});

test("a form that is being filled in is kept, and the page says who will send it", async () => {
  session.value = { user: "ann", token: null };
  page.dialog = {};
  answering(json({ user: "bob", token: null }));
  await lookWhoIsHere();
  assert.deepEqual([page.reloaded, session.value.user], [0, "bob"]);
  page.dialog = null;
  await lookWhoIsHere();
  assert.deepEqual([page.reloaded, page.cleared], [1, 1], "what ann was shown does not stay when the form is closed");
});

test("a form whose session has ended stays under its user's name, and what is shown only once stays whoever comes", async () => {
  session.value = { user: "ann", token: null };
  page.dialog = {};
  answering(json({ user: null, token: null, auth_enabled: true, authenticated: false }));
  await lookWhoIsHere();
  assert.deepEqual([page.reloaded, session.value.user], [0, "ann"]);
  page.once = {};
  answering(json({ user: "bob", token: null, auth_enabled: true, authenticated: true }));
  await lookWhoIsHere();
  assert.deepEqual([page.reloaded, session.value.user], [0, "ann"]);
  page.once = page.dialog = null;
  await lookWhoIsHere();
  assert.deepEqual([page.reloaded, page.cleared], [1, 1]);
});

test("an answer tells by how much the browser's clock is wrong, one without a date keeps that", async () => {
  answering(json({}, 200, { date: new Date(Date.now() - 3_600_000).toUTCString() }), json({}));
  await get("queues");
  assert.ok(Math.abs(ahead.value - 3_600_000) < 60_000);
  await get("queues");
  assert.ok(ahead.value > 0);
  answering(json({}, 200, { date: new Date().toUTCString() }));
  await get("queues");
  assert.equal(ahead.value, 0);
});
