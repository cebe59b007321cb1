// Audit: who changed what, over which protocol, with which result.
import { html, useMemo, useState } from "../vendor/ui.js";
import { count, emptyPage, exactJson } from "../pure/format.js";
import { pairs, placeOf, withinMs } from "../pure/audit_words.js";
import { link, params } from "../parts/address.js";
import { Commands, Copy } from "../parts/command.js";
import { useData, useSteady } from "../parts/data.js";
import { Filters } from "../parts/filters.js";
import { start } from "../parts/frame.js";
import { At, Count, Empty, Loaded, Outside } from "../parts/text.js";
import { Table } from "../parts/table.js";

const LIMIT = 100;
const PAIRS_MAX = 6;

/** What an operation was given, in pairs; queues and jobs are links. */
function How({ row }) {
  const all = pairs(row.arguments).filter(([name, value]) => value !== row.resource && !(name === "must_match" && value === "no"));
  const shown = all.slice(0, PAIRS_MAX);
  return html`<dl class="pairs">${shown.map((pair) => html`<${Pair} pair=${pair} operation=${row.operation} />`)}</dl>
    ${all.length > shown.length && html`<details><summary>${count(all.length - shown.length)} more</summary><dl class="pairs">${all.slice(PAIRS_MAX).map((pair) => html`<${Pair} pair=${pair} operation=${row.operation} />`)}</dl></details>`}`;
}

const Pair = ({ pair: [name, value], operation }) => html`<div><dt>${name.replaceAll("_", " ")}</dt> <dd><${Linked} place=${placeOf(name, value, operation)} text=${value} /></dd></div>`;

const Linked = ({ place, text }) => (place ? html`<a href=${link(...place)}><${Outside} text=${text} mono /></a>` : html`<${Outside} text=${text} />`);

/** What a record is about is the first of its arguments that names something. */
function On({ row: { resource, arguments: given, operation } }) {
  const name = Object.keys(given ?? {}).find((one) => given[one] === resource);
  const place = resource && name ? placeOf(name, resource, operation) : null;
  return place ? html`<${Linked} place=${place} text=${resource} />` : html`<${Outside} text=${resource} mono />`;
}

const isDone = (outcome) => outcome === "done" || outcome === "unchanged";
/** @type {Columns<Row<"audit">>} */
const COLUMNS = [
  { key: "at", label: "When", isHead: true, isTight: true, cell: ({ at }) => html`<${At} at=${at} />` },
  { key: "user", label: "Who", isTight: true, cell: ({ user }) => html`<${Outside} text=${user} isName />` },
  { key: "operation", label: "What", isTight: true, cell: ({ operation }) => html`<code>${operation}</code>` },
  { key: "resource", label: "On", cell: (row) => html`<${On} row=${row} />` },
  { key: "arguments", label: "How", className: "wrap", cell: (row) => html`<${How} row=${row} />` },
  { key: "outcome", label: "Result", className: "wrap", cell: ({ outcome, reason }) => html`<span class=${`pill ${isDone(outcome) ? "" : "bad"}`}>${outcome}</span>${reason ? html`<div class="small"><${Outside} text=${reason} /></div>` : ""}` },
  { key: "count", label: "Count", isNum: true, cell: ({ count: some }) => (some === null || some === undefined ? "" : html`<${Count} value=${some} />`) },
  { key: "address", label: "From", isTight: true, cell: ({ address }) => html`<${Outside} text=${address} mono />` },
  { key: "protocol", label: "Over", isTight: true, cell: ({ protocol }) => protocol },
  { key: "request", label: "Request", isTight: true, cell: ({ request_id }) => html`<${Outside} text=${request_id} mono />` },
];

/** Several records of one request may differ in their arguments alone. */
const keyOf = (row) => JSON.stringify(row);

function Audit() {
  const { user, operation, queue, within, order, cursor } = params.value;
  // Not counted anew with each look, which would be another list each time.
  const newer_than_ms = useMemo(() => withinMs(within, new Date()) ?? undefined, [within]);
  const query = { user, operation, queue, newer_than_ms, order, limit: LIMIT, cursor };
  const found = useData("audit", { query, every: cursor ? 0 : undefined });
  const [again, setAgain] = useState(0);
  const rows = useSteady(found.data?.items, keyOf, JSON.stringify([query, found.isOld, again]));
  const hasMoved = rows.some((row, at) => row !== found.data?.items[at]);
  const isFiltered = Boolean(user || operation || queue || within);
  const [emptyTitle, emptyText] = emptyPage(found.data, cursor, "record") ?? [];
  return html`
    <div class="title"><h1>Audit</h1></div>
    <p class="lead">Everything that changed something, over every protocol, and every log-in. Publishing and consuming are not recorded.</p>
    <${Filters} fields=${[
      { name: "operation", label: "What", placeholder: "queue.purge", size: 18, list: ["queue.create", "queue.change", "queue.delete", "queue.purge", "dlq.replay", "dlq.edit", "job.start", "job.change", "user.add", "user.grant", "token.create", "connections.close"] },
      { name: "user", label: "Who", size: 14 },
      { name: "queue", label: "Queue", size: 16 },
      { name: "within", label: "When", kind: "select", options: [["", "At any time"], ["hour", "In the last hour"], ["today", "Today"], ["day", "In the last 24 hours"], ["week", "In the last 7 days"]] },
      { name: "order", label: "Order", kind: "select", options: [["", "Newest first"], ["oldest", "Oldest first"]] },
    ]} />
    <${Loaded} found=${found} what="Loading the audit">${(data) => html`<${Table} isOld=${found.isOld} caption="Audit" isQuiet isCards columns=${COLUMNS.filter(({ key }) => key !== "count" || data.items.some((row) => row.count !== null && row.count !== undefined))} rows=${rows} keyOf=${keyOf} name="audit" hiddenAtFirst="request,protocol" next=${data.next}
      bar=${html`<${Copy} text=${() => data.items.map((row) => exactJson(row)).join("\n")} what="the records of this page as JSON lines" label="Copy as JSON lines" />${hasMoved && html`<button type="button" class="button quiet slim" onClick=${() => setAgain(again + 1)}>Sort again</button>`}`}
      empty=${emptyTitle ? html`<${Empty} title=${emptyTitle}><p role="status">${emptyText}</p></${Empty}>` : isFiltered ? html`<${Empty} title="No record fits this filter"><p>Operations are written as in the reference: <code>queue.purge</code>, <code>user.grant</code>.</p></${Empty}>` : html`<${Empty} title="Nothing has been changed yet"><p>A record appears when somebody creates, changes or deletes a queue, replays or purges dead letters, changes users, or logs in.</p></${Empty}>`} />`}</${Loaded}>
    <${Commands} admin=${[["audit", "ls"], { options: { user, operation, queue, "newer-than": newer_than_ms === undefined ? null : `${newer_than_ms}ms`, limit: LIMIT, oldest: order === "oldest" } }]} request=${{ path: "audit", query }} />`;
}

start(Audit);
