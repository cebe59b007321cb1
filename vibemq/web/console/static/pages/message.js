import { html, useState } from "../vendor/ui.js";
import { isStoredText } from "../pure/body.js";
import { path } from "../pure/commands.js";
import { count, counted, size } from "../pure/format.js";
import { visible } from "../pure/symbols.js";
import { link, params, setParams } from "../parts/address.js";
import { get, may, remove } from "../parts/api.js";
import { Commands } from "../parts/command.js";
import { useData } from "../parts/data.js";
import { ask } from "../parts/dialog.js";
import { start } from "../parts/frame.js";
import { At, Empty, Facts, Loaded, Name, Outside } from "../parts/text.js";
import { Headers, Viewer, decodingOf } from "../parts/viewer.js";
import { Publish } from "./shared/queue-publish.js";

const PRIORITIES = ["low", "normal", "high", "critical"];
const FIRST_BYTES = 65_536;
const MOST_BYTES = 262_144;
const STATES = { ready: "Ready to be handed out", delayed: "Delayed", in_flight: "With a consumer" };

function Message() {
  const { queue = "", sequence = "", decode = "" } = params.value;
  const [length, setLength] = useState(FIRST_BYTES);
  const [isPublishing, setPublishing] = useState(false);
  const isNumber = /^\d{1,19}$/.test(sequence);
  const place = path`queues/${queue}/messages/${sequence}`;
  const found = useData(queue && isNumber ? place : null, { query: { decode, length, digest: true }, every: 0 });
  if (!queue || !isNumber) return html`<h1>Message</h1><${Empty} title="Which message?"><p>The address names no message. Choose one from <a href="./queues">a queue</a>.</p></${Empty}>`;
  document.title = `${sequence} in ${visible(queue, { isName: true })} · VibeMQ`;
  const drop = async () => {
    const shown = found.data;
    const look = async (signal) => {
      const now = await get(place, { length: 1 }, { signal });
      // A queue that was deleted and made again begins with the same sequences.
      const isSame = now.id === shown.id && now.published_at === shown.published_at;
      return isSame ? {} : { nothing: "It is another message by now: the queue has been made again. Load this page again to see it." };
    };
    const done = await ask({
      title: html`Remove message ${count(Number(sequence))} of <${Name} name=${queue} />?`,
      happens: html`<p><strong>1 message</strong> will be deleted. It does not become a dead letter.</p>`,
      reversible: "This cannot be taken back.",
      button: "Remove 1 message",
      look,
      isDanger: true,
      commands: { admin: [["message", "rm"], { options: { yes: true }, names: [queue, sequence] }], request: { method: "DELETE", path: place } },
      act: () => remove(place),
    });
    if (done) location.assign(link("queue", { queue, tab: "messages" }));
  };
  return html`
    <nav class="crumbs" aria-label="Where this is"><a href="./queues">Queues</a><span aria-hidden="true">/</span><a href=${link("queue", { queue, tab: "messages" })}><${Name} name=${queue} /></a><span aria-hidden="true">/</span></nav>
    <div class="title"><h1>Message ${count(Number(sequence))}</h1><span class="push"></span><div class="actions">
      ${may("publish", queue) && found.data && isStoredText(found.data) && html`<button type="button" class="button" onClick=${() => setPublishing(true)}>Publish one like it</button>`}
      ${may("purge", queue) && found.data?.state && found.data.state !== "in_flight" && html`<button type="button" class="button danger" onClick=${drop}>Remove…</button>`}
    </div></div>
    ${found.data === undefined && found.problem?.status === 404 ? html`<div class="table-box"><${Empty} title="This message is not in the queue"><p>It was consumed, removed or moved, or never existed. Messages that failed for good are among the <a href=${link("dead-letters", { queue })}>dead letters</a>.</p></${Empty}></div>` : html`<${Loaded} found=${found} what="Reading the message">${(data) => html`
      <div class="grid"><section class="card"><h2>Facts</h2><${Facts} items=${[
        ["State", html`${STATES[data.state] ?? data.state}${data.due_at ? html` until <${At} at=${data.due_at} />` : ""}`],
        ...(data.holders ?? []).map((holder) => ["Held by", html`<a href=${link("connections", { id: holder.connection })}><${Outside} text=${holder.client || holder.user || holder.connection} isName /></a>${holder.group ? html` for group <${Name} name=${holder.group} />` : ""}, until <${At} at=${holder.deadline_at} />`]),
        ["Id", html`<${Outside} text=${data.id} mono />`],
        ["Published", html`<${At} at=${data.published_at} millis />`],
        ["Priority", priorityText(data.priority)],
        ["Attempts", count(data.attempts)],
        data.expires_at && ["Expires", html`<${At} at=${data.expires_at} />`],
        ["Size", data.payload_size < 1024 ? counted(data.payload_size, "byte") : `${size(data.payload_size)} (${count(data.payload_size)} bytes)`],
        data.sha256 && ["SHA-256", html`<code>${data.sha256}</code>`],
      ]} /></section>
      <section class="card"><h2>Headers</h2><${Headers} headers=${data.headers} /></section></div>
      <section class="card"><h2>Body</h2>
        <${Viewer} message=${data} bodyPath=${`${place}/body`} decoded=${decodingOf(data, decode, (value) => { setLength(FIRST_BYTES); setParams({ decode: value }); })} />
        ${data.truncated && length < MOST_BYTES && html`<p><button type="button" class="button slim" onClick=${() => setLength(MOST_BYTES)}>Fetch ${size(MOST_BYTES)}</button></p>`}
      </section>
      ${isPublishing && html`<${Publish} queue=${queue} like=${data} onClose=${() => setPublishing(false)} />`}
    `}</${Loaded}>`}
    <${Commands} admin=${[["message", "show"], { names: [queue, sequence] }]} request=${{ path: place, query: { decode } }} />`;
}

/** As one chooses it when publishing; protocols with more steps than four have numbers. */
const priorityText = (priority) => (PRIORITIES[priority] ? `${PRIORITIES[priority]} (${priority})` : String(priority));

start(Message);
