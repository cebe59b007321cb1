import assert from "node:assert/strict";
import { test } from "node:test";
import { byTag, exampleOf, operationsOf } from "../../../vibemq/web/console/static/pure/openapi.js";

const DESCRIPTION = {
  paths: {
    "/queues/{queue}": {
      get: { tags: ["queues"], summary: "One queue.", parameters: [{ $ref: "#/components/parameters/Queue" }] },
      patch: {
        tags: ["queues"],
        parameters: [{ name: "queue", in: "path", required: true, schema: { type: "string" } }],
        requestBody: { content: { "application/merge-patch+json": { schema: { $ref: "#/components/schemas/Change" } } } },
      },
    },
    "/access": { get: { tags: ["access"], parameters: [{ name: "action", in: "query", required: true, schema: { enum: ["publish"] } }, { name: "limit", in: "query" }] } },
  },
  components: {
    parameters: { Queue: { name: "queue", in: "path", required: true, description: "Its name.", schema: { type: "string" } } },
    schemas: { Change: { type: "object", required: ["ttl"], properties: { ttl: { anyOf: [{ type: "null" }, { type: "integer", minimum: 5 }] }, note: { type: "string" } } } },
  },
};

test("operations have their parameters, by reference too", () => {
  const operations = operationsOf(DESCRIPTION);
  assert.deepEqual(operations.map(({ method, path }) => `${method} ${path}`), ["GET /queues/{queue}", "PATCH /queues/{queue}", "GET /access"]);
  assert.equal(operations[0].parameters[0].meaning, "Its name.");
  assert.deepEqual(byTag(operations).map(([tag, some]) => [tag, some.length]), [["queues", 2], ["access", 1]]);
});

test("an example has what is required", () => {
  const [get, patch, access] = operationsOf(DESCRIPTION).map((operation) => exampleOf(operation, DESCRIPTION));
  assert.deepEqual(get, { path: "queues/orders", query: {} });
  assert.deepEqual(patch.body, { ttl: 5 });
  assert.equal(patch.headers["content-type"], "application/merge-patch+json");
  assert.deepEqual(access.query, { action: "publish" });
});

test("a line that is copied as it is has the guards of its request", () => {
  const schema = { type: "object", required: ["kind"], properties: { kind: { enum: ["replay"] }, filter: { type: "object" }, at_most: { type: "integer" }, note: { type: "string" } } };
  const described = {
    paths: {
      "/jobs": { post: { requestBody: { content: { "application/json": { schema } } } } },
      "/queues/{queue}": { delete: { parameters: [{ name: "queue", in: "path", required: true }, { name: "at_most", in: "query", schema: { type: "integer" } }] } },
    },
  };
  const [start, remove] = operationsOf(described).map((operation) => exampleOf(operation, described));
  assert.deepEqual(start.body, { kind: "replay", filter: { queue: "orders" }, at_most: 0 });
  assert.deepEqual(remove.query, { at_most: 0 });
});

test("references in a circle end", () => {
  const circle = { paths: { "/a": { get: { parameters: [{ $ref: "#/x" }] } } }, x: { $ref: "#/x" } };
  assert.equal(operationsOf(circle).length, 1);
});
