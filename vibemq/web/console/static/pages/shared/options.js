// The options of queues: what each means, what a change of it does, and what cannot be changed.
import { html, useState } from "../../vendor/ui.js";
import { get, may, patch, session } from "../../parts/api.js";
import { Commands } from "../../parts/command.js";
import { ask, say } from "../../parts/dialog.js";
import { Field } from "../../parts/filters.js";
import { Name } from "../../parts/text.js";
import { flag } from "./queue-create.js";
import { path } from "../../pure/commands.js";
import { count, counted, digits, duration, parseDuration, parseSize, size } from "../../pure/format.js";

const MODES = [
  ["round_robin", "round robin: each message to one consumer"],
  ["priority_based", "priority: the most important message first"],
  ["fan_out_with_ack", "fan-out: each message to every group, which settles it"],
  ["fan_out_without_ack", "fan-out without acks: settled by the hand-out"],
];
const DURABILITIES = [
  ["strong", "strong: confirmed when it is on the disk"],
  ["weak", "weak: confirmed when the system has it"],
  ["async", "async: confirmed at once, written soon"],
  ["transient", "transient: never written"],
];
const OVERFLOWS = [
  ["drop_newest", "drop newest: the new message is refused"],
  ["drop_oldest", "drop oldest: the oldest message is dropped"],
  ["block_publisher", "block publisher: the publisher waits"],
  ["redirect_to_dlq", "redirect to DLQ: the oldest becomes a dead letter"],
];

/** name, label, kind, meaning, `isNullable`: no limit is null, `change`: what a change does to what is there, `forLife`: why it cannot be changed, `none`: what 0
 * or null means, `group`: the heading it stands under. */
export const OPTIONS = [
  { name: "mode", label: "Mode", kind: "choice", choices: MODES, group: "Delivery", meaning: "Who is given a message.", forLife: "It decides how the queue keeps its messages." },
  { name: "durability", label: "Durability", kind: "choice", choices: DURABILITIES, group: "Delivery", meaning: "When a publish is confirmed, and what a crash can lose.", change: "For messages that come from now on. From and to transient it cannot be changed." },
  { name: "retention", label: "Kept until", kind: "choice", choices: [["settled", "settled: deleted when all groups are done"], ["log", "log: kept within the limits below"]], group: "Delivery", meaning: "How long messages stay.", forLife: "A log and a queue keep their messages in different ways." },
  { name: "max_messages", label: "Most messages", kind: "count", none: "no limit", group: "Limits", meaning: "Most waiting messages.", change: "If more are waiting, they stay; the overflow applies to the next publish." },
  { name: "max_bytes", label: "Most bytes", kind: "bytes", none: "no limit", group: "Limits", meaning: "Most bytes of waiting messages.", change: "If more are waiting, they stay; the overflow applies to the next publish." },
  { name: "overflow", label: "When it is full", kind: "choice", choices: OVERFLOWS, group: "Limits", meaning: "What happens at a limit.", change: "From the next publish on." },
  { name: "message_ttl_ms", label: "Messages expire after", kind: "ms", isNullable: true, none: "no limit", group: "Limits", meaning: "Messages that wait longer expire.", change: "Also for messages that wait now: older ones expire at once." },
  { name: "max_attempts", label: "Attempts", kind: "count", group: "Failures", meaning: "Failed attempts after which a message becomes a dead letter.", change: "From the next failure on." },
  { name: "ack_timeout_ms", label: "Time to settle", kind: "ms", none: "no limit", group: "Failures", meaning: "How long a consumer may hold a message without settling it.", change: "For messages that are handed out from now on." },
  { name: "retry_base_ms", label: "First retry after", kind: "ms", none: "at once", group: "Failures", meaning: "Delay after the first failure; it doubles with each further one.", change: "From the next failure on." },
  { name: "retry_max_ms", label: "Longest retry delay", kind: "ms", none: "no limit", group: "Failures", meaning: "Longest delay after a failure.", change: "From the next failure on." },
  { name: "lost_connection", label: "Lost connection", kind: "choice", choices: [["fail", "fail: a failed attempt is counted"], ["release", "release: nothing is counted"]], group: "Failures", meaning: "What the loss of a consumer's connection means for what it held.", change: "From the next lost connection on." },
  { name: "hold_behind_failed", label: "Keep the order", kind: "switch", group: "Failures", meaning: "A message that has failed keeps its place; what is behind it waits.", change: "Switched off, messages that wait behind a failed one go on at once." },
  { name: "dead_letter", label: "Dead letters", kind: "switch", group: "Failures", meaning: "Messages that fail, expire or are rejected become dead letters; if not, they are dropped.", change: "Switched off, later failures leave nothing behind." },
  { name: "highest_priority_only", label: "Highest priority only", kind: "switch", group: "Special", meaning: "Of the subscribers without a group, only those of the highest priority are given messages (fan-out).", change: "From the next message on." },
  { name: "dedup_window_ms", label: "Duplicates refused for", kind: "ms", none: "no deduplication", group: "Special", meaning: "How long ids of messages are remembered, to refuse them a second time.", change: "A shorter window forgets older ids." },
  { name: "retain_ms", label: "Longest age in the log", kind: "ms", none: "no limit", group: "Log", meaning: "Messages of a log that are older may be deleted.", change: "A smaller limit deletes what is beyond it." },
  { name: "retain_messages", label: "Most messages in the log", kind: "count", none: "no limit", group: "Log", meaning: "Most messages of a log.", change: "A smaller limit deletes the oldest beyond it." },
  { name: "retain_bytes", label: "Most bytes in the log", kind: "bytes", none: "no limit", group: "Log", meaning: "Most bytes of a log.", change: "A smaller limit deletes the oldest beyond it." },
  { name: "expires_ms", label: "Deleted when unused for", kind: "ms", none: "never", group: "End of the queue", meaning: "The queue is deleted when nobody has used it for so long.", change: "The time begins anew with the change." },
  { name: "auto_delete", label: "Deleted with its last consumer", kind: "switch", group: "End of the queue", meaning: "The queue is deleted when its last consumer has left.", change: "With the next consumer that leaves as the last." },
  { name: "exclusive", label: "Of one connection", kind: "switch", group: "End of the queue", meaning: "The queue belongs to one connection and ends with it.", forLife: "It is decided when the queue is made." },
];

export const GROUPS = ["Delivery", "Limits", "Failures", "Log", "End of the queue", "Special"];

/** What a new queue has where nothing else is said: the broker's setting `queue_defaults`. */
export const usual = ({ name }) => session.value?.queue_defaults[name];

/** A value as people read it. */
export function shownValue(option, value) {
  if ((value === null || value === 0) && option.none) return option.none;
  if (option.kind === "ms") return duration(value);
  if (option.kind === "bytes") return size(value);
  if (option.kind === "count") return value >= Number.MAX_SAFE_INTEGER ? "no limit" : count(value);
  if (option.kind === "switch") return value ? "yes" : "no";
  const chosen = option.choices?.find(([choice]) => choice === value)?.[1] ?? String(value).replaceAll("_", " ");
  return chosen.split(":")[0];
}

/** As the field has it; the text that `readValue` reads as the same value. */
export function fieldValue(option, value) {
  if (option.kind === "switch" || option.kind === "choice") return value;
  if (value === null || value === undefined) return "";
  if (option.kind === "ms" && value % 1000 === 0 && value !== 0) return `${value / 1000}s`;
  if (option.kind === "ms" && value !== 0) return `${value}ms`;
  return digits(value);
}

/** [value, what is wrong with the text]. */
export function readValue(option, text) {
  if (option.kind === "switch" || option.kind === "choice") return [text, ""];
  const plain = String(text).trim();
  if (plain === "") return [option.isNullable ? null : 0, ""];
  if (option.kind === "ms") {
    const ms = parseDuration(plain);
    return ms === null ? [null, "Write a duration, as 250ms, 30s, 5m, 2h or 7d."] : [ms, ""];
  }
  if (option.kind === "bytes") {
    const bytes = parseSize(plain);
    return bytes === null ? [null, "Write a size, as 1048576, 512KiB or 2GiB."] : [bytes, ""];
  }
  return /^\d+$/.test(plain) ? [Number(plain), ""] : [null, "Write a whole number, 0 or more."];
}

// One option of a queue as a field.

export function OptionField({ option, value, onChange, wrong, isFixed, hint }) {
  if (option.kind === "switch") {
    return html`<div class="field"><label class="check"><input type="checkbox" checked=${Boolean(value)} disabled=${isFixed} onChange=${(event) => onChange(event.target.checked)} /><span>${option.label} <code>${option.name}</code></span></label><div class="hint">${option.meaning} ${hint}</div></div>`;
  }
  return html`<${Field} label=${html`${option.label} <code>${option.name}</code>`} hint=${html`${option.meaning} ${option.none && option.kind !== "choice" ? `0: ${option.none}. ` : ""}${hint}`} wrong=${wrong}>${(id, about) =>
    option.kind === "choice"
      ? html`<select id=${id} aria-describedby=${about} disabled=${isFixed} value=${value} onChange=${(event) => onChange(event.target.value)}>${option.choices.map(([choice, text]) => html`<option value=${choice} selected=${choice === value}>${text}</option>`)}</select>`
      : html`<input id=${id} aria-describedby=${about} aria-invalid=${wrong ? "true" : undefined} disabled=${isFixed} value=${value} placeholder=${option.none ?? ""} autocomplete="off" onInput=${(event) => onChange(event.target.value)} />`}</${Field}>`;
}

// The options of a queue: value, default, meaning, what a change does; and the form, which shows what it would change.

export function Options({ data, etag, onChange }) {
  const [form, setForm] = useState(null);
  return form === null
    ? html`<${Listed} data=${data} onEdit=${may("create", data.queue) ? () => setForm({ base: data.options, etag, texts: {} }) : null} />`
    : html`<${Form} data=${data} form=${form} setForm=${setForm} onChange=${onChange} />`;
}

function Listed({ data, onEdit }) {
  return html`<div class="title"><h2>Options</h2><span class="push"></span>${onEdit && html`<button type="button" class="button" onClick=${onEdit}>Change options</button>`}</div>
    ${GROUPS.map((group) => html`<div class="table-box"><div class="table-scroll" role="region" aria-label=${group} tabindex="0"><table class="options">
      <caption>${group}</caption>
      <thead><tr><th scope="col">Option</th><th scope="col">Value</th><th scope="col">Default</th><th scope="col">Meaning</th><th scope="col">A change</th></tr></thead>
      <tbody>${OPTIONS.filter((option) => option.group === group && option.name in data.options).map((option) => {
        const value = data.options[option.name];
        const isUsual = value === usual(option);
        return html`<tr><th scope="row">${option.label}<br /><code>${option.name}</code></th><td class="tight">${isUsual ? shownValue(option, value) : html`<strong>${shownValue(option, value)}</strong>`}</td><td class="tight muted">${isUsual ? "is the default" : shownValue(option, usual(option))}</td><td class="wrap">${option.meaning}</td><td class="wrap muted">${option.forLife ? html`Cannot be changed. ${option.forLife}` : option.change}</td></tr>`;
      })}</tbody></table></div></div>`)}`;
}

function Form({ data, form, setForm, onChange }) {
  const { base, texts } = form;
  const read = OPTIONS.filter((option) => option.name in texts).map((option) => [option, ...readValue(option, texts[option.name])]);
  const changes = read.filter(([option, value, wrong]) => !wrong && value !== base[option.name]);
  const isWrong = read.some(([, , wrong]) => wrong);
  const body = Object.fromEntries(changes.map(([option, value]) => [option.name, value ?? 0]));
  const request = { method: "PATCH", path: path`queues/${data.queue}`, body, headers: { "if-match": form.etag } };
  const save = async () => {
    const done = await ask({
      title: html`Change ${counted(changes.length, "option")} of <${Name} name=${data.queue} />?`,
      happens: html`<${Diff} base=${base} changes=${changes} /><ul class="plain">${changes.map(([option]) => html`<li><code>${option.name}</code>: ${option.change}</li>`)}</ul>`,
      reversible: "It can be changed back. What has happened by then stays so.",
      button: `Change ${counted(changes.length, "option")}`,
      commands: { admin: [["queue", "change"], { options: Object.fromEntries(Object.entries(body).map(flag)), names: [data.queue] }], request },
      act: async () => {
        try {
          await patch(request.path, body, { ifMatch: form.etag });
          return { changed: true };
        } catch (problem) {
          if (problem.status !== 412) throw problem;
          const race = await current(data.queue);
          // Where the answer to a first press was lost, that one may have changed them.
          return changes.every(([option, value]) => race.options[option.name] === value) ? { changed: true } : { race };
        }
      },
    });
    if (done?.race) setForm({ ...form, race: done.race });
    else if (done) {
      say(`Changed ${counted(changes.length, "option")}.`);
      setForm(null);
      onChange();
    }
  };
  const set = (name, value) => setForm({ ...form, texts: { ...texts, [name]: value } });
  return html`
    ${form.race && html`<${Race} form=${form} changes=${changes} setForm=${setForm} />`}
    <form class="card form" data-keep onSubmit=${(event) => { event.preventDefault(); if (changes.length && !isWrong) save(); }}>
      <h2>Change options</h2>
      ${GROUPS.map((group) => html`<fieldset class="form"><legend><h3>${group}</h3></legend><div class="two">${OPTIONS.filter((option) => option.group === group).map((option) => html`<${OptionField} key=${option.name} option=${option} isFixed=${Boolean(option.forLife)} value=${texts[option.name] ?? fieldValue(option, base[option.name])} wrong=${read.find(([one]) => one === option)?.[2]} hint=${option.forLife ? html`<strong>Cannot be changed.</strong> ${option.forLife}` : option.change} onChange=${(value) => set(option.name, value)} />`)}</div></fieldset>`)}
      <section><h3>What would change</h3>${changes.length ? html`<${Diff} base=${base} changes=${changes} />` : html`<p class="muted">Nothing yet.</p>`}</section>
      <div class="buttons"><button type="submit" class="button main" disabled=${!changes.length || isWrong}>Change ${changes.length ? counted(changes.length, "option") : "options"}…</button><button type="button" class="button" onClick=${() => setForm(null)}>Leave as it is</button></div>
    </form>
    <${Commands} request=${request} />`;
}

async function current(queue) {
  let etag = "";
  const data = await get(path`queues/${queue}`, {}, { onAnswer: (response) => { etag = response.headers.get("etag") ?? ""; } });
  return { options: data.options, etag };
}

/** Somebody was faster: what they changed, what one wants to change, and what shall hold. */
function Race({ form, changes, setForm }) {
  const { race, base, texts } = form;
  const theirs = OPTIONS.filter(({ name }) => race.options[name] !== base[name]);
  const both = theirs.filter(({ name }) => changes.some(([option]) => option.name === name));
  const merge = (keepTheirs) => setForm({
    base: race.options,
    etag: race.etag,
    texts: Object.fromEntries(Object.entries(texts).filter(([name]) => !keepTheirs || !both.some((option) => option.name === name))),
  });
  return html`<section class="card" role="alert"><h2>The options have been changed meanwhile</h2>
    <p>While this form was open, somebody changed ${counted(theirs.length, "option")}. Nothing of yours was saved.</p>
    <${Diff} base=${base} changes=${theirs.map((option) => [option, race.options[option.name]])} />
    ${both.length > 0 && html`<p>You both changed ${both.map(({ name }) => html`<code>${name}</code> `)}. Which value shall hold?</p>`}
    <div class="buttons"><button type="button" class="button main" onClick=${() => merge(false)}>${both.length ? "Mine, on top of theirs" : "Put my changes on top of theirs"}</button>${both.length > 0 && html`<button type="button" class="button" onClick=${() => merge(true)}>Theirs</button>`}<button type="button" class="button" onClick=${() => setForm(null)}>Give up my changes</button></div>
  </section>`;
}

const Diff = ({ base, changes }) => html`<div class="diff">${changes.map(([option, value]) => html`<div><del>${option.name}: ${shownValue(option, base[option.name])}</del> <ins>${option.name}: ${shownValue(option, value)}</ins></div>`)}</div>`;
