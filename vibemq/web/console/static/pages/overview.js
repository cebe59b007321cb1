import { html } from "../vendor/ui.js";
import { count, counted, duration, rate, stillHere } from "../pure/format.js";
import { link, params, setParams } from "../parts/address.js";
import { Chart } from "../parts/chart.js";
import { Commands } from "../parts/command.js";
import { useData } from "../parts/data.js";
import { Segments } from "../parts/filters.js";
import { start } from "../parts/frame.js";
import { isSuperuser, mayDo } from "../parts/api.js";
import { Ago, At, Count, Duration, Figures, Loaded, Name, Rate, Size, Trouble, useLive } from "../parts/text.js";
import { Table } from "../parts/table.js";
import { Sample, useKinds } from "./letters/kinds.js";
import { Resources, Sentence } from "./shared/state.js";
import { FirstMessages } from "./shared/first-messages.js";

export const RANGES = [["15m", "15 min"], ["6h", "6 h"], ["48h", "48 h"]];
const EVERY = { "15m": 5000, "6h": 60000, "48h": 300000 };
const SHOWN_AT_ONCE = 3;
const WORDS = { in: "In", out: "Out", ack: "Acknowledged", redelivered: "Redelivered" };

function Overview() {
  const range = params.value.range ?? "15m";
  const found = useData("overview", { topic: "overview", every: 2000 });
  return html`
    <div class="title"><h1>Overview</h1><span class="push"></span><div class="actions"><${Segments} label="Range of the charts" value=${range} options=${RANGES} onChange=${(value) => setParams({ range: value === "15m" ? null : value })} /></div></div>
    <${Loaded} found=${found} what="Asking the broker">${(data) => html`
      <${Verdict} data=${data} />
      <${Now} data=${data} />
      <${DiedOf} rows=${data.dead_recent} died=${data.died_recent} />
      ${data.totals.queues === 0 ? html`<div class="table-box"><${FirstMessages} /></div>` : html`<${Charts} range=${range} isWhole=${data.resources !== null} /><${Lists} data=${data} />`}
      <p class="muted small">${data.started_at && html`Started <${Ago} at=${data.started_at} /> (<${At} at=${data.started_at} />). `}${data.sampled_at && html`Figures of <${Ago} at=${data.sampled_at} />.`}</p>
    `}</${Loaded}>
    <${Commands} admin=${[["top"]]} request=${{ path: "overview" }} />`;
}

/** One sentence: all is well, or what is not, worst first. */
function Verdict({ data }) {
  const sentences = [...data.sentences].sort((a, b) => Number(b.level === "alarm") - Number(a.level === "alarm"));
  const isHeard = useLive(sentences.map(({ level, link: target }) => `${level} ${target?.page} ${target?.queue}`).sort().join("\n"));
  if (sentences.length === 0) return html`<p class="well good" role="status"><strong>All is well.</strong><span class="small">${isSuperuser() ? "" : "In the queues that you may inspect: "}No alarm, no new dead letters, no queue that is stuck or full, no messages without a consumer.</span></p>`;
  return html`<div role="status" aria-live=${isHeard} class="verdict">${sentences.slice(0, SHOWN_AT_ONCE).map(Sentence)}
    ${sentences.length > SHOWN_AT_ONCE && html`<details class="card"><summary>${others(sentences.slice(SHOWN_AT_ONCE))}</summary><div class="verdict">${sentences.slice(SHOWN_AT_ONCE).map(Sentence)}</div></details>`}</div>`;
}

/** A broker that has started again has counted no deaths before. */
const isNew = ({ started_at, sampled_at }) => Boolean(started_at && sampled_at) && Date.parse(sampled_at) - Date.parse(started_at) < 900_000;

function others(sentences) {
  const alarms = sentences.filter(({ level }) => level === "alarm").length;
  const warnings = sentences.length - alarms;
  if (alarms === 0) return counted(warnings, "more warning");
  return `${counted(alarms, "more alarm")}${warnings > 0 ? ` and ${counted(warnings, "warning")}` : ""}`;
}

function Now({ data }) {
  const { rates, totals, oldest, died_recent: died } = data;
  return html`
    <${Figures} label="What waits and what moves" items=${[
      ["Oldest waiting message", oldest ? html`${duration(oldest.age_ms)}<span class="more"><a href=${link("queue", { queue: oldest.queue })}><${Name} name=${oldest.queue} /></a></span>` : html`–<span class="more">nothing waits</span>`],
      [isNew(data) ? "Died since the start" : "Died in the last 15 min", html`${count(died)}<span class="more"><a href=${link("dead-letters", { newer_than_ms: 900_000 })}>those still here</a></span>`, died ? "bad" : ""],
      ...Object.entries(WORDS).map(([name, word]) => [word, html`<${Rate} value=${rates[name]} /><span class="unit">/s</span>${name === "in" ? html`<span class="more">${meaning(rates, totals.ready)}</span>` : ""}`]),
    ]} />
    <${Figures} label="Messages of all queues" items=${[
      ["Ready", html`<${Count} value=${totals.ready} />`],
      ["In flight", html`<${Count} value=${totals.in_flight} />`],
      ["Delayed", html`<${Count} value=${totals.delayed} />`],
      ["Dead letters", html`<a href=${link("dead-letters")}><${Count} value=${totals.dead} /></a>`, totals.dead ? "bad" : ""],
      ["Queues", html`<a href=${link("queues")}><${Count} value=${totals.queues} /></a>`],
      ["Consumers", html`<${Count} value=${totals.consumers} />`],
      ["Waiting bytes", html`<${Size} bytes=${totals.bytes} />`],
    ]} />`;
}

/** What the rates mean for what waits. */
export function meaning({ in: comes, ack, dead }, ready) {
  if (comes === null || comes === undefined || ack === null || ack === undefined) return "";
  const more = comes - ack - dead;
  if (more > Math.max(1, comes * 0.05)) return `falling behind by ${rate(more)}/s`;
  if (ready > 0 && -more > Math.max(0.5, comes * 0.02)) return `drained in ${duration((ready / -more) * 1000)}`;
  if (dead > ack) return `${rate(dead)}/s die`;
  if (comes === 0 && ack === 0) return ready ? "nothing moves" : "quiet";
  return "keeping up";
}

function Charts({ range, isWhole }) {
  const series = ["in", "ack", "redelivered", "ready", "in_flight", ...(isWhole ? ["confirm_p99_ms", "fsync_p99_ms", "disk_free_bytes"] : [])];
  const isAllowed = mayDo("history.get");
  const { data: history, problem } = useData(isAllowed ? "history" : null, { query: { series, range }, every: EVERY[range] });
  if (!isAllowed) return html`<p class="muted">Each queue has its charts on its own page.</p>`;
  if (!history && problem) return html`<${Trouble} problem=${problem} />`;
  if (!history) return html`<div class="card"><p class="wait">Loading the charts…</p></div>`;
  return html`<div class="grid wide">
    <div class="card"><${Chart} title="Messages per second" history=${history} unit="rate" lines=${[{ name: "in", label: "in" }, { name: "ack", label: "acknowledged" }, { name: "redelivered", label: "redelivered" }]} /></div>
    <div class="card"><${Chart} title="Messages that wait" history=${history} lines=${[{ name: "ready", label: "ready" }, { name: "in_flight", label: "in flight" }]} /></div>
    ${isWhole && html`<div class="card"><${Chart} title="Latency, p99" history=${history} unit="ms" lines=${[{ name: "confirm_p99_ms", label: "publish to confirm" }, { name: "fsync_p99_ms", label: "disk flush" }]} /></div>
    <div class="card"><${Chart} title="Disk" history=${history} unit="bytes" lines=${[{ name: "disk_free_bytes", label: "free" }]} /></div>`}
  </div>
  <p class="muted small">This broker keeps 48 hours. For more, let Prometheus read <a href="../metrics/prometheus">its metrics</a>.</p>`;
}

const queueColumn = { key: "queue", label: "Queue", isHead: true, cell: ({ queue }) => html`<a data-open href=${link("queue", { queue })}><${Name} name=${queue} /></a>` };

/** What the letters of the last minutes died of that are still here, and how many that are of those that died. The text of an error that
 * nobody remembers is its fingerprint. */
function DiedOf({ rows, died }) {
  const textOf = useKinds(rows.map(({ fingerprint }) => fingerprint));
  const error = ({ queue, fingerprint, count: letters }) => {
    const text = fingerprint ? textOf(fingerprint) : undefined;
    return html`<a href=${link("dead-letters", { queue, fingerprint })}>${text !== undefined ? html`<${Sample} group=${{ sample: text, count: letters }} />` : fingerprint ? html`<code>${fingerprint.slice(0, 8)}</code>` : "show"}</a>`;
  };
  if (rows.length === 0) return null;
  return html`<${Table} caption=${html`Dead letters of the last 15 minutes that are still here <span class="muted small">${stillHere(rows, died)}</span>`} rows=${rows} keyOf=${({ queue, fingerprint }) => `${queue} ${fingerprint}`}
    columns=${[{ ...queueColumn, className: "named" }, rows.some(({ fingerprint }) => fingerprint) && { key: "fingerprint", label: "Error", className: "wrap", cell: error }, { key: "count", label: "Letters", isNum: true, cell: ({ count: some }) => html`<${Count} value=${some} />` }]} />`;
}

function Lists({ data }) {
  const { no_consumer, cursors_behind, connections, latency, resources, jobs_running } = data;
  return html`<div class="grid">
    ${no_consumer.length > 0 && html`<${Table} caption="Messages without a consumer" rows=${no_consumer} keyOf=${({ queue }) => queue} columns=${[queueColumn, { key: "ready", label: "Ready", isNum: true, cell: ({ ready }) => html`<${Count} value=${ready} />` }]} />`}
    ${cursors_behind.length > 0 && html`<${Table} caption="Cursors furthest behind" rows=${cursors_behind} keyOf=${({ queue, group }) => `${queue}/${group}`} columns=${[queueColumn, { key: "group", label: "Group", cell: ({ queue, group }) => html`<a href=${link("cursors", { queue, group })}><${Name} name=${group} /></a>` }, { key: "backlog", label: "Behind", isNum: true, cell: ({ backlog }) => html`<${Count} value=${backlog} />` }]} />`}
    ${resources && html`<section class="card"><h2>Memory and disk</h2><${Resources} resources=${resources} /></section>`}
    ${latency && html`<section class="card"><h2>Latency in the last minute</h2><dl class="facts">
      <dt>Publish to confirm</dt><dd class="num">median <${Milliseconds} ms=${latency.confirm_p50_ms} />, p99 <${Milliseconds} ms=${latency.confirm_p99_ms} /></dd>
      <dt>Disk flush</dt><dd class="num">median <${Milliseconds} ms=${latency.fsync_p50_ms} />, p99 <${Milliseconds} ms=${latency.fsync_p99_ms} /></dd></dl></section>`}
    ${connections && html`<section class="card"><h2>Connections</h2>${Object.keys(connections).length === 0 ? html`<p class="muted">Nobody is connected.</p>` : html`<dl class="facts">${Object.entries(connections).map(([protocol, some]) => html`<dt><a href=${link("connections", { protocol })}>${protocol}</a></dt><dd class="num">${count(some)}</dd>`)}</dl>`}</section>`}
    ${jobs_running > 0 && html`<section class="card"><h2>Jobs</h2><p><a href="./jobs">${counted(jobs_running, "job")}</a> ${jobs_running === 1 ? "is" : "are"} running.</p></section>`}
  </div>`;
}

export const Milliseconds = ({ ms }) => (ms === null || ms === undefined ? "–" : ms < 100 ? `${Math.round(ms * 10) / 10} ms` : html`<${Duration} ms=${ms} />`);

start(Overview);
