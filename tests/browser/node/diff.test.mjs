import assert from "node:assert/strict";
import { test } from "node:test";
import { diffHeaders, diffLines, folded } from "../../../vibemq/web/console/static/pure/diff.js";

const rebuilt = (lines, kind) =>
  lines.filter((line) => line.kind === "same" || line.kind === kind).map((line) => line.text).join("\n");

test("both texts can be read off a difference", () => {
  let seed = 7;
  const random = (below) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return seed % below;
  };
  for (let round = 0; round < 300; round += 1) {
    const text = () => Array.from({ length: random(9) }, () => "abc"[random(3)]).join("\n");
    const [before, after] = [text(), text()];
    const lines = diffLines(before, after);
    assert.equal(rebuilt(lines, "removed"), before);
    assert.equal(rebuilt(lines, "added"), after);
  }
});

test("one changed line is one removed and one added", () => {
  const lines = diffLines('{\n "id": 9007199254740993,\n "x": 1\n}', '{\n "id": 9007199254740993,\n "x": 2\n}');
  assert.deepEqual(lines.filter((line) => line.kind !== "same").map((line) => [line.kind, line.text]), [
    ["removed", ' "x": 1'],
    ["added", ' "x": 2'],
  ]);
});

test("texts that differ everywhere are compared without a large table", () => {
  const text = (letter) => Array.from({ length: 5_000 }, (_, i) => `${letter}${i}`).join("\n");
  assert.equal(diffLines(text("a"), text("b")).length, 10_000);
});

test("what has not changed is folded", () => {
  const before = Array.from({ length: 100 }, (_, i) => `line ${i}`);
  const after = before.with(50, "changed");
  const shown = folded(diffLines(before.join("\n"), after.join("\n")), 2);
  assert.deepEqual(shown.map((line) => line.kind), ["fold", "same", "same", "removed", "added", "same", "same", "fold"]);
  assert.equal(shown[0].count + shown.at(-1).count + 5, 100);
});

test("of a very large change the ends are shown, and how many lines are between them", () => {
  const text = (first) => [first, ...Array(200_000).fill("1"), first].join("\n");
  const before = text("a");
  const after = `${text("b")}\nlast`;
  const shown = folded(diffLines(before, after));
  assert.deepEqual(shown.filter(({ kind }) => kind === "fold").map(({ of, count }) => [of, count]), [["removed", 199_802], ["added", 199_803]]);
  assert.deepEqual([shown.length, shown[0].text, shown.at(-1).text], [402, "a", "last"]);
});

test("a header that is called as a property of all objects", () => {
  assert.deepEqual(diffHeaders({}, { constructor: "x" }), [{ name: "constructor", before: null, after: "x" }]);
});

test("headers", () => {
  assert.deepEqual(diffHeaders({ a: "1", b: "2", c: "3" }, { a: "1", b: "9", d: "4" }), [
    { name: "b", before: "2", after: "9" },
    { name: "c", before: "3", after: null },
    { name: "d", before: null, after: "4" },
  ]);
});
