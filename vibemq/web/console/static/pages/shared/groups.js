// What may be done to a group of a queue: move it, limit it, delete it. Cursors are groups that read by ranges.
import { html, useState } from "../../vendor/ui.js";
import { patch, post, remove } from "../../parts/api.js";
import { Form, ask, say } from "../../parts/dialog.js";
import { Field, Segments } from "../../parts/filters.js";
import { Name } from "../../parts/text.js";
import { path } from "../../pure/commands.js";
import { isTyped } from "../../pure/names.js";
import { count, counted, durationArgument, parseDuration, parseSize } from "../../pure/format.js";

/** Of a row {queue, group}, as all below have it; also `backlog`, `tail` and `cursor`. */
export const groupPath = (row) => path`queues/${row.queue}/groups/${row.group}`;
const kindOf = ({ cursor }) => (cursor ? "cursor" : "group");

const STARTS = [["earliest", "The oldest message"], ["latest", "The end"], ["sequence", "A sequence"], ["time", "A time"]];

export function Seek({ row, onClose, onDone }) {
  const [kind, setKind] = useState("earliest");
  const [value, setValue] = useState("");
  const [typed, setTyped] = useState("");
  const instant = kind === "time" ? Date.parse(value) : null;
  const isFine = kind === "earliest" || kind === "latest" || (kind === "sequence" ? /^\d{1,16}$/.test(value) : Number.isFinite(instant));
  const startAt = kind === "sequence" ? `sequence:${value || "N"}` : kind === "time" ? `time:${isFine ? instant : "MS"}` : kind;
  const body = { start: startAt };
  const act = async (key) => {
    await post(`${groupPath(row)}/seek`, body, { key });
    say(html`The ${kindOf(row)} <${Name} name=${row.group} /> goes on at ${startAt}.`);
    onDone();
  };
  return html`<${Form} title=${html`Move ${kindOf(row)} <${Name} name=${row.group} />?`} button=${`Move 1 ${kindOf(row)}`} isReady=${isFine && isTyped(typed, row.group)} onClose=${onClose} act=${act}
    commands=${{ admin: [["group", "seek"], { options: { yes: true }, names: [row.queue, row.group, startAt] }], request: { method: "POST", path: `${groupPath(row)}/seek`, body } }}>
    <p>${row.cursor ? "Its reader is" : "Its consumers are"} stopped with <code>GROUP_FENCED</code> and must be started again; ${row.cursor ? "it then goes" : "they then go"} on at the new place. Going back, messages are read twice; going ahead, ${counted(row.backlog, "message")} or fewer stay unread.</p>
    <div class="field"><span class="label">To</span><${Segments} label="Where it goes on" value=${kind} options=${STARTS} onChange=${(next) => { setKind(next); setValue(""); }} /></div>
    ${kind === "sequence" && html`<${Field} label="Sequence" hint=${`The queue is at ${count(row.tail)}.`}>${(id, about) => html`<input id=${id} aria-describedby=${about} inputmode="numeric" value=${value} onInput=${(event) => setValue(event.target.value.trim())} />`}</${Field}>`}
    ${kind === "time" && html`<${Field} key="time" label="Time, in your zone">${(id) => html`<input id=${id} type="datetime-local" step="1" value=${value} onInput=${(event) => setValue(event.target.value)} />`}</${Field}>`}
    <${Field} label=${html`Type <b><${Name} name=${row.group} /></b> to confirm`}>${(id) => html`<input id=${id} autocomplete="off" spellcheck=${false} value=${typed} onInput=${(event) => setTyped(event.target.value)} />`}</${Field}>
  </${Form}>`;
}

export async function removeGroup(row, done) {
  if (await ask({
    title: html`Delete ${kindOf(row)} <${Name} name=${row.group} />?`,
    happens: html`<p>The queue <${Name} name=${row.queue} /> keeps nothing for it any more; ${counted(row.backlog, "message")} that it has not read ${row.backlog === 1 ? "goes" : "go"} unless another reader wants ${row.backlog === 1 ? "it" : "them"}. ${row.cursor ? "A running reader fails." : "Its consumers are stopped."}</p>`,
    reversible: "This cannot be taken back.",
    button: `Delete 1 ${kindOf(row)}`, typed: row.group, isDanger: true,
    commands: { admin: [["group", "rm"], { options: { yes: true }, names: [row.queue, row.group] }], request: { method: "DELETE", path: groupPath(row) } },
    act: () => remove(groupPath(row)),
  })) {
    say(html`The ${kindOf(row)} <${Name} name=${row.group} /> is deleted.`);
    done();
  }
}

const LIMITS = [
  { name: "hold_ms", label: "Keep what it has read for", flag: "hold", read: parseDuration, write: durationArgument, hint: "As 15m or 2h; 0: not at all." },
  { name: "max_lag_ms", label: "Expires when its oldest message is older than", flag: "max-lag", read: parseDuration, write: durationArgument, hint: "As 12h or 7d; 0: never." },
  { name: "max_lag_bytes", label: "Expires when it is further behind than", flag: "max-lag-size", read: parseSize, write: String, hint: "As 512MiB or 10GiB; 0: never." },
];

/** Limits of a cursor, of which only those that are changed are sent. */
export function Limits({ row, onClose, onDone }) {
  const [texts, setTexts] = useState({});
  const read = LIMITS.filter(({ name }) => name in texts).map((limit) => ({ ...limit, value: limit.read(texts[limit.name].trim() || "0") }));
  const changes = read.filter(({ name, value }) => value !== null && value !== row[name]);
  const isReady = changes.length > 0 && read.every(({ value }) => value !== null);
  const body = Object.fromEntries(changes.map(({ name, value }) => [name, value]));
  const act = async () => {
    await patch(groupPath(row), body);
    say(html`The limits of <${Name} name=${row.group} /> are changed.`);
    onDone();
  };
  return html`<${Form} title=${html`Limits of cursor <${Name} name=${row.group} />`} button=${`Change ${counted(changes.length, "limit")}`} isReady=${isReady} onClose=${onClose} act=${act}
    commands=${{ admin: [["group", "set"], { options: Object.fromEntries(changes.map(({ flag, write, value }) => [flag, value ? write(value) : "0"])), names: [row.queue, row.group] }], request: { method: "PATCH", path: groupPath(row), body } }}>
    <p>Its reader goes on. A cursor that is beyond a limit expires: the queue then keeps nothing for it any more.</p>
    ${LIMITS.map(({ name, label, hint, write }) => html`<${Field} key=${name} label=${label} hint=${hint} wrong=${read.some((one) => one.name === name && one.value === null) && "Write a number and its unit."}>${(id, about) => html`<input id=${id} aria-describedby=${about} autocomplete="off" value=${texts[name] ?? (row[name] ? write(row[name]) : "0")} onInput=${(event) => setTexts({ ...texts, [name]: event.target.value })} />`}</${Field}>`)}
  </${Form}>`;
}
