// What is long is shown in slices, and a text that is cut is laid out as far as it goes.
import assert from "node:assert/strict";
import { test } from "node:test";

import { STEP_CHARACTERS, layout, slices, tokenSteps, tokens } from "../../../vibemq/web/console/static/pure/body.js";

const whole = (made) => made.map(({ pieces, isWhole }, at) => {
  const text = pieces.map(([, piece]) => piece).join("");
  return isWhole && at < made.length - 1 ? `${text}\n` : text;
}).join("");

test("slices together are the text, and none is much longer than wanted", () => {
  const lines = Array.from({ length: 5000 }, (_, at) => `line ${at} ${"ü".repeat(at % 90)}`).join("\n");
  const texts = ["", "\n", "a", "\n\n\n", lines, `${lines}\n`, "x".repeat(100_000), `${"x".repeat(9_000)}\n${lines}\n${"😀".repeat(20_000)}\nend`];
  for (const text of texts) {
    for (const most of [64, 1000, 32768]) {
      const made = [...slices([["", text]], most)];
      assert.equal(whole(made), text);
      for (const { pieces } of made) assert.ok(pieces.reduce((sum, [, piece]) => sum + piece.length, 0) <= 2 * most + 100, `${most}`);
    }
  }
});

test("a large JSON text has many slices of whole lines with few pieces each", () => {
  const source = JSON.stringify(Array.from({ length: 12_000 }, (_, id) => ({ id: 9e15 + id, note: "ü".repeat(20) })));
  const made = [...slices(layout(source))];
  assert.ok(made.length > 50);
  assert.ok(made.every(({ pieces, isWhole }) => isWhole && pieces.length < 1200));
  assert.equal(whole(made), layout(source).map(([, piece]) => piece).join(""));
});

test("no slice divides a character", () => {
  for (const { pieces } of slices([["", "😀".repeat(5_000)]], 101)) {
    for (const [, piece] of pieces) assert.ok(piece.isWellFormed());
  }
});

test("a JSON text that is cut anywhere is laid out up to there, without a token lost", () => {
  const source = '{"a": [1.5e3, true, null, "x\\"y ü"], "b": {"c": -0}}';
  for (let end = 1; end <= source.length; end += 1) {
    const cut = source.slice(0, end);
    const pieces = layout(cut, true);
    assert.notEqual(pieces, null, cut);
    const shown = pieces.map(([, piece]) => piece).join("");
    assert.equal(shown.replace(/\s/g, ""), cut.replace(/\s/g, ""));
  }
  for (const none of ["[1, }", '{"a" 1', "hello {", "[1, 2] [", "{x"]) assert.equal(layout(none, true), null, none);
  assert.equal(tokens('{"a": tr'), null);
});

test("a large text is cut into tokens in steps, of which none is long", () => {
  const source = JSON.stringify(Array.from({ length: 20_000 }, (_, id) => ({ id, note: "ü".repeat(20) })));
  const { exec } = RegExp.prototype;
  let looked = 0;
  RegExp.prototype.exec = function counted(text) { looked += 1; return exec.call(this, text); };
  const counts = [];
  try {
    for (const steps = tokenSteps(source); !steps.next().done; looked = 0) counts.push(looked);
  } finally {
    RegExp.prototype.exec = exec;
  }
  assert.ok(counts.length >= Math.floor(source.length / (STEP_CHARACTERS + 100)) - 1, `${counts.length} steps`);
  assert.ok(Math.max(...counts) <= STEP_CHARACTERS / 2, `${Math.max(...counts)} tokens in one step`);
});
