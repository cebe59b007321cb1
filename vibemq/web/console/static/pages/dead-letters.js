// Dead letters: what went wrong, which letters, and what may be done with all that fit or with some of them.
import { html, useState } from "../vendor/ui.js";
import { params, setParams } from "../parts/address.js";
import { Commands } from "../parts/command.js";
import { useData } from "../parts/data.js";
import { start } from "../parts/frame.js";
import { may } from "../parts/api.js";
import { Empty, Loaded } from "../parts/text.js";
import { emptyPage } from "../pure/format.js";
import { sumOf, withGroupsOf } from "../pure/letter_groups.js";
import { bodyOfFilter, filterOfSearch, hasOptions, isEmpty, lettersOf, meantOf, optionsOfFilter, searchOfFilter } from "../pure/letters.js";
import { Groups, LetterFilters, NoLetters, NothingFits, Summary } from "./letters/filters.js";
import { remember } from "./letters/kinds.js";
import { ReplayDialog, exportLetters, purge, usePreview } from "./letters/actions.js";
import { addressObject, LetterTable, queryObject } from "./letters/list.js";

const LIMIT = 50;
/** The most of one page. */
const GROUPS_MAX = 1000;
const FILTERS = ["queue", "reason", "fingerprint", "error", "message_id", "older_than_ms", "newer_than_ms", "since", "until", "from_id", "to_id", "replayed", "header", "ids"];
const NONE = Object.fromEntries(FILTERS.map((name) => [name, null]));

function DeadLetters() {
  const filter = filterOfSearch(new URLSearchParams(params.value && location.search));
  const { cursor, order = "newest", groups: groupOrder = "count" } = params.value;
  const change = (made) => setParams({ ...NONE, cursor: null, ...addressObject(made) });
  const query = { ...queryObject(filter), order, limit: LIMIT, cursor };
  const found = useData("dead-letters", { query });
  const grouped = useData("dead-letters/groups", { query: { limit: GROUPS_MAX } });
  const key = searchOfFilter(filter).join("\n");
  const [ticks, setTicks] = useState({ key, ids: new Set(), letters: [] });
  const ticked = ticks.key === key ? ticks.ids : new Set();
  // Those of other pages as well, whose queues are known from when they were ticked.
  const letters = [...ticks.letters, ...(found.data?.items ?? [])];
  const tick = (ids) => setTicks({ key, ids, letters: lettersOf(ids, letters) });
  const [dialog, setDialog] = useState(null);
  const own = useOwnGroups(filter.queue, grouped.data?.next);
  const groups = withGroupsOf(filter.queue, grouped.data?.items ?? [], own?.items);
  remember(groups);
  const sum = useSum(filter, groups, grouped.data && { isWhole: !(own ?? grouped.data).next });
  const meant = meantOf(filter, ticked, letters);
  // A job that names no queue needs the rights on every queue, whatever letters it takes.
  const place = meant.queue ?? "*";
  const rights = { purge: may("purge", place), exportJob: may("inspect", place), replay: may("purge", place) && may("publish", place) };
  const open = (kind) => {
    if (kind === "replay") setDialog({ filter: meant, count: ticked.size || sum?.count });
    else if (kind === "export") exportLetters(meant, sum?.exact ? sum.count : null);
    else purge(meant, () => { found.refresh(); grouped.refresh(); tick(new Set()); });
  };
  const isNone = grouped.data && groups.length === 0 && isEmpty(filter) && found.data?.items.length === 0;
  const [emptyTitle, emptyText] = emptyPage(found.data, cursor, "letter") ?? [];
  const nothing = isEmpty(filter) ? html`<${NoLetters} />` : html`<${NothingFits} filter=${filter} change=${change} />`;
  const empty = emptyTitle ? html`<${Empty} title=${emptyTitle}><p role="status">${emptyText}</p></${Empty}>` : nothing;
  return html`
    <div class="title"><h1>Dead letters</h1></div>
    ${grouped.data && html`<${Summary} sum=${sumOf(groups)} isPart=${Boolean(grouped.data.next)} />`}
    ${isNone
      ? html`<div class="card"><${NoLetters} /></div>`
      : html`<div class="letters">
          <${Loaded} found=${grouped} what="Counting">${(data) => html`<${Groups} groups=${groups} filter=${filter} order=${groupOrder} more=${Boolean(data.next)} />`}</${Loaded}>
          <div class="right">
            <${LetterFilters} filter=${filter} queues=${[...new Set(groups.map((group) => group.queue))]} change=${change} />
            <${Loaded} found=${found} what="Loading letters">${() => html`<${LetterTable} found=${found} filter=${filter} sum=${sum} ticked=${ticked} meant=${meant}
              onTick=${tick} may=${rights} open=${open} empty=${empty} order=${order} />`}</${Loaded}>
            <${Commands} admin=${hasOptions(filter) && [["dlq", "ls"], { options: { ...optionsOfFilter(filter), newest: order !== "oldest", limit: LIMIT } }]} more=${[{ label: "Groups", admin: [["dlq", "groups"]], request: { path: "dead-letters/groups" } }]} request=${{ path: "dead-letters", query }} />
          </div>
        </div>`}
    ${dialog && html`<${ReplayDialog} filter=${dialog.filter} onClose=${() => setDialog(null)} />`}`;
}

/** Where there are more groups than one page has: those of the queue that is chosen, when they are there. */
function useOwnGroups(queue, next) {
  const own = useData(queue && next ? "dead-letters/groups" : null, { query: { queue, limit: GROUPS_MAX } });
  return queue && next && !own.isOld ? own.data : undefined;
}

/** How many letters fit: by the groups where all of them are `known`, else by a preview. Null until it is known. */
function useSum(filter, groups, known) {
  const { queue, reason, fingerprint, ...others } = filter;
  const isByGroup = Object.keys(others).length === 0 && known?.isWhole;
  const preview = usePreview(isByGroup || !known ? null : { filter: bodyOfFilter(filter) });
  if (!known) return null;
  if (!isByGroup) return preview.data ? { count: preview.data.count, exact: preview.data.exact } : null;
  const fits = (group) =>
    (queue === undefined || group.queue === queue) && (reason === undefined || group.reason === reason) && (fingerprint === undefined || group.fingerprint === fingerprint);
  return { count: sumOf(groups.filter(fits)).count, exact: true };
}

start(DeadLetters);
