// The filter bar of dead letters. One filter counts for the list, the preview, a replay, a purge and an export.
import { html, useEffect, useState } from "../../vendor/ui.js";
import { onEnter } from "../../parts/filters.js";
import { Outside } from "../../parts/text.js";
import { durationArgument, parseDuration } from "../../pure/format.js";
import { sampleOf } from "./kinds.js";
import { REASON_NAMES, idsOf, isEmpty, partsOf, reasonText, without } from "../../pure/letters.js";

const AGES = [
  ["", "at any time"],
  ["newer:900000", "in the last 15 min"],
  ["newer:3600000", "in the last hour"],
  ["newer:86400000", "in the last day"],
  ["newer:604800000", "in the last week"],
  ["older:3600000", "over an hour ago"],
  ["older:86400000", "over a day ago"],
];
const FEW_USED = ["message_id", "header", "ids", "from_id", "to_id", "fingerprint", "replayed"];

/** `queues`: names that are suggested. `change(filter)`: sets another one. */
export function LetterFilters({ filter, queues, change }) {
  const [isOpen, setOpen] = useState(FEW_USED.some((name) => filter[name] !== undefined && name !== "fingerprint"));
  const [isShown, setShown] = useState(false);
  const set = (changes) => {
    const made = { ...filter, ...changes };
    change(Object.fromEntries(Object.entries(made).filter(([, value]) => value !== undefined && value !== "")));
  };
  const used = partsOf(filter).length;
  return html`<search class=${`card letter-filters ${isShown ? "shown" : ""}`}>
    <button type="button" class="button slim fold" aria-expanded=${String(isShown)} onClick=${() => setShown(!isShown)}>${isShown ? "Hide the filter fields" : used ? `Filter (${used} set)` : "Filter"}</button>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${TextField} label="Error contains" name="error" size="20" value=${filter.error} set=${(error) => set({ error })} search=${true} />
      <${TextField} label="Queue" name="queue" size="13" value=${filter.queue} list=${queues} set=${(queue) => set({ queue })} />
      <label class="field"><span class="label">Reason</span>
        <select name="reason" value=${filter.reason ?? ""} onChange=${(event) => set({ reason: event.target.value })}>
          <option value="">any</option>
          ${[...new Set([...REASON_NAMES, ...(filter.reason ? [filter.reason] : [])])].map(
            (reason) => html`<option value=${reason}>${reasonText(reason)}</option>`,
          )}
        </select>
      </label>
      <${Age} filter=${filter} set=${set} />
      <button type="button" class="button" aria-expanded=${String(isOpen)} aria-label=${isOpen ? "Fewer filters" : "More filters"} onClick=${() => setOpen(!isOpen)}>${isOpen ? "Fewer" : "More…"}</button>
    </form>
    ${isOpen && html`<${MoreFilters} filter=${filter} set=${set} />`}
    <${Chips} filter=${filter} change=${change} />
  </search>`;
}

function MoreFilters({ filter, set }) {
  const whole = (text) => (text === "" ? undefined : /^\d{1,15}$/.test(text) ? Number(text) : null);
  const [[name, value] = ["", ""]] = Object.entries(filter.header ?? {});
  return html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
    <${TextField} label="Message id" name="message_id" size="22" value=${filter.message_id} set=${(message_id) => set({ message_id })} />
    <${TextField} label="Header, as name:value" name="header" size="20" value=${name && `${name}:${value}`} read=${headerOf} wrong="Write name:value." set=${(pair) => set({ header: pair || undefined })} />
    <${TextField} label="Letter ids" placeholder="17,20-25" name="ids" size="14" value=${filter.ids} read=${(text) => (text === "" || idsOf(text) ? text : null)} wrong="Write ids and ranges, at most 10,000." set=${(ids) => set({ ids })} />
    <${TextField} label="From letter" name="from_id" size="9" value=${filter.from_id} read=${whole} wrong="Write a whole number." set=${(from_id) => set({ from_id })} />
    <${TextField} label="Up to letter" name="to_id" size="9" value=${filter.to_id} read=${whole} wrong="Write a whole number." set=${(to_id) => set({ to_id })} />
    <label class="field"><span class="label">Replayed before</span>
      <select name="replayed" value=${filter.replayed === undefined ? "" : String(filter.replayed)} onChange=${(event) => set({ replayed: { true: true, false: false }[event.target.value] })}>
        <option value="">any</option><option value="true">yes</option><option value="false">no</option>
      </select>
    </label>
  </form>`;
}

function headerOf(text) {
  if (text === "") return "";
  const at = text.indexOf(":");
  return at > 0 ? { [text.slice(0, at)]: text.slice(at + 1) } : null;
}

/** A text that counts when Enter is pressed or the field is left. `read` makes its value; null: it cannot be read. */
function TextField({ label, name, size, value, set, list, search = false, placeholder = "", read = (text) => text, wrong = "" }) {
  const [text, setText] = useState(value ?? "");
  const [isWrong, setWrong] = useState(false);
  useEffect(() => {
    setText(value ?? "");
    setWrong(false);
  }, [value]);
  const done = () => {
    const made = read(text.trim());
    setWrong(made === null);
    if (made !== null && String(text.trim()) !== String(value ?? "")) set(made);
    return made !== null;
  };
  const listId = `suggested-${name}`;
  return html`<label class="field"><span class="label">${label}</span>
    <input type=${search ? "search" : "text"} name=${name} size=${size} value=${text} placeholder=${placeholder} autocomplete="off" spellcheck="false" list=${list ? listId : undefined} data-filter=${search ? "" : undefined} aria-invalid=${isWrong ? "true" : undefined}
      onInput=${(event) => setText(event.target.value)} onChange=${done} onKeyDown=${onEnter(done)} />
    ${list && html`<datalist id=${listId}>${list.map((one) => html`<option value=${one} />`)}</datalist>`}
    ${isWrong && html`<span class="wrong" role="alert">${wrong}</span>`}
  </label>`;
}

function Age({ filter, set }) {
  const { newer_than_ms: newer, older_than_ms: older } = filter;
  const chosen = newer !== undefined ? `newer:${newer}` : older !== undefined ? `older:${older}` : "";
  const [own, setOwn] = useState(null);
  const choose = (event) => {
    const [kind, ms] = event.target.value.split(":");
    if (kind === "own") {
      setOwn(chosen.startsWith("older") ? "older" : "newer");
      return;
    }
    setOwn(null);
    set({ newer_than_ms: kind === "newer" ? Number(ms) : undefined, older_than_ms: kind === "older" ? Number(ms) : undefined });
  };
  const isListed = AGES.some(([value]) => value === chosen);
  return html`<label class="field"><span class="label">Died</span>
      <select name="age" value=${own ? "own" : chosen} onChange=${choose}>
        ${AGES.map(([value, label]) => html`<option value=${value}>${label}</option>`)}
        ${!isListed && html`<option value=${chosen}>${newer !== undefined ? "in the last " : "over "}${durationArgument(newer ?? older)}${newer !== undefined ? "" : " ago"}</option>`}
        <option value="own">other…</option>
      </select>
    </label>
    ${own &&
    html`<label class="field"><span class="label">Which</span><select value=${own} onChange=${(event) => setOwn(event.target.value)}><option value="newer">in the last</option><option value="older">longer ago than</option></select></label>
      <${TextField} label="Duration, as 1h30m" name="own_age" size="9" value="" read=${(text) => (text === "" ? "" : /^\d+$/.test(text) ? null : parseDuration(text))} wrong="Write a number and its unit, as 90m or 2d."
        set=${(ms) => {
          if (ms === "") return;
          setOwn(null);
          set({ newer_than_ms: own === "newer" ? ms : undefined, older_than_ms: own === "older" ? ms : undefined });
        }} />`}`;
}

/** What is filtered by, each part with a button that takes it out. */
function Chips({ filter, change }) {
  if (isEmpty(filter)) return null;
  return html`<div class="chips" role="group" aria-label="Filters in use">
    ${partsOf(filter, sampleOf).map(
      ({ part, label, value }) => html`<span class="chip"><span class="chip-text">${label}: <b><${Outside} text=${value} /></b></span>
        <button type="button" aria-label=${`Remove the filter ${label}`} onClick=${() => change(without(filter, part))}>×</button></span>`,
    )}
    <button type="button" class="button quiet slim" onClick=${() => change({})}>Clear all</button>
  </div>`;
}
