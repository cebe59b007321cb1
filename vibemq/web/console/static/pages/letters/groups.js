// Dead letters by queue, reason and kind of error: what went wrong, how often, and since when.
import { html, useEffect, useRef } from "../../vendor/ui.js";
import { linkHere, setParams, stay } from "../../parts/address.js";
import { Ago, At, Name } from "../../parts/text.js";
import { count, counted } from "../../pure/format.js";
import { reasonText } from "../../pure/letter_filter.js";
import { Sample } from "./kinds.js";
import { isChosenGroup, treeOf } from "../../pure/letter_groups.js";

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
  const element = useRef();
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
