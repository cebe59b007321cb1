// Edit and replay: the body and the headers of one letter, the difference, and then one step of the broker.
import { html, useEffect, useMemo, useRef, useState } from "../../vendor/ui.js";
import { get, post } from "../../parts/api.js";
import { Commands } from "../../parts/command.js";
import { Modal, useSending } from "../../parts/dialog.js";
import { Field } from "../../parts/filters.js";
import { Name, Outside, Trouble } from "../../parts/text.js";
import { bytesOf } from "../../parts/viewer.js";
import { fromBase64, jsonProblem, laidOut, textOf, toBase64 } from "../../pure/body.js";
import { assigned, path } from "../../pure/commands.js";
import { diffHeaders, diffLines, folded } from "../../pure/diff.js";
import { count, counted } from "../../pure/format.js";
import { visible } from "../../pure/symbols.js";

const EDITED_BYTES_MAX = 256 * 1024;
const LOOKED_AT = 5;

/** `onDone({queue, sequence, isEdited})`: where the message is; `sequence` null when it is gone from there already. */
export function EditDialog({ letter, onClose, onDone }) {
  const bytes = bytesOf(letter);
  const asText = textOf(bytes);
  const before = { body: asText ?? toBase64(bytes), headers: producerHeaders(letter.headers) };
  const isLarge = !hasBody(letter) || bytes.length > EDITED_BYTES_MAX;
  const [body, setBody] = useState(before.body);
  const [rows, setRows] = useState(Object.entries(before.headers));
  const [to, setTo] = useState("");
  const [note, setNote] = useState("");
  const [isReview, setReview] = useState(false);
  const heading = useRef(null);
  const wasReview = useRef(false);
  useEffect(() => {
    // The button that was pressed is not there any more.
    if (isReview) heading.current.focus();
    else if (wasReview.current) document.querySelector("dialog[open] .inside :is(textarea, input)")?.focus();
    wasReview.current = isReview;
  }, [isReview]);
  const headers = Object.fromEntries(rows.filter(([name]) => name.trim() !== "").map(([name, value]) => [name.trim(), value]));
  const tidy = useMemo(() => (isLarge || asText === null ? null : laidOut(body)), [body]);
  const wrong = wrongOf({ body, rows, asText });
  const changed = { body: body !== before.body, headers: diffHeaders(before.headers, headers) };
  const isSame = !changed.body && changed.headers.length === 0;
  const broken = asText !== null && changed.body && laidOut(asText) !== null ? jsonProblem(body) : "";
  const request = {
    queue: letter.queue,
    ...(changed.body ? (asText === null ? { payload: body.replace(/\s+/g, "") } : { text: body }) : {}),
    ...(changed.headers.length ? { headers } : {}),
    ...(to ? { to } : {}),
    ...(note ? { note } : {}),
  };
  const { send, problem, isUnderWay } = useSending(request, async (key) => {
    const done = await post(path`dead-letters/${String(letter.dead_id)}/edit`, request, { key });
    const queue = done?.queue ?? (to || letter.queue);
    onDone({ queue, isEdited: !isSame, sequence: await sequenceOf(queue, letter.dead_id) });
  });
  const footer = isReview
    ? html`<button key="back" type="button" class="button" disabled=${isUnderWay} onClick=${() => setReview(false)}>Back to editing</button><span class="push"></span>
        <button key="cancel" type="button" class="button" disabled=${isUnderWay} onClick=${onClose}>Cancel</button>
        <button key="send" type="submit" class="button main" disabled=${isUnderWay}>Replay 1 ${isSame ? "letter, unchanged," : "edited letter"} to <${Outside} text=${to || letter.queue} isName /></button>`
    : html`<button key="cancel" type="button" class="button" onClick=${onClose}>Cancel</button>
        <button key="review" type="submit" class="button main" disabled=${Boolean(wrong)}>${isSame ? "Review: nothing is changed yet" : "Review the changes"}</button>`;
  return html`<${Modal} title=${`Edit and replay letter ${letter.dead_id}`} broad onClose=${onClose} onSubmit=${isReview ? send : () => setReview(true)} footer=${footer} isUnderWay=${isUnderWay}>
    ${isReview
      ? html`<h3 ref=${heading} tabindex="-1">What will change</h3><${Review} before=${before} body=${body} changed=${changed} letter=${letter} to=${to} broken=${broken} />
          <${Commands} admin=${editLine(letter, request)} request=${{ method: "POST", path: path`dead-letters/${String(letter.dead_id)}/edit`, body: request }} />`
      : html`
        ${isLarge
          ? html`<p>The body is too large to edit here. Its headers and queue can be changed; the body with the command line.</p>`
          : html`<div><${Field} label=${asText === null ? "Body, as base64: it is no text" : "Body"} wrong=${wrong?.body ?? (broken && html`What died was JSON, and this is broken: <${Outside} text=${broken} />`)}>${(id, about) => html`<textarea id=${id} aria-describedby=${about} rows="12" spellcheck=${false} value=${body} onInput=${(event) => setBody(event.target.value)}></textarea>`}</${Field}>
            ${tidy !== null && html`<div class="buttons"><button type="button" class="button slim" onClick=${() => setBody(tidy)}>Lay the JSON out</button><button type="button" class="button slim" disabled=${!changed.body} onClick=${() => setBody(before.body)}>As it was</button></div>`}</div>`}
        <${HeaderRows} rows=${rows} set=${setRows} wrong=${wrong?.headers} />
        <div class="options-row">
          <${Field} label="To queue" hint=${html`Empty: <${Name} name=${letter.queue} />, where it died.`}>${(id, about) => html`<input id=${id} aria-describedby=${about} value=${to} autocomplete="off" spellcheck=${false} onInput=${(event) => setTo(event.target.value.trim())} />`}</${Field}>
          <${Field} label="Note, for the audit">${(id) => html`<input id=${id} value=${note} maxlength="200" onInput=${(event) => setNote(event.target.value)} />`}</${Field}>
        </div>`}
    ${problem && html`<${Trouble} problem=${problem} />`}
  </${Modal}>`;
}

/** The sequence of the message that was made of a letter: one of the newest of its queue, while it waits there. */
async function sequenceOf(queue, id) {
  try {
    const { next_sequence: next } = await get(path`queues/${queue}`);
    const newest = await get(path`queues/${queue}/messages`, { from: Math.max(1, next - LOOKED_AT), limit: LOOKED_AT, preview_bytes: 1 });
    return newest.items.find(({ headers }) => headers?.["vibemq-replay-of"] === String(id))?.sequence ?? null;
  } catch {
    // Somebody without the right to look at the queue gets the link to it alone.
  }
  return null;
}

/** The line of the command line reads the new body from a file, which the shell makes of the text. */
function editLine(letter, request) {
  const { text, payload, headers, to, note } = request;
  const header = assigned(Object.entries(headers ?? {}));
  if (payload !== undefined || text?.length > 4000 || !header) return undefined;
  const options = { queue: letter.queue, text: text === "" ? [""] : text, header, "no-headers": headers && !header.length, to, note };
  return [["dlq", "edit"], { options, names: [String(letter.dead_id)] }];
}

function wrongOf({ body, rows, asText }) {
  const names = rows.map(([name]) => name.trim()).filter(Boolean);
  if (new Set(names).size < names.length) return { headers: "A name stands there twice." };
  if (rows.some(([name, value]) => !name.trim() && value)) return { headers: "A value has no name." };
  if (asText === null) {
    try {
      fromBase64(body.replace(/\s+/g, ""));
    } catch {
      return { body: "This is no base64." };
    }
  }
  return null;
}

function HeaderRows({ rows, set, wrong }) {
  const change = (at, part, value) => set(rows.map((row, index) => (index === at ? row.with(part, value) : row)));
  return html`<fieldset class="edit-headers"><legend>Headers</legend>
    ${rows.map(
      ([name, value], at) => html`<div class="row">
        <input aria-label=${`Name of header ${at + 1}`} value=${name} spellcheck=${false} onInput=${(event) => change(at, 0, event.target.value)} />
        <input aria-label=${`Value of header ${at + 1}`} value=${value} spellcheck=${false} onInput=${(event) => change(at, 1, event.target.value)} />
        <button type="button" class="button slim" aria-label=${`Remove header ${visible(name, { isName: true }) || at + 1}`} onClick=${() => set(rows.filter((_, index) => index !== at))}>Remove</button>
      </div>`,
    )}
    <div><button type="button" class="button slim" onClick=${() => set([...rows, ["", ""]])}>Add a header</button></div>
    ${wrong && html`<div class="wrong" role="alert">${wrong}</div>`}
  </fieldset>`;
}

const FOLDED = { same: "as before", removed: "removed", added: "added" };

function Review({ before, body, changed, letter, to, broken }) {
  const lines = useMemo(() => (before.body === body ? [] : folded(diffLines(...laidOutPair(before.body, body)))), [before.body, body]);
  const isSame = !changed.body && changed.headers.length === 0;
  return html`
    ${broken && html`<p class="well bad" role="alert"><span>The body is no valid JSON any more, as it was before. A consumer that reads JSON will fail again.</span> <span class="small"><${Outside} text=${broken} /></span></p>`}
    ${isSame && html`<p class="well warn" role="status">Nothing is changed: the message goes exactly as it died.</p>`}
    <p>The letter goes, and the message enters <b><${Name} name=${to || letter.queue} /></b> in one step. ${!isSame && html`It carries the header <code>vibemq-edited</code>, and the audit keeps the size and SHA-256 of both bodies.`}</p>
    <h3>Body</h3>
    ${changed.body
      ? html`<div class="line-diff" role="region" aria-label="Changes of the body" tabindex="0">${lines.map((line) =>
          line.kind === "fold" ? html`<div class="fold"><span></span><span>… ${counted(line.count, "line")} ${FOLDED[line.of]}</span></div>` : html`<div class=${line.kind}><span aria-hidden="true">${{ added: "+", removed: "−", same: "" }[line.kind]}</span><span>${line.kind !== "same" && html`<span class="hidden-text">${line.kind}: </span>`}<${Outside} text=${line.text || " "} lines /></span></div>`,
        )}</div>`
      : html`<p class="muted">It stays as it is.</p>`}
    <h3>Headers</h3>
    ${changed.headers.length
      ? html`<div class="diff">${changed.headers.map(({ name, before: old, after }) => html`
          ${old !== null && html`<del><${Outside} text=${`${name}: ${old}`} /></del>`}${after !== null && html`<ins><${Outside} text=${`${name}: ${after}`} /></ins>`}`)}</div>`
      : html`<p class="muted">They stay as they are (${count(Object.keys(before.headers).length)}).</p>`}`;
}

/** JSON on one line would be one changed line: both are laid out for the comparison. */
function laidOutPair(before, after) {
  const [a, b] = [laidOut(before), laidOut(after)];
  return a !== null && b !== null ? [a, b] : [before, after];
}

// What a letter says of its message: the body, the headers of its producer, its earlier life.

const OWN_HEADERS = new Set(["vibemq-replay-of", "vibemq-replay-count", "vibemq-edited", "vibemq-dedup-id"]);

/** A body that fits into no answer is not there, only its size. */
export const hasBody = (letter) => typeof letter.payload === "string" || typeof letter.payload_base64 === "string";

/** Headers that the producer has set; the broker's own change with every replay. */
export function producerHeaders(headers) {
  return Object.fromEntries(Object.entries(headers ?? {}).filter(([name]) => !OWN_HEADERS.has(name)));
}

/** The letter that this message was before it was replayed, as its headers say; null for a first life. */
export function earlierLife(headers) {
  const id = headers?.["vibemq-replay-of"];
  return /^\d{1,18}$/.test(id ?? "") ? id : null;
}
