// Dead letters by queue, reason and kind of error: what went wrong, how often, and since when.
import { html, useEffect, useRef, useState } from "../../vendor/ui.js";
import { linkHere, setParams, stay } from "../../parts/address.js";
import { get } from "../../parts/api.js";
import { Ago, At, Name, Outside } from "../../parts/text.js";
import { Sample, sampleOf } from "./kinds.js";
import { queryObject } from "./list.js";
import { count, counted } from "../../pure/format.js";
import { REASON_NAMES, isChosenGroup, partsOf, reasonHelp, reasonText, treeOf, without } from "../../pure/letters.js";

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

/** How large a group is beside the largest one. */
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

/** One sentence over the page: how many, where, how many kinds, how fresh. */
export function Summary({ sum }) {
  if (sum.count === 0) return null;
  return html`<p class="lead">
    ${counted(sum.count, "dead letter")} in ${counted(sum.queues, "queue")}, of ${counted(sum.kinds, "kind of error", "kinds of errors")}.
    The last died <${Ago} at=${sum.last_at} />.
  </p>`;
}

// What stands there when no letter does: there are none at all, or the filter fits none.

export function NoLetters() {
  return html`<div class="empty">
    <h2>There are no dead letters</h2>
    <p>A message becomes a dead letter when its queue gives it up. It is kept here with the reason, the error that the consumer gave, and its whole body, until somebody replays or purges it.</p>
    <dl class="facts">
      ${REASON_NAMES.map((reason) => html`<dt>${reasonText(reason)}</dt><dd>${reasonHelp(reason)[0]}</dd>`)}
    </dl>
    <p>To see one, reject a message with a reason. In Python:</p>
    <pre class="code">${'[message] = mq.fetch("orders")\nmessage.reject("no such article")'}</pre>
  </div>`;
}

/** Says which part of the filter excludes letters: each part is left out once, and one letter is asked for. */
export function NothingFits({ filter, change }) {
  const parts = partsOf(filter, sampleOf);
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
    ${others?.length === 0 && parts.length > 1 && html`<p>No single part is the cause: with any one of them left out, still none fits.</p>`}
    <div class="buttons">
      ${(others ?? []).map((part) => {
        const { label, value } = parts.find((one) => one.part === part);
        return html`<button type="button" class="button slim" onClick=${() => change(without(filter, part))}>Without ${label} <bdi>${value}</bdi></button>`;
      })}
      <button type="button" class="button slim" onClick=${() => change({})}>Clear all filters</button>
    </div>
  </div>`;
}
