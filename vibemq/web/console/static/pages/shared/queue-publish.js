// Publish a message, and hear what became of it.
import { html, useState } from "../../vendor/ui.js";
import { assigned, path } from "../../pure/commands.js";
import { count, parseDuration } from "../../pure/format.js";
import { jsonProblem, laidOut, tokens } from "../../pure/body.js";
import { link } from "../../parts/address.js";
import { post } from "../../parts/api.js";
import { Commands } from "../../parts/command.js";
import { Modal, useSending } from "../../parts/dialog.js";
import { Field } from "../../parts/filters.js";
import { Name, Trouble } from "../../parts/text.js";

const PRIORITIES = [["", "normal"], ["low", "low"], ["high", "high"], ["critical", "critical"]];

/** By number. Those above have no name. */
const NAMES = ["low", "", "high", "critical"];

const priorityOf = (like) => (like ? NAMES[like.priority] ?? String(like.priority) : "");

/** `like`: a message whose body, headers and priority the form begins with. */
export function Publish({ queue, onClose, like }) {
  const [body, setBody] = useState(like?.payload ?? '{"number": 1}');
  const [headers, setHeaders] = useState(Object.entries(like?.headers ?? {}).filter(([name]) => !name.startsWith("vibemq-") && name !== "priority").map(([name, value]) => ({ name, value })));
  const [extras, setExtras] = useState({ priority: priorityOf(like), ttl: "", delay: "", dedup_id: "", id: "" });
  const priorities = !like || like.priority < NAMES.length ? PRIORITIES : [...PRIORITIES, [priorityOf(like), priorityOf(like)]];
  const [sent, setSent] = useState([]);
  const isJson = tokens(body) !== null;
  const looksLikeJson = /^\s*[[{]/.test(body);
  const set = (name) => (event) => setExtras({ ...extras, [name]: event.target.value });
  const [ttl, delay] = [extras.ttl, extras.delay].map((text) => (text.trim() ? parseDuration(text) : undefined));
  const message = messageOf({ body, headers, ...extras, ttl, delay });
  // As a line: one may be as large as a message, and a body of JSON may not.
  const request = { method: "POST", path: path`queues/${queue}/messages`, headers: { "content-type": "application/x-ndjson" }, data: JSON.stringify(message) };
  // A message that is sent again has the key of before, and another one has its own, also where it is the same once more.
  const { send, problem, isUnderWay } = useSending([request.data, sent.length], async (key) => {
    const answer = await post(request.path, undefined, { raw: request.data, headers: request.headers, key });
    setSent([...sent, answer]);
  });
  const header = assigned(headers.filter(({ name }) => name).map(({ name, value }) => [name, value]));
  const footer = html`<button type="button" class="button" disabled=${isUnderWay} onClick=${onClose}>Close</button><button type="submit" class="button main" disabled=${isUnderWay}>Publish ${sent.length ? "another" : "message"}</button>`;
  return html`<${Modal} broad title=${html`Publish to <${Name} name=${queue} />`} onClose=${onClose} onSubmit=${() => ttl !== null && delay !== null && send()} footer=${footer} isUnderWay=${isUnderWay}>
    <${Field} label="Body" hint=${isJson ? "It is valid JSON." : looksLikeJson ? `It begins like JSON and is none: ${jsonProblem(body)} It can be published as it is.` : "Text, as it is."}>${(id, about) => html`<textarea id=${id} aria-describedby=${about} value=${body} autofocus spellcheck=${false} onInput=${(event) => setBody(event.target.value)}></textarea>`}</${Field}>
    ${isJson && html`<div><button type="button" class="button slim" onClick=${() => setBody(laidOut(body))}>Lay out</button></div>`}
    <fieldset class="form"><legend>Headers</legend>
      ${headers.map((header, at) => html`<div class="buttons" key=${at}>
        <input aria-label="Name of the header" placeholder="name" value=${header.name} onInput=${(event) => setHeaders(headers.map((one, i) => (i === at ? { ...one, name: event.target.value } : one)))} />
        <input aria-label="Value of the header" placeholder="value" value=${header.value} onInput=${(event) => setHeaders(headers.map((one, i) => (i === at ? { ...one, value: event.target.value } : one)))} />
        <button type="button" class="close" aria-label="Remove this header" onClick=${() => setHeaders(headers.filter((_, i) => i !== at))}>×</button></div>`)}
      <div><button type="button" class="button slim" onClick=${() => setHeaders([...headers, { name: "", value: "" }])}>Add a header</button></div>
    </fieldset>
    <details><summary>Priority, delay, time to live, ids</summary><div class="form two-up"><div class="two">
      <${Field} label="Priority">${(id) => html`<select id=${id} value=${extras.priority} onChange=${set("priority")}>${priorities.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>`}</${Field}>
      <${Field} label="Deliver after" wrong=${delay === null && "Write a duration, as 30s or 5m."}>${(id) => html`<input id=${id} value=${extras.delay} placeholder="at once" onInput=${set("delay")} />`}</${Field}>
      <${Field} label="Expires after" wrong=${ttl === null && "Write a duration, as 30s or 5m."}>${(id) => html`<input id=${id} value=${extras.ttl} placeholder="never" onInput=${set("ttl")} />`}</${Field}>
      <${Field} label="Id for deduplication" hint="A second message with it is not stored again.">${(id, about) => html`<input id=${id} aria-describedby=${about} value=${extras.dedup_id} placeholder="one of its own" onInput=${set("dedup_id")} />`}</${Field}>
    </div></div></details>
    ${problem && html`<${Trouble} problem=${problem} />`}
    ${sent.length > 0 && html`<${Sent} queue=${queue} answer=${sent.at(-1)} />`}
    <${Commands} admin=${header && [["pub"], { program: "vibemq", options: { priority: extras.priority, header, ttl: extras.ttl, delay: extras.delay, "dedup-id": extras.dedup_id }, names: [queue, body] }]} request=${request} />
  </${Modal}>`;
}

/** What has become of a message. */
function Sent({ queue, answer }) {
  const number = (sequence) => html`<a href=${link("message", { queue, sequence })}>message ${count(sequence)}</a>`;
  const [duplicate] = answer.duplicates ?? [];
  if (duplicate) return html`<p class="well warn" role="status">A message with this id for deduplication is known already, ${number(duplicate.sequence)}. This one was not stored.</p>`;
  return html`<p class="well good" role="status">Published and confirmed${answer.first_sequence ? html` as ${number(answer.first_sequence)}` : ""}.</p>`;
}

function messageOf({ body, headers, priority, ttl, delay, dedup_id }) {
  const hasType = headers.some(({ name }) => name.trim().toLowerCase() === "content-type");
  const named = headers.filter(({ name }) => name.trim());
  const given = {
    payload: body,
    content_type: tokens(body) === null && !hasType ? "text/plain" : undefined,
    headers: named.length ? Object.fromEntries(named.map(({ name, value }) => [name.trim(), value])) : undefined,
    priority: /^\d+$/.test(priority) ? Number(priority) : priority || undefined,
    ttl_ms: ttl ?? undefined,
    delay_ms: delay ?? undefined,
    dedup_id: dedup_id.trim() || undefined,
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}
