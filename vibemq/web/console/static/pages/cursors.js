// Cursors: how far each reader has come, who it is, what it has lost; and the transactions that wait.
import { html, useMemo, useRef, useState } from "../vendor/ui.js";
import { link, params, setParams } from "../parts/address.js";
import { isFilling, mayManage, post } from "../parts/api.js";
import { Commands } from "../parts/command.js";
import { useData, useSteady } from "../parts/data.js";
import { Form, say } from "../parts/dialog.js";
import { Field, Filters } from "../parts/filters.js";
import { start } from "../parts/frame.js";
import { Ago, Count, Empty, Facts, Loaded, Name, Outside, Size } from "../parts/text.js";
import { Table } from "../parts/table.js";
import { Limits, Seek, groupPath, removeGroup } from "./shared/groups.js";
import { counted, duration, rate } from "../pure/format.js";
import { paceOf, withLook } from "../pure/pace.js";

const LIMIT = 50;
/** Of cursors whose names contain that of the chosen one: the most of one page. */
const CLOSE_MAX = 500;
const keyOf = (row) => `${row.queue}\n${row.group}`;
const sumOfRuns = (runs) => (runs ?? []).reduce((sum, [first, last]) => sum + last - first + 1, 0);

function StateOf({ row }) {
  if (row.expired) return html`<span class="pill bad" title="Its lag was over its limit, so the queue keeps nothing for it any more">EXPIRED</span>`;
  if (row.lost > 0) return html`<span class="pill bad">lost messages</span>`;
  if (row.backlog === 0) return html`<span class="pill good">at the end</span>`;
  return html`<span class="pill">behind</span>`;
}

/** @type {Columns<Row<"cursors">>} */
const COLUMNS = [
  { key: "group", label: "Cursor", sort: "name", isHead: true, cell: (row) => html`<button type="button" class="button quiet slim" data-open onClick=${() => setParams({ at: keyOf(row) })}><${Name} name=${row.group} /></button>` },
  { key: "queue", label: "Queue", isTight: true, cell: ({ queue }) => html`<a href=${link("queue", { queue })}><${Name} name=${queue} /></a>` },
  { key: "state", label: "State", isTight: true, cell: (row) => html`<${StateOf} row=${row} />` },
  { key: "behind", label: "Behind", sort: "backlog", isNum: true, title: "Messages that it has not acknowledged", cell: (row) => html`<${Count} value=${row.backlog} />` },
  { key: "bytes", label: "Bytes", isNum: true, cell: (row) => html`<${Size} bytes=${row.backlog_bytes} />` },
  { key: "age", label: "Oldest", isTight: true, title: "Age of the oldest message that it has not acknowledged", cell: (row) => html`<${Ago} at=${row.oldest_at} suffix="" />` },
  { key: "committed", label: "Committed", isNum: true, title: "Everything below this sequence is acknowledged", cell: (row) => html`<${Count} value=${row.committed} />` },
  { key: "owner", label: "Reader", cell: ({ owner }) => html`<${Outside} text=${owner} isName />` },
  { key: "user", label: "User", isTight: true, cell: ({ user }) => html`<${Outside} text=${user} isName />` },
  { key: "epoch", label: "Epoch", isNum: true, title: "Goes up with each reader that takes the cursor over", cell: ({ epoch }) => html`<${Count} value=${epoch} />` },
];

function Cursors() {
  const { queue, group, sort = "-backlog", cursor, at } = params.value;
  const query = { queue, group, sort, limit: LIMIT, cursor };
  const found = useData("cursors", { query, every: 2000 });
  const rows = useSteady(found.data?.items, keyOf, `${queue}${group}${sort}${cursor}${found.isOld}`);
  const chosen = useChosen(found.data?.items, at);
  return html`
    <div class="title"><h1>Cursors</h1></div>
    <p class="lead">Readers that keep their own place in a queue, such as Spark's streams: how far each is behind, and what it has lost.</p>
    <${Filters} fields=${[{ name: "group", label: "Cursor contains", size: 20 }, { name: "queue", label: "Queue contains", size: 20 }]} />
    <${Loaded} found=${found} what="Loading cursors">${(data) => html`<${Table} isOld=${found.isOld} caption="Cursors" isQuiet columns=${COLUMNS} rows=${rows} keyOf=${keyOf} name="cursors" hiddenAtFirst="epoch,user" next=${data.next} sort=${sort} onSort=${(value) => setParams({ sort: value === "-backlog" ? null : value === "-name" ? "name" : value, cursor: null })}
      empty=${queue || group
        ? html`<${Empty} title="No cursor fits this filter"><p>Consumers that share a queue are on the queue's own page. <button type="button" class="button slim" onClick=${() => setParams({ queue: null, group: null, cursor: null })}>Show all cursors</button></p></${Empty}>`
        : html`<${Empty} title="There are no cursors"><p>A cursor is made when a reader by range joins a queue: a stream of Spark, or by hand:</p><pre class="code">vibemq-admin group create clicks archive --start earliest</pre></${Empty}>`} />`}</${Loaded}>
    <${Commands} admin=${[["cursor", "ls"], { options: { queue, group } }]} request=${{ path: "cursors", query }} />
    ${chosen && html`<${Cursor} key=${at} row=${chosen} at=${found.at} refresh=${found.refresh} />`}
    <${Transactions} />`;
}

/** The row that was chosen, also when it is not among those of this page, which are sorted by figures that move. */
function useChosen(items, at) {
  const last = useRef(null);
  const listed = items?.find((row) => keyOf(row) === at);
  const [queue, group] = (at ?? "").split("\n");
  const asked = useData(items && at && !listed ? "cursors" : null, { query: { queue, group, limit: CLOSE_MAX }, every: 2000 });
  const isKnown = asked.data !== undefined && !asked.isOld;
  const row = listed ?? (isKnown ? asked.data.items.find((one) => keyOf(one) === at) : undefined);
  if (row) last.current = row;
  else if (isKnown && !isFilling()) last.current = null;
  return row ?? (last.current !== null && keyOf(last.current) === at ? last.current : undefined);
}

/** @type {Columns<Row<"transactions">>} */
const APPLICATIONS = [
  { key: "app", label: "Application", isHead: true, cell: ({ app }) => html`<${Name} name=${app} />` },
  { key: "version", label: "Last version", isNum: true, cell: ({ version }) => html`<${Count} value=${version ?? null} />` },
  { key: "at", label: "Committed", isTight: true, cell: ({ committed_at }) => html`<${Ago} at=${committed_at} />` },
  { key: "stages", label: "Open stages", isNum: true, cell: ({ stage_count }) => html`<${Count} value=${stage_count} />` },
  { key: "bytes", label: "Bytes in them", isNum: true, cell: ({ stage_bytes }) => html`<${Size} bytes=${stage_bytes} />` },
  { key: "oldest", label: "Oldest stage", isTight: true, cell: ({ stages }) => (stages?.length ? duration(Math.max(...stages.map(({ age_ms }) => age_ms))) : html`<span class="muted">–</span>`) },
  { key: "user", label: "Belongs to", isTight: true, cell: ({ user }) => html`<${Outside} text=${user} isName />` },
];

/** Applications that write in transactions, as Spark does; what they have staged and not committed takes room. */
function Transactions() {
  const query = { limit: LIMIT, cursor: params.value.apps };
  const found = useData("transactions", { query, every: 10_000 });
  const rows = found.data?.items ?? [];
  if (rows.length === 0 && !query.cursor) return null;
  return html`<${Table} caption="Transactions" columns=${APPLICATIONS} rows=${rows} keyOf=${({ app }) => app} next=${found.data?.next ?? null} place="apps" /><${Commands} admin=${[["transaction", "ls"]]} request=${{ path: "transactions", query }} />`;
}

function Cursor({ row: found, at, refresh }) {
  const row = { ...found, cursor: true };
  const [dialog, setDialog] = useState(null);
  const looks = useRef([]);
  const pace = useMemo(() => {
    looks.current = withLook(looks.current, { ...found, at });
    return paceOf(looks.current);
  }, [at]);
  const mayWork = mayManage(row.queue, row.group, row.user);
  const done = () => {
    setDialog(null);
    refresh();
  };
  const gone = () => {
    setParams({ at: null });
    refresh();
  };
  return html`<section class="card" aria-labelledby="cursor"><h2 id="cursor">Cursor <${Name} name=${row.group} /> of <${Name} name=${row.queue} /> <${StateOf} row=${row} /></h2>
    ${row.expired && html`<p>It was further behind than its limit allows, so the queue stopped keeping messages for it. <em>Seek</em> lets it begin again.</p>`}
    <${Facts} items=${[
      ["Behind", html`${counted(row.backlog, "message")}, <${Size} bytes=${row.backlog_bytes} />${row.oldest_at ? html`, the oldest published <${Ago} at=${row.oldest_at} />` : ""}`],
      ["Reads", paceText(pace, row)],
      ["Committed below", html`<${Count} value=${row.committed} /> of <${Count} value=${row.tail} />`],
      ["Reader", row.owner ? html`<${Outside} text=${row.owner} isName />` : "none has joined"],
      ["Belongs to", row.user ? html`<${Outside} text=${row.user} isName />` : "nobody"],
      ["Epoch", html`<${Count} value=${row.epoch} />`],
      ["Keeps what it has read for", row.hold_ms ? duration(row.hold_ms) : "not at all"],
      ["Expires at a lag of", limitsText(row)],
      ["Lost", row.lost ? html`${counted(row.lost, "message")}: <code>${runsText(row.lost_runs)}</code>` : "nothing"],
      ["Quarantined", row.quarantined ? html`${counted(row.quarantined, "message")}: <code>${runsText(row.quarantined_runs)}</code> · <a href=${link("dead-letters", { queue: row.queue })}>dead letters</a>` : "nothing"],
    ]} />
    ${mayWork && html`<div class="buttons">
      <button type="button" class="button" onClick=${() => setDialog("seek")}>Seek…</button>
      <button type="button" class="button" onClick=${() => setDialog("limits")}>Change limits…</button>
      <button type="button" class="button" onClick=${() => setDialog("quarantine")}>Quarantine messages…</button>
      <span class="push"></span>
      <button type="button" class="button danger" onClick=${() => removeGroup(row, gone)}>Delete the cursor…</button>
    </div>`}
    <${Commands} admin=${[["group", "show"], { names: [row.queue, row.group] }]} request=${{ path: groupPath(row) }} />
    ${dialog === "seek" && html`<${Seek} row=${row} onClose=${() => setDialog(null)} onDone=${done} />`}
    ${dialog === "limits" && html`<${Limits} row=${row} onClose=${() => setDialog(null)} onDone=${done} />`}
    ${dialog === "quarantine" && html`<${Quarantine} row=${row} onClose=${() => setDialog(null)} onDone=${done} />`}
  </section>`;
}

/** Of the last two minutes, as long as the page is open. */
function paceText(pace, { backlog }) {
  if (pace === null) return "…";
  const behind = backlog === 0 ? "" : pace.left_ms === null ? ", and does not come nearer to the end" : `, at the end in about ${duration(pace.left_ms)}`;
  return `${rate(pace.rate)} messages a second${behind}`;
}

const runsText = (runs) => runs.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join(", ");

function limitsText({ max_lag_ms: ms, max_lag_bytes: bytes }) {
  const parts = [ms ? duration(ms) : null, bytes ? html`<${Size} bytes=${bytes} />` : null].filter(Boolean);
  return parts.length === 0 ? "no lag: never" : parts.map((part, index) => html`${index ? " or " : ""}${part}`);
}

function Quarantine({ row, onClose, onDone }) {
  const [text, setText] = useState("");
  const runs = runsOfText(text);
  const many = runs ? sumOfRuns(runs) : 0;
  const body = { runs: runs ?? [] };
  const act = async (key) => {
    const told = await post(`${groupPath(row)}/quarantine`, body, { key });
    say(`${counted(told?.quarantined ?? many, "message")} became dead letters.`);
    onDone();
  };
  return html`<${Form} title=${html`Quarantine messages of <${Name} name=${row.group} />?`} button=${`Quarantine ${counted(many, "message")}`} isReady=${runs !== null} isDanger onClose=${onClose} act=${act}
    commands=${{ admin: [["group", "quarantine"], { options: { yes: true }, names: [row.queue, row.group, ...(runs ?? []).map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`))] }], request: { method: "POST", path: `${groupPath(row)}/quarantine`, body } }}>
    <p>For messages that make the reader fail: they become dead letters, and this cursor never reads them again. Other readers still do.</p>
    <${Field} label="Sequences" hint="As 17, 20-25." wrong=${text && !runs ? "Write sequences and ranges." : null}>${(id, about) => html`<input id=${id} aria-describedby=${about} value=${text} spellcheck=${false} onInput=${(event) => setText(event.target.value)} />`}</${Field}>
  </${Form}>`;
}

function runsOfText(text) {
  const runs = text.split(/[\s,]+/).filter(Boolean).map((part) => /^(\d{1,15})(?:-(\d{1,15}))?$/.exec(part));
  if (runs.length === 0 || runs.some((run) => run === null)) return null;
  const made = runs.map(([, first, last]) => [Number(first), Number(last ?? first)]);
  return made.every(([first, last]) => last >= first) ? made : null;
}

start(Cursors);
