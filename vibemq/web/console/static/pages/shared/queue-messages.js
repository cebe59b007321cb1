// What waits in a queue, by what becomes of it next. Looking takes nothing and changes nothing.
import { html, useEffect, useRef, useState } from "../../vendor/ui.js";
import { link, params, setParams } from "../../parts/address.js";
import { Commands } from "../../parts/command.js";
import { live, readEvents, useData } from "../../parts/data.js";
import { Filters, Segments } from "../../parts/filters.js";
import { Empty, Loaded, Trouble } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { Ago, At, Duration, Outside, Size } from "../../parts/text.js";
import { path } from "../../pure/commands.js";
import { count, counted, size } from "../../pure/format.js";
import { visible } from "../../pure/symbols.js";

const STATES = [["ready", "Ready"], ["delayed", "Delayed"], ["in_flight", "In flight"]];
const NOTHING = {
  ready: ["Nothing is ready", "Messages that can be handed out to the next consumer are here."],
  delayed: ["Nothing is delayed", "Messages that were published with a delay, and those that wait for their next attempt, are here."],
  in_flight: ["Nothing is in flight", "Messages that consumers hold and have not settled are here, with who holds them and until when."],
};
const LIMIT = 50;
const PREVIEW_BYTES = 200;

const previewOf = ({ payload, payload_base64, truncated }) =>
  payload_base64 !== undefined ? html`<span class="muted">binary</span>` : html`<${Outside} text=${visible((payload ?? "").slice(0, PREVIEW_BYTES))} mono=${true} />${truncated ? "…" : ""}`;

/** "name:value, name:value" as the API takes it; what is no pair is left out. */
const headersOf = (text) => text?.split(",").map((pair) => pair.trim()).filter((pair) => pair.indexOf(":") > 0);

function columnsOf(queue, state) {
  return [
    { key: "sequence", label: "Sequence", isHead: true, cell: ({ sequence }) => html`<a data-open href=${link("message", { queue, sequence })}>${count(sequence)}</a>` },
    { key: "id", label: "Id", className: "clip", cell: ({ id }) => html`<${Outside} text=${id} mono=${true} />` },
    { key: "published", label: "Published", isTight: true, cell: ({ published_at }) => html`<${Ago} at=${published_at} />` },
    !state && { key: "state", label: "State", isTight: true, cell: (row) => STATES.find(([key]) => key === row.state)?.[1] },
    state === "delayed" && { key: "due", label: "Due", isTight: true, cell: ({ due_at }) => html`<${At} at=${due_at} />` },
    state === "in_flight" && { key: "holder", label: "Held by", cell: ({ holders }) => html`${(holders ?? []).map(({ client, connection, user, group }) => html`<div><a href=${link("connections", { id: connection })}><${Outside} text=${client || user || connection} /></a>${group ? html` <span class="muted">(<${Outside} text=${group} />)</span>` : ""}</div>`)}` },
    state === "in_flight" && { key: "deadline", label: "Deadline", isTight: true, cell: ({ holders }) => html`<${At} at=${holders?.[0]?.deadline_at} />` },
    { key: "attempts", label: "Attempts", isNum: true, cell: ({ attempts }) => count(attempts ?? 0) },
    { key: "size", label: "Size", isNum: true, cell: ({ payload_size }) => html`<${Size} bytes=${payload_size} />` },
    { key: "body", label: "Body", className: "clip", cell: previewOf },
  ];
}

export function Messages({ data }) {
  const { queue } = data;
  const { from, cursor, message_id, header } = params.value;
  const headers = headersOf(header);
  const isSearch = Boolean(message_id || headers?.length);
  // A search is for all states, unless one is chosen.
  const state = params.value.state ?? (isSearch ? "" : "ready");
  const query = { state, from, message_id, header: headers, cursor, limit: LIMIT, preview_bytes: PREVIEW_BYTES };
  const found = useData(path`queues/${queue}/messages`, { query, every: isSearch ? 0 : undefined });
  return html`
    <div class="buttons"><${Segments} label="Which messages" value=${state} options=${[...(isSearch ? [["", "All"]] : []), ...STATES.map(([key, text]) => [key, html`${text} <span class="num">${count(data[key])}</span>`])]} onChange=${(value) => setParams({ state: value === (isSearch ? "" : "ready") ? null : value, cursor: null })} /></div>
    <${Filters} label="Search" fields=${[
      { name: "message_id", label: "Message id", size: 24 },
      { name: "header", label: "Header, as name:value", size: 24 },
      { name: "from", label: "From sequence", placeholder: count(data.first_sequence), size: 12 },
    ]} />
    <${Loaded} found=${found} what="Looking into the queue">${(page) => html`
      <${Table} name="messages" caption=${`${state ? STATES.find(([key]) => key === state)[1] : "Found"} messages`} isQuiet=${true} rows=${page.items} keyOf=${({ sequence }) => sequence} columns=${columnsOf(queue, state)} next=${page.next ?? null}
        bar=${page.examined !== undefined && html`<span role="status">${counted(page.items.length, "message")} found among ${count(page.examined)} ${page.next ? "that could be looked at in a moment; the next page goes on there" : "looked at"}.</span>`}
        empty=${isSearch ? html`<${Empty} title=${page.next ? "Nothing found so far" : "No message fits"}><p>Messages that failed for good are among the <a href=${link("dead-letters", { queue, message_id, header: headers })}>dead letters</a>.</p></${Empty}>` : html`<${Empty} title=${NOTHING[state][0]}><p>${NOTHING[state][1]}</p></${Empty}>`} />`}</${Loaded}>
    <p class="muted small">Looking takes nothing: no message is handed out, counted or moved. Oldest ready: <${Duration} ms=${data.oldest_at ? Math.max(0, Date.now() - new Date(data.oldest_at).getTime()) : null} />.</p>
    <${Commands} admin=${state === "ready" || isSearch ? [["queue", "peek"], { options: { limit: LIMIT, from, state: isSearch && state, id: message_id, header: headers?.map((pair) => pair.replace(":", "=")) }, names: [queue] }] : null} request=${{ path: path`queues/${queue}/messages`, query }} />`;
}

// New messages as they come. It makes no group and no consumer; what is too much is left out, and counted.

const KEPT = 200;
const SHOWN_CHARACTERS = 2000;

export function Tail({ queue }) {
  const [rows, setRows] = useState([]);
  const [skipped, setSkipped] = useState(0);
  const [problem, setProblem] = useState(null);
  const [isOpen, setOpen] = useState(false);
  const [attempt, setAttempt] = useState(0);
  const waiting = useRef([]);
  const isLive = live.value;
  useEffect(() => {
    if (!isLive) return undefined;
    const leaving = new AbortController();
    const onEvent = ({ event, data }) => {
      if (event !== "messages") return;
      const told = JSON.parse(data);
      waiting.current.push(...told.messages);
      if (told.skipped) setSkipped((before) => before + told.skipped);
    };
    const follow = async () => {
      try {
        setProblem(null);
        await readEvents(path`queues/${queue}/tail`, {}, { signal: leaving.signal, onEvent, onOpen: () => setOpen(true) });
        if (!leaving.signal.aborted) setTimeout(() => setAttempt((before) => before + 1), 1000 + Math.random() * 1000);
      } catch (found) {
        if (found.name !== "AbortError") setProblem(found);
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
        <span class="muted small">${skipped > 0 ? `${count(skipped)} left out: more come than are shown (50 a second).` : "New messages are shown at the top, and stay in the queue."}</span>
        <span class="push"></span>${rows.length > 0 && html`<button type="button" class="button slim" onClick=${() => { setRows([]); setSkipped(0); }}>Clear</button>`}</div>
      ${rows.length === 0 ? html`<${Empty} title="Waiting for the next message"><p>What is published to this queue from now on is shown here, up to 50 messages a second.</p></${Empty}>` : html`<ul class="tail" tabindex="0" aria-label="New messages">${rows.map((row) => html`<li key=${row.sequence}>
        <span class="line"><a data-open href=${link("message", { queue, sequence: row.sequence })}>${count(row.sequence)}</a><${At} at=${row.published_at} millis=${true} /><span>${size(row.payload_size)}</span><${Outside} text=${row.id} mono=${true} /></span>
        <span class="body">${row.payload_base64 !== undefined ? html`<span class="muted">binary</span>` : html`<${Outside} text=${(row.payload ?? "").slice(0, SHOWN_CHARACTERS)} lines=${true} />`}</span></li>`)}</ul>`}
    </div>
    ${problem && html`<${Trouble} problem=${problem} retry=${() => setAttempt(attempt + 1)} />`}
    <${Commands} request=${{ path: path`queues/${queue}/tail`, headers: { accept: "text/event-stream" }, stream: true }} />`;
}
