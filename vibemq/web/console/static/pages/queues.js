import { query as queryText } from "../pure/commands.js";
import { html, useState } from "../vendor/ui.js";
import { link, params, setParams } from "../parts/address.js";
import { Commands } from "../parts/command.js";
import { useData, useSteady } from "../parts/data.js";
import { Filters } from "../parts/filters.js";
import { start } from "../parts/frame.js";
import { mayAnywhere } from "../parts/api.js";
import { Ago, Count, Duration, Empty, Loaded, Name, Rate, Size } from "../parts/text.js";
import { Table } from "../parts/table.js";
import { QueueState, STATES } from "./shared/state.js";
import { CreateQueue } from "./shared/queue-create.js";
import { FirstMessages } from "./shared/first-messages.js";

const LIMIT = 50;

/** @type {Columns<Row<"queues">>} */
const COLUMNS = [
  { key: "queue", label: "Queue", sort: "queue", isHead: true, cell: ({ queue }) => html`<a data-open href=${link("queue", { queue })}><${Name} name=${queue} /></a>` },
  { key: "state", label: "State", sort: "state", isTight: true, cell: ({ state }) => html`<${QueueState} state=${state} />` },
  { key: "oldest", label: "Oldest", sort: "oldest_age_ms", isNum: true, title: "How long the oldest message has waited", cell: (row) => html`<${Duration} ms=${row.ready || row.oldest_age_ms ? row.oldest_age_ms : null} />` },
  { key: "ready", label: "Ready", sort: "ready", isNum: true, cell: ({ ready }) => html`<${Count} value=${ready} />` },
  { key: "in_flight", label: "In flight", sort: "in_flight", isNum: true, title: "With consumers, not settled yet", cell: ({ in_flight }) => html`<${Count} value=${in_flight} />` },
  { key: "delayed", label: "Delayed", sort: "delayed", isNum: true, cell: ({ delayed }) => html`<${Count} value=${delayed} />` },
  { key: "dead", label: "Dead", sort: "dead", isNum: true, title: "Dead letters", cell: ({ queue, dead }) => dead ? html`<a class="dead" href=${link("dead-letters", { queue })}><${Count} value=${dead} /></a>` : html`<${Count} value=${dead} />` },
  { key: "in_rate", label: "In/s", sort: "in_rate", isNum: true, cell: ({ in_rate }) => html`<${Rate} value=${in_rate} />` },
  { key: "ack_rate", label: "Ack/s", sort: "ack_rate", isNum: true, cell: ({ ack_rate }) => html`<${Rate} value=${ack_rate} />` },
  { key: "consumers", label: "Consumers", sort: "consumers", isNum: true, cell: ({ consumers }) => html`<${Count} value=${consumers} />` },
  { key: "bytes", label: "Size", sort: "bytes", isNum: true, cell: ({ bytes }) => html`<${Size} bytes=${bytes} />` },
  { key: "durability", label: "Durability", sort: "durability", isTight: true, cell: ({ durability }) => durability },
];

function Queues() {
  const { name, state, sort = "queue", cursor } = params.value;
  const query = { name, state, sort, limit: LIMIT, cursor };
  // A page behind the first is cut from a picture of its own, so it is not told of in the stream.
  const topic = cursor ? null : `queues${queryText({ limit: LIMIT, name, sort, state })}`;
  const found = useData("queues", { query, topic, merge: ({ queues, sampled_at }, before) => ({ ...before, items: queues, sampled_at }) });
  const [isCreating, setCreating] = useState(false);
  const [order, setOrder] = useState(0);
  const rows = useSteady(found.data?.items, ({ queue }) => queue, `${found.isOld}${name}${state}${sort}${cursor}${order}`);
  const mayCreate = mayAnywhere("create");
  const isFiltered = Boolean(name || state);
  return html`
    <div class="title"><h1>Queues</h1><span class="push"></span><div class="actions">${mayCreate && html`<button type="button" class="button main" onClick=${() => setCreating(true)}>Create queue</button>`}</div></div>
    <${Filters} fields=${[
      { name: "name", label: "Name contains", placeholder: "orders", size: 24 },
      { name: "state", label: "State", kind: "select", options: [["", "Any state"], ...Object.entries(STATES).map(([key, { text }]) => [key, text])] },
    ]} />
    <${Loaded} found=${found} what="Loading queues">${(data) => html`
      <${Table} isOld=${found.isOld} name="queues" caption="Queues" isQuiet columns=${COLUMNS} rows=${rows} keyOf=${({ queue }) => queue} hiddenAtFirst="durability"
        sort=${sort} onSort=${(value) => setParams({ sort: value === "queue" ? null : value, cursor: null })} next=${data.next}
        bar=${html`<span class="muted small">${data.sampled_at ? html`Figures of <${Ago} at=${data.sampled_at} />` : ""}</span>${sort !== "queue" && html`<button type="button" class="button quiet slim" onClick=${() => setOrder(order + 1)}>Sort again</button>`}`}
        empty=${isFiltered ? html`<${NothingFits} />` : html`<${FirstMessages} onCreate=${mayCreate && (() => setCreating(true))} />`} />
    `}</${Loaded}>
    <${Commands} admin=${[["queue", "ls"], { options: { name, state, sort: isFiltered || sort !== "queue" ? sort : null } }]} request=${{ path: "queues", query }} />
    ${isCreating && html`<${CreateQueue} onClose=${() => setCreating(false)} />`}`;
}

function NothingFits() {
  const { name, state } = params.value;
  return html`<${Empty} title="No queue fits this filter">
    <p>${name && html`No queue that you may see has <${Name} name=${name} /> in its name${state ? " and this state" : ""}. `}${state && html`States change with what publishers and consumers do. `}</p>
    <p><button type="button" class="button slim" onClick=${() => setParams({ name: null, state: null, cursor: null })}>Show all queues</button></p>
  </${Empty}>`;
}

start(Queues);
