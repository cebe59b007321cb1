// One queue: as it is now, what waits in it, its options, new messages as they come, and its end.
import { html, useEffect, useRef, useState } from "../vendor/ui.js";
import { link, params, setParams } from "../parts/address.js";
import { may, mayManage, post, remove } from "../parts/api.js";
import { Chart } from "../parts/chart.js";
import { Commands, Copy } from "../parts/command.js";
import { live, readEvents, seen, useData } from "../parts/data.js";
import { ask, say } from "../parts/dialog.js";
import { Filters, Segments, Tabs } from "../parts/filters.js";
import { start } from "../parts/frame.js";
import { Ago, At, Count, Empty, Facts, Figures, Loaded, Name, Outside, Size, Trouble } from "../parts/text.js";
import { Table } from "../parts/table.js";
import { Seek, removeGroup } from "./shared/groups.js";
import { Options, OPTIONS, shownValue } from "./shared/options.js";
import { CreateQueue } from "./shared/queue-create.js";
import { Publish } from "./shared/queue-publish.js";
import { HELD, QueueState, Sentence, useNativeUrl } from "./shared/state.js";
import { adminLine, path, query as queryText } from "../pure/commands.js";
import { count, counted, exactJson, size } from "../pure/format.js";
import { nameProblem } from "../pure/names.js";
import { visible } from "../pure/symbols.js";
import { queueMoved } from "../pure/topics.js";

const TABS = [["now", "Now"], ["messages", "Messages"], ["options", "Options"], ["tail", "Tail"]];

function Queue() {
  const { queue = "", tab = "now" } = params.value;
  const [etag, setEtag] = useState("");
  const found = useData(queue ? path`queues/${queue}` : null, { topic: queue ? `queue:${queue}` : null, merge: queueMoved, onAnswer: (response) => setEtag((before) => response.headers.get("etag") ?? before) });
  const [isPublishing, setPublishing] = useState(false);
  const [isCreating, setCreating] = useState(false);
  const isMissing = found.data === undefined && found.problem?.status === 404;
  if (!queue) return html`<h1>Queue</h1><${Empty} title="Which queue?"><p>Choose one from <a href="./queues">the list of queues</a>.</p></${Empty}>`;
  document.title = `${visible(queue, { isName: true })} · VibeMQ`;
  if (isCreating || (isMissing && !isPublishing)) return html`<${NoQueue} queue=${queue} isCreating=${isCreating} setCreating=${setCreating} />`;
  return html`
    <nav class="crumbs" aria-label="Where this is"><a href="./queues">Queues</a><span aria-hidden="true">/</span></nav>
    <div class="title"><h1><${Name} name=${queue} /></h1><${State} queue=${queue} /><span class="push"></span><div class="actions">
      ${found.data && html`<${Copy} text=${() => definition(found.data)} what="the definition of the queue" label="Copy definition" />`}
      ${(may("purge", queue) || may("delete", queue)) && html`<a class="button" href=${`${link("queue", { queue })}#end`} onClick=${(event) => toEnd(event, tab)}>Purge or delete…</a>`}
      ${may("publish", queue) && html`<button type="button" class="button main" onClick=${() => setPublishing(true)}>Publish</button>`}
    </div></div>
    <${Stopped} />
    <${Tabs} label="About the queue" tabs=${TABS}><a class="away" href=${link("dead-letters", { queue })} title="Opens the page of dead letters, with those of this queue">Dead letters${found.data?.dead ? html` <span class="num">${count(found.data.dead)}</span>` : ""} <span aria-hidden="true">↗</span></a></${Tabs}>
    <${Loaded} found=${found} what="Loading the queue">${(data) => html`
      ${tab === "now" && html`<${Now} data=${data} onChange=${found.refresh} />`}
      ${tab === "messages" && html`<${Messages} data=${data} onChange=${found.refresh} />`}
      ${tab === "options" && html`<${Options} key=${data.incarnation} data=${data} etag=${etag} onChange=${found.refresh} />`}
      ${tab === "tail" && html`<${Tail} queue=${queue} />`}
      ${tab === "now" && html`<${End} data=${data} onChange=${found.refresh} />`}
    `}</${Loaded}>
    ${isPublishing && html`<${Publish} queue=${queue} onClose=${() => { setPublishing(false); found.refresh(); }} />`}
    ${tab === "now" && html`<${Commands} admin=${[["queue", "info"], { names: [queue] }]} request=${{ path: path`queues/${queue}` }} />`}`;
}

/** In place of a queue that is not there: only what makes sense without it. */
function NoQueue({ queue, isCreating, setCreating }) {
  const mayCreate = may("create", queue) && nameProblem(queue) === "";
  return html`
    <nav class="crumbs" aria-label="Where this is"><a href="./queues">Queues</a><span aria-hidden="true">/</span></nav>
    <div class="title"><h1><${Name} name=${queue} /></h1></div>
    <div class="card" role="alert"><${Empty} title="There is no queue of this name">
      <p>It was deleted, or it never existed.${may("inspect", queue) ? html` Dead letters outlive their queue: <a href=${link("dead-letters", { queue })}>see whether there are any</a>.` : ""}</p>
      <div class="buttons">${mayCreate && html`<button type="button" class="button main" onClick=${() => setCreating(true)}>Create this queue</button>`}<a class=${`button ${mayCreate ? "" : "main"}`} href="./queues">All queues</a></div>
    </${Empty}></div>
    ${isCreating && html`<${CreateQueue} first=${queue} onClose=${() => setCreating(false)} />`}`;
}

/** What stops the whole broker stops this queue as well. */
function Stopped() {
  const { data } = useData("overview", { topic: "overview" });
  return data?.sentences.filter(({ level, link: target }) => level === "alarm" && target.page === "broker").map(Sentence);
}

function State({ queue }) {
  const query = { queue };
  const found = useData("queues", { query, topic: `queues${queryText(query)}`, merge: ({ queues }) => ({ items: queues }) });
  return found.data?.items.map(({ state }) => html`<${QueueState} state=${state} queue=${queue} />`);
}

/** The queue as another broker's settings or a PUT would have it. */
const definition = ({ queue, options }) => exactJson({ queue, options }, 2);

/** On the tab that has it, a plain click only scrolls. */
function toEnd(event, tab) {
  if (tab !== "now" || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  showEnd();
}

function showEnd() {
  const section = document.getElementById("end");
  section?.scrollIntoView({ block: "center" });
  section?.querySelector("button:enabled")?.focus({ preventScroll: true });
}

/** What cannot be taken back, apart from everything else. */
function End({ data, onChange }) {
  const { queue, ready, in_flight, delayed } = data;
  useEffect(() => {
    if (location.hash === "#end") showEnd();
  }, []);
  const waiting = ready + delayed;
  const purge = async () => {
    const request = { method: "POST", path: path`queues/${queue}/purge`, body: { at_most: waiting } };
    const done = await ask({
      title: html`Purge <${Name} name=${queue} />?`,
      happens: html`<p><strong>${counted(waiting, "waiting message")}</strong> will be deleted. ${in_flight > 0 && `The ${counted(in_flight, "message")} that consumers hold now ${in_flight === 1 ? "stays" : "stay"}, and so do dead letters.`}</p>`,
      reversible: "This cannot be taken back. If more messages wait by then than are told here, nothing is deleted.",
      instead: html`<${ExportFirst} queue=${queue} />`,
      typed: waiting,
      button: `Purge ${counted(waiting, "message")}`,
      isDanger: true,
      commands: { admin: [["queue", "purge"], { options: { yes: true, "at-most": waiting }, names: [queue] }], request },
      act: (key) => post(request.path, request.body, { key }),
    });
    if (done) say(`Purged ${counted(done.count ?? waiting, "message")}.`);
    onChange();
  };
  const drop = async () => {
    const request = { method: "DELETE", path: path`queues/${queue}`, query: { at_most: waiting + in_flight } };
    const done = await ask({
      title: html`Delete <${Name} name=${queue} />?`,
      happens: html`<p>The queue, its options, its groups and <strong>${counted(waiting + in_flight, "message")}</strong> will be deleted. Its dead letters stay. Consumers lose their subscriptions.</p>`,
      reversible: "This cannot be taken back. If it has more messages by then than are told here, it is not deleted.",
      instead: html`<${ExportFirst} queue=${queue} />`,
      typed: queue,
      button: "Delete the queue",
      isDanger: true,
      commands: { admin: [["queue", "rm"], { options: { yes: true, "at-most": waiting + in_flight }, names: [queue] }], request },
      act: () => remove(request.path, request.query),
    });
    if (done) location.assign("./queues");
  };
  const mayPurge = may("purge", queue);
  const mayDelete = may("delete", queue);
  if (!mayPurge && !mayDelete) return null;
  return html`<section class="card danger-zone" id="end"><h2>Purge or delete</h2><div class="buttons">
    ${mayPurge && html`<button type="button" class="button danger" disabled=${waiting === 0} onClick=${purge}>Purge messages…</button>`}
    ${mayDelete && html`<button type="button" class="button danger" onClick=${drop}>Delete queue…</button>`}
    <span class="muted small">${waiting === 0 && mayPurge ? "Nothing waits that could be purged." : ""}</span>
  </div></section>`;
}

const ExportFirst = ({ queue }) => html`<${Commands} admin=${[["queue", "export"], { options: { out: "messages.jsonl" }, names: [queue] }]} label="Export first" />`;

// A queue as it is now: figures, charts, groups and consumers.

const optionShown = (name, value) => shownValue(OPTIONS.find((option) => option.name === name), value);
const limited = (most, shown) => (most ? html`<span class="unit"> of ${shown(most)}</span>` : "");
const RANGES = [["15m", "15 min"], ["6h", "6 h"], ["48h", "48 h"]];
const SERIES = ["ready", "in_flight", "dead", "in", "out", "ack"];

function Now({ data, onChange }) {
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
    <div id="consumers"><${Consumers} queue=${queue} /></div>
    <${Groups} data=${data} onChange=${onChange} />
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
  { key: "client", label: "Client", isHead: true, cell: ({ client, connection }) => html`<a data-open href=${link("connections", { id: connection })}><${Outside} text=${client || connection || "unnamed"} isName /></a>` },
  { key: "user", label: "User", cell: ({ user }) => html`<${Outside} text=${user} isName />` },
  ...HELD,
];

function Consumers({ queue }) {
  const found = useData(path`queues/${queue}/consumers`);
  const url = useNativeUrl();
  if (found.data === undefined) return found.problem && html`<${Trouble} problem=${found.problem} retry=${found.refresh} />`;
  const rows = found.data.items;
  return html`<${Table} caption="Consumers" rows=${rows} columns=${CONSUMERS} keyOf=${({ consumer, connection }) => `${connection} ${consumer}`}
    empty=${html`<div class="empty"><h2>Nobody consumes from this queue</h2><p>Start a consumer with <code>${adminLine(["sub"], { options: { url }, names: [queue], program: "vibemq" })}</code>, or in Python:</p><pre class="code wrapped">${`import vibemq.sync\n\nwith vibemq.sync.connect("${url}") as mq:\n    with mq.subscribe("${queue}") as messages:\n        for message in messages:\n            print(message.payload)\n            message.ack()`}</pre></div>`} />`;
}

const GROUPS_SHOWN = 100;

const groupColumns = (queue, open) => [
  { key: "name", label: "Group", isHead: true, cell: ({ name, cursor }) => (cursor ? html`<a href=${link("cursors", { queue, group: name })}><${Name} name=${name} /></a>` : html`<${Name} name=${name} />`) },
  { key: "waiting", label: "Waiting", isNum: true, cell: ({ waiting }) => html`<${Count} value=${waiting} />` },
  { key: "in_flight", label: "In flight", isNum: true, cell: ({ in_flight }) => html`<${Count} value=${in_flight} />` },
  { key: "where", label: "Filter", className: "clip", cell: ({ where }) => html`<${Outside} text=${where} mono />` },
  { key: "consumers", label: "Consumers", isNum: true, cell: ({ consumers }) => html`<${Count} value=${consumers} />` },
  { key: "do", label: html`<span class="hidden-text">Change</span>`, isTight: true, cell: (group) => !group.cursor && group.durable && mayManage(queue, group.name, group.user) && html`<button type="button" class="button slim" onClick=${() => open("seek", group)}>Seek…</button> <button type="button" class="button danger slim" onClick=${() => open("remove", group)}>Delete…</button>` },
];

/** Cursors have a page of their own, where they are moved, limited and deleted. */
function Groups({ data, onChange }) {
  const { queue, groups, next_sequence: tail } = data;
  const [seeking, setSeeking] = useState(null);
  const named = (groups ?? []).filter(({ name }) => name);
  if (named.length === 0 && !seeking) return null;
  const open = (what, { name, waiting, in_flight }) => {
    const row = { queue, group: name, backlog: waiting + in_flight, tail };
    if (what === "seek") setSeeking(row);
    else removeGroup(row, onChange);
  };
  const done = () => {
    setSeeking(null);
    onChange();
  };
  return html`<${Table} caption=${groups.length < GROUPS_SHOWN ? counted(named.length, "group") : `The first ${counted(named.length, "group")}`} rows=${named} keyOf=${({ name }) => name} columns=${groupColumns(queue, open)} />
    ${seeking && html`<${Seek} row=${seeking} onClose=${() => setSeeking(null)} onDone=${done} />`}`;
}

// What waits in a queue, by what becomes of it next. Looking takes nothing and changes nothing.

const STATES = [["ready", "Ready"], ["delayed", "Delayed"], ["in_flight", "In flight"]];
const NOTHING = {
  ready: ["Nothing is ready", "Messages that can be handed out to the next consumer are here."],
  delayed: ["Nothing is delayed", "Messages that were published with a delay, and those that wait for their next attempt, are here."],
  in_flight: ["Nothing is in flight", "Messages that consumers hold and have not settled are here, with who holds them and until when."],
};
const LIMIT = 50;
const PREVIEW_BYTES = 200;
const TIMES = [["", "At any time"], ["900000", "In the last 15 min"], ["3600000", "In the last hour"], ["86400000", "In the last day"], ["604800000", "In the last week"]];

const previewOf = ({ payload, payload_base64, truncated }) =>
  payload_base64 !== undefined ? html`<span class="muted">binary</span>` : html`<${Outside} text=${(payload ?? "").slice(0, PREVIEW_BYTES)} mono isName=${false} />${truncated ? "…" : ""}`;

/** "name:value, name:value" as the API takes it; what is no pair is left out. */
const headersOf = (text) => text?.split(",").map((pair) => pair.trim()).filter((pair) => pair.indexOf(":") > 0);

function columnsOf(queue, state) {
  return [
    { key: "sequence", label: "Sequence", isHead: true, cell: ({ sequence }) => html`<a data-open href=${link("message", { queue, sequence })}>${count(sequence)}</a>` },
    { key: "id", label: "Id", className: "clip", cell: ({ id }) => html`<${Outside} text=${id} mono />` },
    { key: "published", label: "Published", isTight: true, cell: ({ published_at }) => html`<${Ago} at=${published_at} />` },
    !state && { key: "state", label: "State", isTight: true, cell: (row) => STATES.find(([key]) => key === row.state)?.[1] ?? "Settled" },
    state === "delayed" && { key: "due", label: "Due", isTight: true, cell: ({ due_at }) => html`<${At} at=${due_at} />` },
    state === "in_flight" && { key: "holder", label: "Held by", cell: ({ holders }) => html`${(holders ?? []).map(({ client, connection, user, group }) => html`<div><a href=${link("connections", { id: connection })}><${Outside} text=${client || user || connection} isName /></a>${group ? html` <span class="muted">(<${Outside} text=${group} isName />)</span>` : ""}</div>`)}` },
    state === "in_flight" && { key: "deadline", label: "Deadline", isTight: true, cell: ({ holders }) => html`<${At} at=${holders?.[0]?.deadline_at} />` },
    { key: "attempts", label: "Attempts", isNum: true, cell: ({ attempts }) => count(attempts ?? 0) },
    { key: "size", label: "Size", isNum: true, cell: ({ payload_size }) => html`<${Size} bytes=${payload_size} />` },
    { key: "body", label: "Body", className: "clip", cell: previewOf },
  ];
}

function Messages({ data }) {
  const { queue } = data;
  const { from, newer_than_ms, cursor, message_id, header } = params.value;
  const headers = headersOf(header);
  const isSearch = Boolean(message_id || headers?.length);
  // A search is for all states, unless one is chosen.
  const state = params.value.state || (isSearch ? "" : "ready");
  const query = { state, from, newer_than_ms, message_id, header: headers, cursor, limit: LIMIT, preview_bytes: PREVIEW_BYTES };
  const found = useData(path`queues/${queue}/messages`, { query, every: isSearch ? 0 : undefined });
  return html`
    <div class="buttons"><${Segments} label="Which messages" value=${state} options=${[...(isSearch ? [["", "All"]] : []), ...STATES.map(([key, text]) => [key, html`${text} <span class="num">${count(data[key])}</span>`])]} onChange=${(value) => setParams({ state: value === (isSearch ? "" : "ready") ? null : value, cursor: null })} /></div>
    <${Filters} label="Search" fields=${[
      { name: "message_id", label: "Message id", size: 24 },
      { name: "header", label: "Header, as name:value", size: 24 },
      { name: "from", label: "From sequence", placeholder: count(data.first_sequence), size: 12 },
      { name: "newer_than_ms", label: "Published", kind: "select", options: TIMES },
    ]} />
    <${Loaded} found=${found} what="Looking into the queue">${(page) => html`
      <${Table} isOld=${found.isOld} name="messages" caption=${`${state ? STATES.find(([key]) => key === state)?.[1] : "Found"} messages`} isQuiet rows=${page.items} keyOf=${({ sequence }) => sequence} columns=${columnsOf(queue, state)} next=${page.next ?? null}
        bar=${page.examined !== undefined && html`<span role="status">${counted(page.items.length, "message")} found among ${count(page.examined)} ${page.next ? "that could be looked at in a moment; the next page goes on there" : "looked at"}.</span>`}
        empty=${isSearch ? html`<${Empty} title=${page.next ? "Nothing found so far" : cursor ? "No more messages fit" : "No message fits"}><p>Messages that failed for good are among the <a href=${link("dead-letters", { queue, message_id, header: headers })}>dead letters</a>.</p></${Empty}>` : html`<${Empty} title=${NOTHING[state]?.[0]}><p>${NOTHING[state]?.[1]}</p>${newer_than_ms && html`<p>Only what was published in the chosen time is looked at.</p>`}</${Empty}>`} />`}</${Loaded}>
    <p class="muted small">Looking takes nothing: no message is handed out, counted or moved. Oldest ready: ${data.oldest_at ? html`<${Ago} at=${data.oldest_at} suffix="" />` : "–"}.</p>
    <${Commands} admin=${state === "ready" || isSearch ? [["queue", "peek"], { options: { limit: LIMIT, from, "newer-than": newer_than_ms && `${newer_than_ms}ms`, state: isSearch && state, id: message_id, header: headers?.map((pair) => pair.replace(":", "=")) }, names: [queue] }] : null} request=${{ path: path`queues/${queue}/messages`, query }} />`;
}

// New messages as they come. It makes no group and no consumer; what is too much is left out, and counted.

const KEPT = 200;
const SHOWN_CHARACTERS = 2000;

function Tail({ queue }) {
  const [rows, setRows] = useState([]);
  const [skipped, setSkipped] = useState(0);
  const [problem, setProblem] = useState(null);
  const [isOpen, setOpen] = useState(false);
  const [attempt, setAttempt] = useState(0);
  const [hasGap, setGap] = useState(false);
  const waiting = useRef([]);
  // A stream that nobody sees would keep the session and one of the user's few streams for days.
  const isLive = live.value && seen.value;
  useEffect(() => {
    if (!isLive) {
      setGap(true);
      return undefined;
    }
    const leaving = new AbortController();
    const onEvent = ({ event, data }) => {
      if (event !== "messages") return;
      const told = JSON.parse(data);
      waiting.current.push(...told.messages);
      if (told.skipped) setSkipped((before) => before + told.skipped);
    };
    const again = (ms) => !leaving.signal.aborted && setTimeout(() => setAttempt((before) => before + 1), ms + Math.random() * 1000);
    const onOpen = () => {
      setProblem(null);
      setOpen(true);
    };
    const follow = async () => {
      try {
        await readEvents(path`queues/${queue}/tail`, {}, { signal: leaving.signal, onEvent, onOpen });
        again(1000);
      } catch (found) {
        if (found.name !== "AbortError") setProblem(found);
        if (found.isPassing) again(Math.max(1000, found.retryAfterS * 1000));
      }
      setOpen(false);
    };
    follow();
    // Many at once are one change of the page.
    const timer = setInterval(() => {
      if (waiting.current.length === 0) return;
      const fresh = waiting.current.splice(0).reverse();
      setRows((before) => [...fresh, ...before].slice(0, KEPT));
    }, 250);
    return () => {
      leaving.abort();
      clearInterval(timer);
    };
  }, [queue, isLive, attempt]);
  return html`
    <div class="table-box">
      <div class="table-bar"><span class=${`pill ${isOpen ? "good" : ""}`}>${isOpen ? "Following" : isLive ? "Connecting" : "Paused"}</span>
        <span class="muted small">${hasGap && isLive ? "Messages that came while this was paused or not seen are not here. " : ""}${skipped > 0 ? `${count(skipped)} left out: more come than are shown (50 a second).` : "New messages are shown at the top, and stay in the queue."}</span>
        <span class="push"></span>${rows.length > 0 && html`<button type="button" class="button slim" onClick=${() => { setRows([]); setSkipped(0); setGap(false); }}>Clear</button>`}</div>
      ${rows.length === 0 ? html`<${Empty} title="Waiting for the next message"><p>What is published to this queue from now on is shown here, up to 50 messages a second.</p></${Empty}>` : html`<ul class="tail" tabindex="0" aria-label="New messages">${rows.map((row) => html`<li key=${row.sequence}>
        <span class="line"><a data-open href=${link("message", { queue, sequence: row.sequence })}>${count(row.sequence)}</a><${At} at=${row.published_at} millis /><span>${size(row.payload_size)}</span><${Outside} text=${row.id} mono /></span>
        <span class="body">${row.payload_base64 !== undefined ? html`<span class="muted">binary</span>` : html`<${Outside} text=${(row.payload ?? "").slice(0, SHOWN_CHARACTERS)} lines />`}</span></li>`)}</ul>`}
    </div>
    ${problem && html`<${Trouble} problem=${problem} retry=${() => setAttempt(attempt + 1)} />`}
    <${Commands} request=${{ path: path`queues/${queue}/tail`, headers: { accept: "text/event-stream" }, stream: true }} />`;
}

start(Queue);
