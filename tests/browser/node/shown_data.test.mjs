// What a page shows, by the requests and the frames of the stream: its hook, in a component that draws nothing.
import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";

const nothing = () => {};
const posted = [];
const world = {
  document: { baseURI: "http://broker.test/console/", visibilityState: "visible", addEventListener: nothing, removeEventListener: nothing, querySelector: () => null, documentElement: { dataset: {} } },
  location: { pathname: "/console/queue", search: "" },
  addEventListener: nothing,
  navigator: {},
  // Nobody waits but for the next look, whose time the tests have.
  setTimeout: (act) => setImmediate(act),
  clearTimeout: clearImmediate,
  BroadcastChannel: class {
    constructor() { posted.push(this); }
    postMessage() {}
  },
};
for (const [name, value] of Object.entries(world)) Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
const { html, render } = await import("../../../vibemq/web/console/static/vendor/ui.js");
const { live, useData } = await import("../../../vibemq/web/console/static/parts/data.js");
const { useLive } = await import("../../../vibemq/web/console/static/parts/text.js");
const [channel] = posted;

mock.timers.enable({ apis: ["setInterval"] });

let shown;
const View = ({ path, options }) => {
  shown = useData(path, options);
  return null;
};
let place = null;
const arrived = async () => {
  for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate);
};

async function pass(ms) {
  await arrived();
  mock.timers.tick(ms);
  await arrived();
}

/** Show what is at the path, whose answers are these; the last one is that to all further requests. */
async function show(path, options, ...answers) {
  const asked = [];
  globalThis.fetch = async () => {
    const [status, value] = answers.length > 1 ? answers.shift() : answers[0];
    asked.push(status);
    return new Response(JSON.stringify(value), { status, headers: { "content-type": "application/json" } });
  };
  place = { firstChild: null, childNodes: [], appendChild: nothing, nodeType: 1 };
  render(html`<${View} path=${path} options=${options} />`, place);
  await arrived();
  return asked;
}

const told = (message) => channel.onmessage({ data: message });

afterEach(async () => {
  live.value = true;
  told({ streamed: [] });
  render(null, place);
  await arrived();
});

test("what the stream tells is not asked for", async () => {
  told({ streamed: ["queue:a"] });
  const asked = await show("queues/a", { topic: "queue:a" }, [200, { ready: 1 }]);
  await pass(60_000);
  assert.deepEqual([shown.data, asked.length], [{ ready: 1 }, 1]);
  told({ frame: { topic: "queue:a", data: { ready: 2 } } });
  await arrived();
  assert.deepEqual(shown.data, { ready: 2 });
});

test("what could not be had is asked for again, whatever the stream tells", async () => {
  told({ streamed: ["queue:b"] });
  await show("queues/b", { topic: "queue:b" }, [404, { detail: "queue 'b' does not exist" }], [404, { detail: "queue 'b' does not exist" }], [200, { ready: 3 }]);
  assert.deepEqual([shown.problem.status, shown.data], [404, undefined]);
  // A frame has only what moves: without an answer there is nothing that it could be put into.
  told({ frame: { topic: "queue:b", data: { ready: 3 } } });
  await pass(6_000);
  assert.equal(shown.problem.status, 404);
  await pass(6_000);
  assert.deepEqual([shown.problem, shown.data], [null, { ready: 3 }]);
});

test("what a frame cannot be put into is asked for anew", async () => {
  told({ streamed: ["queue:d"] });
  const merge = (frame, data) => (frame.tag === data.tag ? { ...data, ...frame } : undefined);
  await show("queues/d", { topic: "queue:d", merge }, [200, { tag: 1, most: 5 }], [200, { tag: 2, most: 6 }]);
  told({ frame: { topic: "queue:d", data: { tag: 1, ready: 1 } } });
  await arrived();
  assert.deepEqual(shown.data, { tag: 1, most: 5, ready: 1 });
  told({ frame: { topic: "queue:d", data: { tag: 2, ready: 2 } } });
  await arrived();
  assert.deepEqual(shown.data, { tag: 2, most: 6 });
});

test("what is not answered yet is not made of what was shown before and a frame", async () => {
  told({ streamed: ["queue:e", "queue:f"] });
  const merge = (frame, data) => ({ ...data, ...frame });
  await show("queues/e", { topic: "queue:e", merge }, [200, { name: "e", most: 5 }]);
  let answer = nothing;
  globalThis.fetch = () => new Promise((resolve) => { answer = () => resolve(new Response(JSON.stringify({ name: "f", most: 6 }), { headers: { "content-type": "application/json" } })); });
  render(html`<${View} path="queues/f" options=${{ topic: "queue:f", merge }} />`, place);
  await arrived();
  told({ frame: { topic: "queue:f", data: { ready: 2 } } });
  await arrived();
  assert.deepEqual([shown.isOld, shown.data], [true, { name: "e", most: 5 }]);
  answer();
  await arrived();
  assert.deepEqual([shown.isOld, shown.data], [false, { name: "f", most: 6 }]);
});

test("a page that was paused has what has changed meanwhile when it goes on", async () => {
  told({ streamed: ["queue:c"] });
  await show("queues/c", { topic: "queue:c" }, [200, { ready: 9 }], [200, { ready: 0 }]);
  live.value = false;
  told({ frame: { topic: "queue:c", data: { ready: 0 } } });
  await pass(6_000);
  assert.deepEqual(shown.data, { ready: 9 });
  live.value = true;
  await arrived();
  assert.deepEqual(shown.data, { ready: 0 });
});

test("a region with figures is read out when what it is about changes, and not with each figure", () => {
  let now = 0;
  mock.method(performance, "now", () => now);
  const heard = [];
  const Region = ({ of }) => {
    heard.push(useLive(of, "assertive"));
    return null;
  };
  const root = { firstChild: null, childNodes: [], appendChild: nothing, nodeType: 1 };
  for (const [at, of] of [[1_000, "orders"], [1_010, "orders"], [2_000, "orders"], [3_000, "orders"], [4_000, "orders, stock"], [5_000, "orders, stock"]]) {
    now = at;
    render(html`<${Region} of=${of} />`, root);
  }
  assert.deepEqual(heard, ["assertive", "assertive", "off", "off", "assertive", "off"]);
  mock.restoreAll();
});
