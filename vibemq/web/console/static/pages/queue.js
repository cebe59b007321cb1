import { html, useEffect, useState } from "../vendor/ui.js";
import { path, query as queryText } from "../pure/commands.js";
import { link, params } from "../parts/address.js";
import { remove, post } from "../parts/api.js";
import { Commands, Copy } from "../parts/command.js";
import { useData } from "../parts/data.js";
import { ask, say } from "../parts/dialog.js";
import { Tabs } from "../parts/filters.js";
import { start } from "../parts/frame.js";
import { may } from "../parts/session.js";
import { Empty, Loaded } from "../parts/states.js";
import { Name } from "../parts/text.js";
import { count, counted } from "../pure/format.js";
import { Messages, Tail } from "./shared/queue-messages.js";
import { Now } from "./shared/queue-now.js";
import { Options } from "./shared/options.js";
import { Publish } from "./shared/queue-publish.js";
import { QueueState, Sentence } from "./shared/state.js";

const TABS = [["now", "Now"], ["messages", "Messages"], ["options", "Options"], ["tail", "Tail"]];

function Queue() {
  const { queue = "", tab = "now" } = params.value;
  const [etag, setEtag] = useState("");
  const found = useData(queue ? path`queues/${queue}` : null, { topic: queue ? `queue:${queue}` : null, merge: moved, onAnswer: (response) => response.headers.get("etag") && setEtag(response.headers.get("etag")) });
  const [isPublishing, setPublishing] = useState(false);
  if (!queue) return html`<${Empty} title="Which queue?"><p>Choose one from <a href="./queues">the list of queues</a>.</p></${Empty}>`;
  document.title = `${queue} · VibeMQ`;
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
      ${tab === "now" && html`<${Now} data=${data} />`}
      ${tab === "messages" && html`<${Messages} data=${data} onChange=${found.refresh} />`}
      ${tab === "options" && html`<${Options} key=${data.incarnation} data=${data} etag=${etag} onChange=${found.refresh} />`}
      ${tab === "tail" && html`<${Tail} queue=${queue} />`}
      ${tab === "now" && html`<${End} data=${data} onChange=${found.refresh} />`}
      ${isPublishing && html`<${Publish} queue=${queue} onClose=${() => { setPublishing(false); found.refresh(); }} />`}
    `}</${Loaded}>
    ${tab === "now" && html`<${Commands} admin=${[["queue", "info"], { names: [queue] }]} request=${{ path: path`queues/${queue}` }} />`}`;
}

/** What stops the whole broker stops this queue as well. */
function Stopped() {
  const { data } = useData("overview", { topic: "overview" });
  return data?.sentences.filter(({ level, link: target }) => level === "alarm" && target.page === "broker").map(Sentence);
}

function State({ queue }) {
  const query = { queue };
  const found = useData("queues", { query, topic: `queues${queryText(query)}`, merge: ({ queues }) => ({ items: queues }) });
  return found.data?.items.map(({ state }) => html`<${QueueState} state=${state} isWhole=${true} />`);
}

/** A frame of the stream is the description as the engine has it: its options are left out, they are those of the ETag. */
const moved = ({ options, name, size, ...figures }, before) => ({ ...before, ...figures, bytes: size });

/** The queue as another broker's settings or a PUT would have it. */
const definition = ({ queue, options }) => JSON.stringify({ queue, options }, null, 2);

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
      commands: { admin: [["queue", "purge"], { options: { yes: true }, names: [queue] }], request },
      act: () => post(request.path, request.body),
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
      commands: { admin: [["queue", "rm"], { options: { yes: true }, names: [queue] }], request },
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

start(Queue);
