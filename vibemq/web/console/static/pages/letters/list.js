// The letters of a filter as a table, with what may be done to all of them or to the ticked ones above it.
import { html, useState } from "../../vendor/ui.js";
import { link, params } from "../../parts/address.js";
import { useSteady } from "../../parts/data.js";
import { urlOf } from "../../parts/api.js";
import { Table } from "../../parts/table.js";
import { Ago, Count, Name, Outside, useLive } from "../../parts/text.js";
import { isHidden } from "../../pure/body.js";
import { count, counted } from "../../pure/format.js";
import { isSmallExport } from "../../pure/jobs.js";
import { queryOfFilter, reasonText, searchOfFilter } from "../../pure/letters.js";
import { visible } from "../../pure/symbols.js";

const asQuery = (pairs) => {
  const made = {};
  for (const [name, value] of pairs) made[name] = [...(made[name] ?? []), value];
  return made;
};
export const queryObject = (filter) => asQuery(queryOfFilter(filter));
export const addressObject = (filter) => asQuery(searchOfFilter(filter));

/** The page of one letter; it knows the filter, so that one can go on to the next letter from there. */
/** `of`: the letter's queue, which has to be named by who may not inspect all queues. */
export const letterLink = (id, of, filter = {}) => {
  const { ids: _ticks, ...rest } = filter;
  return link("letter", { id, of, ...addressObject(rest) });
};

export function LetterTable({ found, filter, meant, sum, ticked, onTick, may, open, empty, order }) {
  const [again, setAgain] = useState(0);
  const given = found.data?.items ?? [];
  const letters = useSteady(given, ({ dead_id }) => dead_id, JSON.stringify([filter, order, params.value.cursor, found.isOld, again]));
  const hasMoved = letters.some((row, at) => row !== given[at]);
  const columns = [
    { key: "id", label: "Letter", isHead: true, isTight: true, cell: (row) => html`<a data-open href=${letterLink(row.dead_id, row.queue, filter)}>${row.dead_id}</a>` },
    { key: "died", label: "Dead for", className: "letter-age", cell: (row) => html`<${Ago} at=${row.dead_at} suffix="" />` },
    (!filter.queue || !filter.reason) && { key: "queue", label: filter.queue ? "Reason" : filter.reason ? "Queue" : "Queue, reason", className: "letter-origin", cell: (row) => html`${!filter.queue && html`<div><${Name} name=${row.queue} /></div>`}${!filter.reason && html`<div class=${filter.queue ? "" : "small muted"}>${reasonText(row.reason)}</div>`}` },
    { key: "error", label: "Error", className: "wrap letter-error", cell: (row) => (row.error ? html`<span title=${visible(row.error)}><${Outside} text=${row.error} /></span>` : html`<span class="muted">${isHidden(row) ? "hidden" : "none"}</span>`) },
    { key: "attempts", label: "Tries", isNum: true, title: "Attempts: how often consumers got it", cell: (row) => html`<${Count} value=${row.attempts} />` },
    { key: "replays", label: "Replays", isNum: true, title: "How often it was replayed before", cell: (row) => html`<${Count} value=${row.replay_count ?? 0} />` },
    { key: "message", label: "Message id", isTight: true, cell: (row) => html`<${Outside} text=${row.id} mono />` },
  ];
  return html`<${Table}
    caption="Dead letters" isQuiet columns=${columns} rows=${letters} keyOf=${(row) => row.dead_id} name="letters" hiddenAtFirst="message,replays"
    ticked=${ticked} onTick=${onTick} isOld=${found.isOld} next=${found.data?.next ?? null} rowClass=${() => (found.isOld ? "gone" : "")} empty=${empty}
    bar=${html`<${Actions} ticked=${ticked} onTick=${onTick} meant=${meant} sum=${sum} may=${may} open=${open} isEmpty=${letters.length === 0} />${hasMoved && html`<button type="button" class="button quiet slim" onClick=${() => setAgain(again + 1)}>Sort again</button>`}`}
  />`;
}

/** Buttons carry what they act on: the ticked letters, else all that fit. Purge stands apart. */
function Actions({ ticked, onTick, meant, sum, may, open, isEmpty }) {
  const what = ticked.size ? `${count(ticked.size)} ticked` : sum?.exact ? `all ${count(sum.count)}` : "all that fit";
  const status = ticked.size
    ? html`<b>${counted(ticked.size, "letter")} ticked</b> <button type="button" class="button quiet slim" onClick=${() => onTick(new Set())}>Untick</button>`
    : sum && html`<span>${sum.exact === false ? "At least " : ""}<b>${counted(sum.count, "letter")}</b> ${sum.count === 1 ? "fits" : "fit"}</span>`;
  const isHeard = useLive(JSON.stringify([meant, ticked.size, sum === null, isEmpty]));
  if (isEmpty && !ticked.size) return html`<span role="status" aria-live=${isHeard}>${sum ? status : null}</span>`;
  return html`<span role="status" aria-live=${isHeard} class="letter-status">${status}</span>
    <span class="buttons">
      ${may.replay && html`<button type="button" class="button main slim" onClick=${() => open("replay")}>Replay ${what}…</button>`}
      ${!may.exportJob || ticked.size || (sum?.exact && isSmallExport(sum.count))
        ? html`<a class="button slim" href=${urlOf("dead-letters/export", queryObject(meant)).href} download>Export ${what}</a>`
        : html`<button type="button" class="button slim" onClick=${() => open("export")}>Export ${what}…</button>`}
    </span>
    <span class="push"></span>
    ${may.purge && html`<button type="button" class="button danger slim" onClick=${() => open("purge")}>Purge ${what}…</button>`}`;
}
