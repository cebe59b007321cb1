// Audit: who changed what, over which protocol, with which result.
import { html } from "../vendor/ui.js";
import { params } from "../parts/address.js";
import { Commands, Copy } from "../parts/command.js";
import { useData } from "../parts/data.js";
import { Filters } from "../parts/filters.js";
import { start } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { At, Count, Outside } from "../parts/text.js";

const LIMIT = 100;
const hasSomething = (value) => value !== null && value !== undefined && value !== "" && !(typeof value === "object" && Object.keys(value).length === 0);

/** "queue orders, options {…}": one line of a record's arguments. */
function argumentsText(given) {
  return Object.entries(given ?? {})
    .filter(([, value]) => hasSomething(value))
    .map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`)
    .join(", ");
}

const isDone = (outcome) => outcome === "done" || outcome === "unchanged";
const COLUMNS = [
  { key: "at", label: "When", isHead: true, isTight: true, cell: ({ at }) => html`<${At} at=${at} />` },
  { key: "user", label: "Who", isTight: true, cell: ({ user }) => html`<${Outside} text=${user} />` },
  { key: "operation", label: "What", isTight: true, cell: ({ operation }) => html`<code>${operation}</code>` },
  { key: "resource", label: "On", cell: ({ resource }) => html`<${Outside} text=${resource} mono=${true} />` },
  { key: "arguments", label: "How", className: "wrap", cell: (row) => html`<${Outside} text=${argumentsText(row.arguments)} />` },
  { key: "outcome", label: "Result", isTight: true, cell: ({ outcome }) => html`<span class=${`pill ${isDone(outcome) ? "" : "bad"}`}>${outcome}</span>` },
  { key: "count", label: "Count", isNum: true, cell: ({ count }) => html`<${Count} value=${count ?? null} />` },
  { key: "address", label: "From", isTight: true, cell: ({ address }) => html`<${Outside} text=${address} mono=${true} />` },
  { key: "protocol", label: "Over", isTight: true, cell: ({ protocol }) => protocol },
  { key: "request", label: "Request", isTight: true, cell: ({ request_id }) => html`<${Outside} text=${request_id} mono=${true} />` },
];

function Audit() {
  const { user, operation, queue, order, cursor } = params.value;
  const query = { user, operation, queue, order, limit: LIMIT, cursor };
  const found = useData("audit", { query, every: cursor ? 0 : undefined });
  const isFiltered = Boolean(user || operation || queue);
  return html`
    <div class="title"><h1>Audit</h1></div>
    <p class="lead">Everything that changed something, over every protocol, and every log-in. Publishing and consuming are not recorded.</p>
    <${Filters} fields=${[
      { name: "operation", label: "What", placeholder: "queue.purge", size: 18, list: ["queue.create", "queue.change", "queue.delete", "queue.purge", "dlq.replay", "dlq.edit", "job.start", "job.change", "user.add", "user.grant", "token.create", "connections.close"] },
      { name: "user", label: "Who", size: 14 },
      { name: "queue", label: "Queue", size: 16 },
      { name: "order", label: "Order", kind: "select", options: [["", "Newest first"], ["oldest", "Oldest first"]] },
    ]} />
    <${Loaded} found=${found} what="Loading the audit">${(data) => html`<${Table} caption="Audit" isQuiet=${true} columns=${COLUMNS} rows=${data.items} keyOf=${(row) => `${row.at} ${row.request_id} ${row.operation}`} name="audit" hiddenAtFirst="request" next=${data.next}
      bar=${html`<${Copy} text=${() => data.items.map((row) => JSON.stringify(row)).join("\n")} what="the records of this page as JSON lines" label="Copy as JSON lines" />`}
      empty=${isFiltered ? html`<${Empty} title="No record fits this filter"><p>Operations are written as in the reference: <code>queue.purge</code>, <code>user.grant</code>.</p></${Empty}>` : html`<${Empty} title="Nothing has been changed yet"><p>A record appears when somebody creates, changes or deletes a queue, replays or purges dead letters, changes users, or logs in.</p></${Empty}>`} />`}</${Loaded}>
    <${Commands} admin=${[["audit", "ls"], { options: { user, operation, queue, limit: LIMIT, oldest: order === "oldest" } }]} request=${{ path: "audit", query }} />`;
}

start(Audit);
