import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { adminCommand, inDoubleQuotes, optionOf, quoted } from "../../../vibemq/web/console/static/logic/shell.js";

const HOSTILE = ["a b", "", "'", "''x'", "$HOME", "`id`", "$(id)", "a\nb", "\\", '"', "*", "~", "#", "!x", "a;b", "=x", "ü🙂", "-x", "--"];

test("a shell reads every text as one word, letter for letter", () => {
  for (const text of HOSTILE) {
    assert.equal(execFileSync("sh", ["-c", `printf %s ${quoted(text)}`]).toString(), text === "" ? "" : text);
    const doubled = execFileSync("sh", ["-c", `printf %s ${inDoubleQuotes(text)}`]).toString();
    assert.equal(doubled, text);
  }
});

test("names stand behind --, values that begin with a dash stay values", () => {
  assert.equal(adminCommand(["queue", "info"], ["--yes"]), "vibemq-admin queue info -- --yes");
  assert.deepEqual(optionOf("--queue", "-x y"), ["--queue='-x y'"]);
});
