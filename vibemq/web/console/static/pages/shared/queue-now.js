// A queue as it is now: figures, charts, groups and consumers.
import { html } from "../../vendor/ui.js";
import { counted, count, size } from "../../pure/format.js";
import { path } from "../../pure/commands.js";
import { link, params, setParams } from "../../parts/address.js";
import { Chart } from "../../parts/chart.js";
import { useData } from "../../parts/data.js";
import { Segments } from "../../parts/filters.js";
import { Trouble } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { Ago, At, Count, Facts, Figures, Name, Outside, Size } from "../../parts/text.js";
import { HELD } from "./state.js";
import { OPTIONS, shownValue } from "./options.js";

const optionShown = (name, value) => shownValue(OPTIONS.find((option) => option.name === name), value);
const limited = (most, shown) => (most ? html`<span class="unit"> of ${shown(most)}</span>` : "");
const RANGES = [["15m", "15 min"], ["6h", "6 h"], ["48h", "48 h"]];
const SERIES = ["ready", "in_flight", "dead", "in", "out", "ack"];

export function Now({ data }) {
  const { queue } = data;
  const range = params.value.range ?? "15m";
  const { data: history } = useData("history", { query: { queue, series: SERIES, range }, every: range === "15m" ? 5000 : 60000 });
  return html`
    <${Figures} label="Messages of the queue" items=${[
      ["Oldest waiting", data.oldest_at ? html`<${Ago} at=${data.oldest_at} suffix="" />` : "–"],
      ["Ready", html`<a href=${link("queue", { queue, tab: "messages" })}><${Count} value=${data.ready} /></a>${limited(data.options.max_messages, count)}`],
      ["In flight", html`<a href=${link("queue", { queue, tab: "messages", state: "in_flight" })}><${Count} value=${data.in_flight} /></a>`],
      ["Delayed", html`<a href=${link("queue", { queue, tab: "messages", state: "delayed" })}><${Count} value=${data.delayed} /></a>`],
      ["Dead letters", html`<a href=${link("dead-letters", { queue })}><${Count} value=${data.dead} /></a>`, data.dead ? "bad" : ""],
      ["Consumers", html`<${Count} value=${data.consumers} />`],
      ["Waiting bytes", html`<${Size} bytes=${data.bytes} />${limited(data.options.max_bytes, size)}`],
    ]} />
    ${history && html`<div class="title"><h2>History</h2><span class="push"></span><${Segments} label="Range of the charts" value=${range} options=${RANGES} onChange=${(value) => setParams({ range: value === "15m" ? null : value })} /></div>
    <div class="grid wide">
      <div class="card"><${Chart} title="Messages per second" history=${history} unit="rate" lines=${[{ name: "in", label: "in" }, { name: "ack", label: "acknowledged" }, { name: "out", label: "out" }]} /></div>
      <div class="card"><${Chart} title="Messages" history=${history} lines=${[{ name: "ready", label: "ready" }, { name: "in_flight", label: "in flight" }, { name: "dead", label: "dead" }]} /></div>
    </div>`}
    <${Consumers} queue=${queue} />
    <${Groups} queue=${queue} groups=${data.groups} />
    <div class="grid"><section class="card"><h2>Facts</h2><${Facts} items=${[
      ["Created", html`<${At} at=${data.created_at} />`],
      ["Mode", optionShown("mode", data.options.mode)],
      ["Durability", optionShown("durability", data.options.durability)],
      ["Sequences", html`<span class="num">${data.first_sequence < data.next_sequence ? `${count(data.first_sequence)} to ${count(data.next_sequence - 1)}` : `next is ${count(data.next_sequence)}`}</span>`],
      ["Incarnation", html`<code>${data.incarnation}</code><br /><span class="muted small">Another one once the queue has been deleted and made again.</span>`],
    ]} /></section>
    <section class="card"><h2>Since the broker started</h2><${Facts} items=${Object.entries(data.counters).map(([name, value]) => [name.replaceAll("_", " "), html`<span class="num">${count(value)}</span>`])} /></section></div>`;
}

/** @type {Columns<Row<"queues/{queue}/consumers">>} */
const CONSUMERS = [
  { key: "client", label: "Client", isHead: true, cell: ({ client, connection }) => html`<a data-open href=${link("connections", { id: connection })}><${Outside} text=${client || connection || "unnamed"} /></a>` },
  { key: "user", label: "User", cell: ({ user }) => html`<${Outside} text=${user} />` },
  ...HELD,
];

function Consumers({ queue }) {
  const found = useData(path`queues/${queue}/consumers`);
  if (found.data === undefined) return found.problem && html`<${Trouble} problem=${found.problem} retry=${found.refresh} />`;
  const rows = found.data.items;
  return html`<${Table} caption="Consumers" rows=${rows} columns=${CONSUMERS} keyOf=${({ consumer, connection }) => `${connection} ${consumer}`}
    empty=${html`<div class="empty"><h2>Nobody consumes from this queue</h2><p>Start a consumer with <code>vibemq sub</code>, or in Python:</p><pre class="code wrapped">${`with vibemq.sync.connect("vibemq://${location.hostname}") as mq:\n    with mq.subscribe("${queue}") as messages:\n        for message in messages:\n            print(message.payload)\n            message.ack()`}</pre></div>`} />`;
}

const groupColumns = (queue) => [
  { key: "name", label: "Group", isHead: true, cell: ({ name }) => html`<a href=${link("cursors", { queue, group: name })}><${Name} name=${name} /></a>` },
  { key: "waiting", label: "Waiting", isNum: true, cell: ({ waiting }) => html`<${Count} value=${waiting} />` },
  { key: "in_flight", label: "In flight", isNum: true, cell: ({ in_flight }) => html`<${Count} value=${in_flight} />` },
  { key: "where", label: "Filter", className: "clip", cell: ({ where }) => html`<${Outside} text=${where} mono=${true} />` },
  { key: "consumers", label: "Consumers", isNum: true, cell: ({ consumers }) => html`<${Count} value=${consumers} />` },
];

function Groups({ queue, groups }) {
  const named = (groups ?? []).filter(({ name }) => name);
  if (named.length === 0) return null;
  return html`<${Table} caption=${counted(named.length, "group")} rows=${named} keyOf=${({ name }) => name} columns=${groupColumns(queue)} />`;
}
