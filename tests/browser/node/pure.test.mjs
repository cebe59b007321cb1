// The pure parts of the console: `node --test tests/browser/node`.
import assert from "node:assert/strict";
import { test } from "node:test";

const pure = new URL("../../../vibemq/web/console/static/pure/", import.meta.url);
const { capitalized, count, counted, digits, duration, emptyPage, exactJson, instant, parseDuration, rate, rateLimit, size } = await import(new URL("format.js", pure));
const { adminLine, assigned, curlLine, keysOf, path, query, quote, segment } = await import(new URL("commands.js", pure));
const { laidOut, layout, tokens } = await import(new URL("body.js", pure));
const { fromBase64, hexLines, isHidden, isStoredText, kindOf, textOf, toBase64 } = await import(new URL("body.js", pure));
const { nameProblem } = await import(new URL("names.js", pure));
const { visible } = await import(new URL("symbols.js", pure));
const { matches } = await import(new URL("patterns.js", pure));
const { isTyped, placeAfterLogin } = await import(new URL("names.js", pure));
const { EventReader } = await import(new URL("sse.js", pure));

test("errors begin large, but for names of operations and settings", () => {
  assert.equal(capitalized("user 'ann' may not"), "User 'ann' may not");
  for (const text of ["audit.list requires a superuser", "max_attempts is 0", "queue.info: no", "", "Étude"]) assert.equal(capitalized(text), text);
});

test("JSON keeps every digit, repeated keys and their order", () => {
  const source = '{"b":9007199254740993,"a":1.10,"b":-0e+05,"c":"\\u0041\\/"}';
  assert.equal(laidOut(source).replace(/\s/g, ""), source);
});

test("JSON that is laid out is the same text but for white space between its tokens", () => {
  for (const source of ["[]", "{}", "[{},[],[[1,2],{\"a\":[]}]]", '"a b"', " null ", "1E400", '{"a":{"b":{"c":[true,false,null]}}}']) {
    const again = laidOut(source);
    assert.deepEqual(tokens(again), tokens(source));
    assert.equal(JSON.stringify(JSON.parse(again)), JSON.stringify(JSON.parse(source)));
  }
});

test("the same request of a form has the same key, also when another one was sent in between", () => {
  let made = 0;
  const keyOf = keysOf(() => `key ${++made}`);
  const [first, second] = [{ start: "earliest" }, { start: "latest" }].map(keyOf);
  assert.notEqual(first, second);
  assert.deepEqual([keyOf({ start: "latest" }), keyOf({ start: "earliest" })], [second, first]);
});

test("no limit is told to the broker as the broker has told it, which no number of JavaScript is", () => {
  const told = '{"queue":"q","options":{"max_attempts":9223372036854775807,"max_bytes":9007199254740991}}';
  assert.equal(exactJson(JSON.parse(told)), told);
  assert.ok(exactJson(JSON.parse(told), 2).includes('\n    "max_attempts": 9223372036854775807,'));
  assert.equal(exactJson({ payload: "9223372036854775807, 9223372036854776000" }), '{"payload":"9223372036854775807, 9223372036854776000"}');
  assert.equal(exactJson(undefined), undefined);
  assert.deepEqual([digits(Number("9223372036854775807")), digits(5), digits("a")], ["9223372036854775807", "5", "a"]);
  assert.ok(curlLine("PATCH", "http://b/q", { body: JSON.parse(told) }).includes(told));
});

test("only a body that is there as it is stored is published once more", () => {
  assert.ok(isStoredText({ payload: "", headers: {} }));
  // Opened, it would go beside a header that says that it is packed.
  for (const told of [{ payload: "{}", decoded_size: 2 }, { payload: "{", truncated: true }, { payload: "{}", decoded_size: null }, { payload: null }, { payload_base64: "H4s=" }]) {
    assert.ok(!isStoredText(told));
  }
});

test("what is hidden is told from what is empty, too large, or not there", () => {
  for (const told of [{ payload: null }, { payload_base64: null }, { payload: null, error: null }, { error: null }]) assert.ok(isHidden(told));
  for (const told of [{ payload: "" }, { payload_base64: "" }, { payload_size: 9 }, { payload: "x", error: "" }, {}]) assert.ok(!isHidden(told));
});

test("what is no JSON is not laid out", () => {
  for (const source of ["", "{", "[1,]", "{a:1}", "01", "1 2", '{"a"}', '{"a":1,}', "nul", "'a'", "[1}", '"\u0001"', "+1", ".5", "1.", "\u00a01"]) {
    assert.equal(layout(source), null, source);
  }
});

test("JSON may nest 100,000 deep, and have numbers of 10,000 digits", () => {
  const deep = "[".repeat(100_000) + "]".repeat(100_000);
  assert.equal(layout(deep).map(([, text]) => text).join("").replace(/\s/g, ""), deep);
  const long = "9".repeat(10_000);
  assert.equal(laidOut(long), long);
});

test("a shell reads quoted words as they are", async () => {
  const { execFileSync } = await import("node:child_process");
  const words = ["", "a b", "--yes", "-x", "it's", "$HOME", "`id`", "a\nb", "\\", "orders.eu", "…ก", '"', "!", "*", "~"];
  for (const word of words) {
    assert.equal(execFileSync("/bin/sh", ["-c", `printf %s ${quote(word)}`]).toString(), word);
  }
});

test("names stand behind -- and options have their values", () => {
  assert.equal(adminLine(["dlq", "edit"], { options: { text: [""], header: assigned([["a", "b=c"]]), "no-headers": [] }, names: ["1"] }), "vibemq-admin dlq edit --text= --header=a=b=c -- 1");
  assert.equal(assigned([["a=b", "c"]]), null);
  assert.equal(adminLine(["queue", "purge"], { options: { yes: true, limit: 5, none: null, off: false }, names: ["--yes"] }), "vibemq-admin queue purge --yes --limit=5 -- --yes");
});

test("a line for curl has the name of the secret's variable, never a secret", () => {
  const line = curlLine("POST", "http://localhost:2926/api/v1/queues/a/purge", { body: { at_most: 1 }, withToken: true });
  assert.equal(line, `curl -sS -X POST -H "Authorization: Bearer $VIBEMQ_ACCESS_TOKEN" -H 'content-type: application/json' --data '{"at_most":1}' http://localhost:2926/api/v1/queues/a/purge`);
});

test("a name that begins or ends with a space can be typed as well", () => {
  for (const [typed, wanted] of [["a", "a"], [" a ", "a"], [" ", " "], [" a", " a"]]) assert.ok(isTyped(typed, wanted));
  for (const [typed, wanted] of [["", "a"], ["A", "a"], ["a", " a"]]) assert.ok(!isTyped(typed, wanted));
});

test("an empty page of a search that goes on does not say that nothing fits", () => {
  assert.deepEqual(emptyPage({ next: "more", examined: 12_000 }, undefined, "letter"), ["Nothing found so far", "12,000 letters could be looked at in a moment. The next page goes on there."]);
  assert.deepEqual(emptyPage({ next: null, examined: 40 }, "more", "record"), ["No more records fit", "What was found is on the pages before."]);
  assert.equal(emptyPage({ next: null, examined: 40 }, undefined, "letter"), null);
  assert.equal(emptyPage(undefined, undefined, "letter"), null);
});

test("every name is one segment of a path that URL parsers keep", () => {
  for (const name of [".", "..", "...", "-x", "a.b", "a/b", "ก".repeat(256), "%2e", "a?b#c"]) {
    const url = new URL(path`queues/${name}/purge`, "http://localhost/x/api/v1/");
    assert.equal(url.pathname.split("/").length, 7, name);
    assert.equal(decodeURIComponent(url.pathname.split("/")[5]).replace(/^~(?=\.+$)/, ""), name);
  }
  assert.equal(segment(".."), "~..");
  assert.equal(segment("~."), "~~.");
});

test("queries leave out what is empty", () => {
  assert.equal(query({ a: "1 2", b: "", c: null, d: ["x", "y"], e: 0 }), "?a=1+2&d=x&d=y&e=0");
});

test("figures", () => {
  assert.deepEqual([0, 999, 1000, 1234567, -1234, null].map(count), ["0", "999", "1,000", "1,234,567", "\u22121,234", "–"]);
  assert.deepEqual([counted(1, "message"), counted(2000, "message")], ["1 message", "2,000 messages"]);
  assert.deepEqual([0, 0.04, 9.96, 1234.5].map(rate), ["0", "0.0", "10.0", "1,235"]);
  assert.deepEqual([0.1, 0.25, 2, 1500].map(rateLimit), ["0.1", "0.25", "2", "1,500"]);
  assert.deepEqual([0, 1023, 1024, 1536, 1048576, 5e12].map(size), ["0 B", "1023 B", "1 KiB", "1.5 KiB", "1 MiB", "4.5 TiB"]);
  assert.deepEqual([0, 350, 5250, 60000, 93784, 7384000, 200000000, null].map(duration), ["0 ms", "350 ms", "5.2 s", "1 min", "1 min 33 s", "2 h 3 min", "2 d 7 h", "–"]);
  assert.deepEqual(["250", "250ms", "1.5s", "5m", "2h", "7d", "x", "-1"].map(parseDuration), [250, 250, 1500, 300000, 7200000, 604800000, null, null]);
});

test("instants in UTC, with what is no instant as a dash", () => {
  assert.equal(instant("2026-11-22T14:03:07.009Z", { utc: true, millis: true }), "2026-11-22 14:03:07.009");
  assert.equal(instant(0, { utc: true }), "–");
  assert.equal(instant("never", { utc: true }), "–");
});

test("bytes: base64, text, hexadecimal, kinds", () => {
  const all = Uint8Array.from({ length: 256 }, (_, at) => at);
  assert.deepEqual(fromBase64(toBase64(all)), all);
  assert.equal(textOf(all), null);
  assert.equal(textOf(new TextEncoder().encode("\ufeffå")), "\ufeffå");
  assert.deepEqual(hexLines(new TextEncoder().encode("hello, world: 16+")), [
    "00000000  68 65 6c 6c 6f 2c 20 77  6f 72 6c 64 3a 20 31 36  hello, world: 16",
    `00000010  2b${" ".repeat(46)}  +`,
  ]);
  const kinds = [[[], "empty"], [[0x1f, 0x8b, 8], "gzip"], [[0x7b, 0x7d], "JSON"], [[0x68, 0x69], "text"], [[0xff, 0xfe], "binary"]];
  for (const [bytes, kind] of kinds) assert.equal(kindOf(Uint8Array.from(bytes)), kind);
});

test("in a name nothing is hidden, whatever category of Unicode it is of", () => {
  const isName = true;
  const hidden = {
    Cc: "\u0000\u001b\u0085", Cf: "\u00ad\u200b\u200c\u200d\u200e\u202e\u2066\ufeff\u{1d173}\u{e0041}", Co: "\ue000\u{f0000}", Cn: "\uffff\u0378", Cs: "\ud800\udfff",
    Zs: "\u00a0\u1680\u2000\u200a\u202f\u205f\u3000", Zl: "\u2028", Zp: "\u2029", fillers: "\u115f\u1160\u3164\uffa0\u2800\u034f\ufe0f\u180b",
  };
  for (const [category, characters] of Object.entries(hidden)) {
    for (const character of characters) {
      const shown = visible(`a${character}b`, { isName });
      assert.match(shown, /^a([\u2400-\u2421]|\[[A-Z0-9+]+\])b$/, `${category} ${character.codePointAt(0).toString(16)}`);
    }
  }
  assert.equal(visible("orders\u200d\u00a0eu", { isName }), "orders[ZWJ][NBSP]eu");
  assert.equal(visible("Größe กำ 한국 日本 a b", { isName }), "Größe กำ 한국 日本 a b");
  assert.match(nameProblem("orders\u200b"), /The character \[ZWSP\] is not allowed/);
});

test("spaces of other scripts are part of a text", () => {
  assert.equal(visible("10\u202f%\u3000\u00a0"), "10\u202f%\u3000\u00a0");
});

test("hidden characters are shown, joiners and letters are left alone", () => {
  assert.equal(visible("a\u202eb\u0000\u0007\u200b\ud800"), "a[U+202E]b\u2400\u2407[ZWSP][U+D800]");
  assert.equal(visible("กำ\u200d👩\u200d🚀 é"), "กำ\u200d👩\u200d🚀 é");
  assert.equal(visible("orders\u3164 \u{e0074}\ufe01\u115f"), "orders[U+3164] [U+E0074][U+FE01][U+115F]");
  assert.equal(visible("\u2764\ufe0f 𠀀"), "\u2764\ufe0f 𠀀");
  assert.equal(visible("a\n\tb", { lines: true }), "a\n\tb");
  assert.equal(visible("a\nb"), "a\u240ab");
});

test("patterns of permissions", () => {
  const cases = [["*", "a", true], ["orders", "orders", true], ["orders", "orders.eu", false], ["orders.*", "orders.eu", true], ["*.eu", "orders.eu", true], ["a*b*c", "aXbYc", true], ["a*b*c", "acb", false], ["a*a", "a", false]];
  for (const [pattern, name, fits] of cases) assert.equal(matches(pattern, name), fits, `${pattern} ${name}`);
});

test("events are read however the stream was cut", () => {
  const stream = 'retry: 5\n\nevent: a\r\ndata: {"n":1}\r\n\r\n: still here\n\ndata: x\ndata:y\nid: 7\n\nevent: late\ndata: z';
  const wanted = [{ event: "a", data: '{"n":1}', id: "" }, { event: "message", data: "x\ny", id: "7" }];
  for (const every of [1, 2, 3, 7, 1000]) {
    const reader = new EventReader();
    const got = [];
    for (let at = 0; at < stream.length; at += every) got.push(...reader.read(stream.slice(at, at + every)));
    assert.deepEqual(got, wanted, `in pieces of ${every}`);
  }
});

test("the log-in page goes to pages of the console alone", () => {
  const console_ = "http://host/a/b/console/";
  for (const then of ["queues", "queue?queue=a&tab=tail", "dead-letters?reason=x%20y", ""]) {
    assert.equal(new URL(placeAfterLogin(then), `${console_}login`).href, console_ + then);
  }
  for (const then of [undefined, "https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "../api/v1/session", "login?then=login", "queues#x", "./x", "\u0000", "data:text/html,x"]) {
    assert.equal(new URL(placeAfterLogin(then), `${console_}login`).href, console_, then);
  }
});
