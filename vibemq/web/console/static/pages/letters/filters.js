// How the letters are narrowed down: the filter bar, the groups at the left, and what is said when nothing is left.
import { html, useEffect, useRef, useState } from "../../vendor/ui.js";
import { linkHere, setParams, stay, zone } from "../../parts/address.js";
import { get } from "../../parts/api.js";
import { onEnter } from "../../parts/filters.js";
import { Ago, At, Name, Outside } from "../../parts/text.js";
import { Sample, sampleOf } from "./kinds.js";
import { queryObject } from "./list.js";
import { count, counted, durationArgument, parseDuration } from "../../pure/format.js";
import { isChosenGroup, treeOf } from "../../pure/letter_groups.js";
import { REASON_NAMES, idsOf, isEmpty, partsOf, reasonHelp, reasonText, without } from "../../pure/letters.js";

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
      <${TextField} label="Error contains" name="error" size="20" value=${filter.error} set=${(error) => set({ error })} search />
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
  const given = String(value ?? "");
  const known = useRef(given);
  useEffect(() => {
    // What one types meanwhile stays, also before the field is shown for the first time.
    if (given === known.current) return;
    known.current = given;
    setText(given);
    setWrong(false);
  }, [given]);
  const done = (event) => {
    const typed = event.target.value.trim();
    const made = read(typed);
    setWrong(made === null);
    if (made === null) return false;
    if (typed !== given) {
      known.current = typed;
      set(made);
    }
    return true;
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
    ${partsOf(filter, sampleOf, zone.value === "utc").map(
      ({ part, label, value }) => html`<span class="chip"><span class="chip-text">${label}: <b><${Outside} text=${value} /></b></span>
        <button type="button" aria-label=${`Remove the filter ${label}`} onClick=${() => change(without(filter, part))}>×</button></span>`,
    )}
    <button type="button" class="button quiet slim" onClick=${() => change({})}>Clear all</button>
  </div>`;
}

// Dead letters by queue, reason and kind of error: what went wrong, how often, and since when.

const ORDERS = [
  ["count", "Most"],
  ["latest", "Latest"],
  ["queue", "Name"],
];
/** A choice of a group is a new question: what was narrowed by hand goes, and so do ticks and the page. */
const NOTHING_ELSE = {
  queue: null,
  reason: null,
  fingerprint: null,
  error: null,
  message_id: null,
  header: null,
  ids: null,
  from_id: null,
  to_id: null,
  cursor: null,
};

/** `groups`: of the API. `filter`: what is shown at the right. `more`: there are groups that did not fit. */
export function Groups({ groups, filter, order, more }) {
  const tree = treeOf(groups, order);
  const largest = Math.max(1, ...groups.map((group) => group.count));
  return html`<nav class="card groups" aria-label="Kinds of dead letters">
    <div class="groups-head">
      <h2>What went wrong</h2>
      <div class="segments" role="group" aria-label="Order of the groups">
        ${ORDERS.map(
          ([key, label]) =>
            html`<button type="button" aria-pressed=${order === key} onClick=${() => setParams({ groups: key === "count" ? null : key }, { replace: true })}>${label}</button>`,
        )}
      </div>
    </div>
    <ul class="group-list">
      <li><${Choice} wanted=${{}} filter=${filter} className="group-all"><span>All dead letters</span></${Choice}></li>
      ${tree.map((queue) => html`<${QueueGroup} queue=${queue} filter=${filter} largest=${largest} />`)}
    </ul>
    ${more && html`<p class="small muted">Only the first ${count(groups.length)} groups are listed. Choose a queue to see all of its groups.</p>`}
  </nav>`;
}

function QueueGroup({ queue, filter, largest }) {
  return html`<li class="group-queue">
    <${Choice} wanted=${{ queue: queue.key }} filter=${filter} className="group-name">
      <span><${Name} name=${queue.key} /></span><span class="num">${count(queue.count)}</span>
    </${Choice}>
    <ul>
      ${queue.reasons.map(
        (reason) => html`<li>
          <${Choice} wanted=${{ queue: queue.key, reason: reason.key }} filter=${filter} className="group-reason">
            <span>${reasonText(reason.key)}</span><span class="num">${count(reason.count)}</span>
          </${Choice}>
          <ul>
            ${reason.groups.map((group) => html`<li><${Kind} group=${group} filter=${filter} largest=${largest} /></li>`)}
          </ul>
        </li>`,
      )}
    </ul>
  </li>`;
}

function Kind({ group, filter, largest }) {
  const wanted = { queue: group.queue, reason: group.reason, fingerprint: group.fingerprint };
  return html`<${Choice} wanted=${wanted} filter=${filter} className="group-kind">
    <span class="group-sample"><${Sample} group=${group} /></span>
    <span class="group-figures">
      <b class="num">${count(group.count)}</b><span class="muted">last <${Ago} at=${group.last_at} /></span>
      ${group.count > 1 && html`<span class="muted first">first <${At} at=${group.first_at} /></span>`}
    </span>
    <${Share} part=${group.count / largest} />
  </${Choice}>`;
}

function Share({ part }) {
  const width = Math.max(1, Math.round(part * 100));
  return html`<svg class="share" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect width="100" height="4" class="share-all" /><rect width=${width} height="4" class="share-part" /></svg>`;
}

function Choice({ wanted, filter, className, children }) {
  const changes = { ...NOTHING_ELSE, ...wanted };
  const isChosen = isChosenGroup(filter, wanted);
  const element = useRef(null);
  useEffect(() => {
    if (isChosen) intoView(element.current);
  }, [isChosen]);
  const choose = (event) => {
    stay(event, changes);
    // Where the list stands below the groups, a choice would change nothing that is seen.
    if (event.defaultPrevented && matchMedia("(max-width: 1100px)").matches) document.querySelector(".letters > .right")?.scrollIntoView();
  };
  return html`<a ref=${element} class=${className} href=${linkHere(changes)} aria-current=${isChosen ? "true" : undefined} onClick=${choose}>${children}</a>`;
}

/** Within the box of the groups alone: the page does not move. */
function intoView(element) {
  const box = element.closest(".groups");
  const [inside, outside] = [element.getBoundingClientRect(), box.getBoundingClientRect()];
  if (inside.top < outside.top || inside.bottom > outside.bottom) box.scrollTop += inside.top - outside.top - outside.height / 3;
}

/** One sentence over the page: how many, where, how many kinds, how fresh. `isPart`: there are more groups, of which any may be the
 * latest. */
export function Summary({ sum, isPart }) {
  if (sum.count === 0) return null;
  return html`<p class="lead">
    ${isPart ? "More than " : ""}${counted(sum.count, "dead letter")} in ${counted(sum.queues, "queue")}, of ${counted(sum.kinds, "kind of error", "kinds of errors")}${isPart ? " and others." : "."}${!isPart && html` The last died <${Ago} at=${sum.last_at} />.`}
  </p>`;
}

// What stands there when no letter does.

export function NoLetters() {
  return html`<div class="empty">
    <h2>There are no dead letters</h2>
    <p>A message becomes a dead letter when its queue gives it up. It is kept here with the reason, the error that the consumer gave, and its whole body, until somebody replays or purges it.</p>
    <dl class="facts">
      ${REASON_NAMES.map((reason) => html`<dt>${reasonText(reason)}</dt><dd>${reasonHelp(reason)[0]}</dd>`)}
    </dl>
    <p>To see one, reject a message. In Python:</p>
    <pre class="code">${'[message] = mq.fetch("orders")\nmessage.reject("no such article")'}</pre>
  </div>`;
}

/** Says which part of the filter excludes letters: each part is left out once, and one letter is asked for. */
export function NothingFits({ filter, change }) {
  const parts = partsOf(filter, sampleOf, zone.value === "utc");
  const [others, setOthers] = useState(null);
  const key = JSON.stringify(filter);
  useEffect(() => {
    const leaving = new AbortController();
    setOthers(null);
    if (parts.length < 2) return;
    const ask = async () => {
      const found = [];
      // One by one: a filter on texts has the broker look at many letters.
      for (const { part } of parts) {
        const answer = await get("dead-letters", { ...queryObject(without(filter, part)), limit: 1 }, { signal: leaving.signal });
        if (answer.items.length > 0) found.push(part);
      }
      setOthers(found);
    };
    ask().catch((problem) => problem.name !== "AbortError" && setOthers([]));
    return () => leaving.abort();
  }, [key]);
  return html`<div class="empty" role="status">
    <h2>No dead letter fits this filter</h2>
    ${parts.length === 1 && html`<p>It has one part: ${parts[0].label} <b><${Outside} text=${parts[0].value} /></b>.</p>`}
    ${others === null && parts.length > 1 && html`<p class="muted">Looking which part excludes them…</p>`}
    ${others?.length > 0 && html`<p>Letters would fit without one of these parts:</p>`}
    ${others?.length === 0 && parts.length > 1 && html`<p>Without any one of them still none fits.</p>`}
    <div class="buttons">
      ${parts
        // Of the filter that stands now: the answer may be that of the filter before.
        .filter(({ part }) => others?.includes(part))
        .map(({ part, label, value }) => html`<button type="button" class="button slim" onClick=${() => change(without(filter, part))}>Without ${label} <${Outside} text=${value} /></button>`)}
      <button type="button" class="button slim" onClick=${() => change({})}>Clear all filters</button>
    </div>
  </div>`;
}
