// What waits in a queue, by what becomes of it next. Looking takes nothing and changes nothing.
import { html } from "../../vendor/ui.js";
import { path } from "../../pure/commands.js";
import { visible } from "../../pure/symbols.js";
import { link, params, setParams } from "../../parts/address.js";
import { Commands } from "../../parts/command.js";
import { useData } from "../../parts/data.js";
import { Filters, Segments } from "../../parts/filters.js";
import { Empty, Loaded } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { Ago, At, Duration, Outside, Size } from "../../parts/text.js";
import { count, counted } from "../../pure/format.js";

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
    !state && { key: "state", label: "State", isTight: true, cell: (row) => STATES.find(([key]) => key === row.state)?.[1] ?? "Settled" },
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
