// One dead letter: why it died, what it is, what may be done with it.
import { html, useEffect, useState } from "../vendor/ui.js";
import { link, params, setParams } from "../parts/address.js";
import { Commands, Copy } from "../parts/command.js";
import { useData } from "../parts/data.js";
import { get, may, urlOf } from "../parts/api.js";
import { start } from "../parts/frame.js";
import { Ago, At, Empty, Facts, Hidden, Loaded, Name, Outside } from "../parts/text.js";
import { Headers, Viewer, decodingOf } from "../parts/viewer.js";
import { isHidden } from "../pure/body.js";
import { path, query } from "../pure/commands.js";
import { count, counted, duration, size, toDate } from "../pure/format.js";
import { attemptsSentence, attemptsText, filterOfSearch, reasonHelp, reasonText } from "../pure/letters.js";
import { EditDialog, earlierLife, hasBody } from "./letters/edit.js";
import { addressObject, letterLink, queryObject } from "./letters/list.js";
import { ReplayDialog, purgeOne } from "./letters/actions.js";

function LetterPage() {
  const { id = "", of, decode } = params.value;
  const [sent, setSent] = useState(null);
  const filter = filterOfSearch(new URLSearchParams(params.value && location.search));
  const isId = /^\d{1,18}$/.test(id);
  const found = useData(isId && sent?.id !== id ? path`dead-letters/${id}` : null, { query: { queue: of || filter.queue, decode, digest: true }, every: 0 });
  const back = link("dead-letters", addressObject(filter));
  const isGone = found.data === undefined && found.problem?.status === 404;
  const isHere = found.data && sent?.id !== id;
  return html`
    <nav class="crumbs" aria-label="Where this is"><a href=${back}>Dead letters</a><span aria-hidden="true">/</span><span>Letter ${isId ? id : ""}</span></nav>
    ${!isHere && html`<div class="title"><h1>Dead letter ${isId ? id : ""}</h1></div>`}
    ${!isId && html`<${Empty} title="Which letter?"><p>The address names no letter. <a href=${back}>Choose one from the list.</a></p></${Empty}>`}
    ${sent?.id === id ? html`<${Sent} ...${sent} back=${back} />` : isGone ? html`<${Gone} id=${id} back=${back} />`
      : isId && html`<${Loaded} found=${found} what="Loading the letter">${(letter) => html`<${Letter} letter=${letter} filter=${filter} back=${back} onSent=${(what) => setSent({ id, ...what })} />`}</${Loaded}>`}`;
}

/** What has become of a letter that was replayed from its dialog for edits. */
function Sent({ id, queue, sequence, isEdited, back }) {
  return html`<p class="well good" role="status"><span>Letter ${id} was ${isEdited ? "edited and replayed" : "replayed as it was"}: ${sequence ? html`it is now <a href=${link("message", { queue, sequence })}>message ${count(sequence)}</a> of <${Name} name=${queue} />.` : html`its message has entered <a href=${link("queue", { queue })}><${Name} name=${queue} /></a>, and does not wait there any more or cannot be looked at.`}</span></p>
    <div class="buttons"><a class="button main" href=${back}>Back to the dead letters</a>
      ${sequence && html`<a class="button" href=${link("message", { queue, sequence })}>Look at the message</a>`}
      <a class="button" href=${link("queue", { queue })}>Queue <${Name} name=${queue} /></a>
      <a class="button" href=${link("audit", { operation: "dlq.edit" })}>What the audit says</a></div>`;
}

/** A letter that is not there: whether its message died again, and where it is told who took it. */
function Gone({ id, back }) {
  const again = useData("dead-letters", { query: { header: `vibemq-replay-of:${id}`, from_id: Number(id) + 1, limit: 1 }, every: 0 }).data?.items[0];
  return html`<div class="card"><${Empty} title=${`Letter ${id} is not here any more`}>
    ${again
      ? html`<p>It was replayed, and its message died again: it is <a href=${letterLink(again.dead_id, again.queue)}>letter ${again.dead_id}</a> of queue <${Name} name=${again.queue} />.</p>`
      : html`<p>It was replayed or purged, or it never existed.</p>`}
    <p>Who did that: <a href="./jobs">the jobs</a> list replays and purges of many letters, <a href=${link("audit", { operation: "job.start" })}>the audit of jobs</a> has who asked for them, and <a href=${link("audit", { operation: "dlq.edit" })}>the audit of edits</a> those of single ones.</p>
    <p>A message that was made of it carries the header <code>vibemq-replay-of: ${id}</code>.</p>
    <p><a href=${back}>Back to the dead letters</a></p></${Empty}></div>`;
}

function Letter({ letter, filter, back, onSent }) {
  const [dialog, setDialog] = useState(null);
  const { dead_id: id, queue } = letter;
  const own = { queue, ids: String(id) };
  const mayReplay = may("purge", queue) && may("publish", queue);
  const { decode = "" } = params.value;
  const bodyPath = path`dead-letters/${String(id)}/body` + query({ queue, decode });
  return html`
    <div class="title">
      <h1>Dead letter ${id}</h1><span class="muted">of queue <a href=${link("queue", { queue })}><${Name} name=${queue} /></a></span>
      <span class="push"></span><${Neighbours} id=${id} filter=${filter} />
    </div>
    <div class="title"><div class="actions">
      ${mayReplay && html`<button type="button" class="button main" onClick=${() => setDialog("replay")}>Replay this letter…</button>
        ${letter.decoded_size === undefined && !isHidden(letter) && html`<button type="button" class="button" onClick=${() => setDialog("edit")}>Edit and replay…</button>`}`}
      ${!mayReplay && html`<span class="muted small">To replay it one needs <code>purge</code> and <code>publish</code> on the queue.</span>`}
    </div><span class="push"></span>
      ${may("purge", queue) && html`<button type="button" class="button danger" onClick=${() => purgeOne(letter, () => location.assign(back))}>Purge this letter…</button>`}
    </div>
    <div class="letter-grid">
      <div>
        <${Why} letter=${letter} />
        <section class="card" aria-labelledby="body"><h2 id="body">Body</h2>${hasBody(letter) || isHidden(letter) ? html`<${Viewer} message=${letter} bodyPath=${bodyPath} decoded=${decodingOf(letter, decode, (value) => setParams({ decode: value }))} />` : html`<p>It has ${size(letter.payload_size)}, more than is shown here. <a class="button slim" href=${urlOf(bodyPath).href} download>Download</a></p>`}</section>
        <section class="card" aria-labelledby="headers"><h2 id="headers">Headers</h2><${Headers} headers=${letter.headers} /></section>
      </div>
      <div>
        <section class="card" aria-labelledby="life"><h2 id="life">Its life</h2><${Life} letter=${letter} /></section>
        <section class="card" aria-labelledby="facts"><h2 id="facts">Facts</h2>
          <${Facts} items=${[
            ["Queue", html`<a href=${link("queue", { queue })}><${Name} name=${queue} /></a>`],
            ["Group", letter.group ? html`<${Name} name=${letter.group} />` : null],
            ["Sequence", letter.sequence],
            ["Message id", html`<${Outside} text=${letter.id} mono />`],
            ["Attempts", attemptsText(letter)],
            ["Replayed before", counted(letter.replay_count ?? 0, "time")],
            ["SHA-256", letter.sha256 ? html`<code>${letter.sha256}</code>` : null],
            ["Edited", letter.headers?.["vibemq-edited"] ? html`<${Outside} text=${letter.headers["vibemq-edited"]} />` : null],
          ]} />
        </section>
        <${Twins} letter=${letter} />
        <${Commands} admin=${[["dlq", "show"], { options: { queue, decode }, names: [String(id)] }]} request=${{ path: path`dead-letters/${String(id)}`, query: { queue, decode } }} />
      </div>
    </div>
    ${dialog === "replay" && html`<${ReplayDialog} filter=${own} onClose=${() => setDialog(null)} />`}
    ${dialog === "edit" && html`<${EditDialog} letter=${letter} onClose=${() => setDialog(null)} onDone=${onSent} />`}`;
}

function Why({ letter }) {
  const [why, help] = reasonHelp(letter.reason);
  const group = letter.group ? html` of group <${Name} name=${letter.group} />` : "";
  const attempts = letter.attempts > 0 ? html` after ${counted(letter.attempts, "attempt")}` : "";
  const mayLook = may("inspect", letter.queue) && letter.reason === "max_attempts";
  const most = useData(mayLook ? path`queues/${letter.queue}` : null, { every: 0 }).data?.options?.max_attempts ?? null;
  const allowed = attemptsSentence(letter, most);
  return html`<section class="card why" aria-labelledby="why">
    <h2 id="why">Why it died: ${reasonText(letter.reason)}${attempts}</h2>
    ${letter.error
      ? html`<p>What the consumer${group} said:</p><div class="code wrapped" role="region" aria-label="Error" tabindex="0"><${Outside} text=${letter.error} lines /></div>
        <div class="buttons"><${Copy} text=${letter.error} what="the error" label="Copy the error" /></div>`
      : html`<p>${isHidden(letter) ? html`<${Hidden} what="The error is" />` : "No consumer gave an error."}</p>`}
    <p>${why}</p>
    ${allowed && html`<p><${Outside} text=${allowed} /> <a href=${link("audit", { queue: letter.queue, operation: "queue.change" })}>Changes of the queue's options</a></p>`}
    <p><b>What helps:</b> ${help}</p>
  </section>`;
}

function Life({ letter }) {
  const between = (from, to) => {
    const [a, b] = [toDate(from), toDate(to)];
    return a && b ? duration(Math.max(0, b.getTime() - a.getTime())) : null;
  };
  const earlier = earlierLife(letter.headers);
  const waited = between(letter.published_at, letter.first_failed_at ?? letter.dead_at);
  const failing = letter.first_failed_at ? between(letter.first_failed_at, letter.dead_at) : null;
  const ended = letter.first_failed_at ? (new Date(letter.dead_at) > new Date(letter.first_failed_at) ? `, ${failing} later` : " of it") : waited ? `, ${waited} later` : "";
  return html`<ol class="steps">
    ${earlier && html`<li><div>It was dead letter <a href=${letterLink(earlier, letter.queue)}>${earlier}</a> before, and was replayed${letter.replay_count > 1 ? ` (${count(letter.replay_count)} times by now)` : ""}.</div></li>`}
    <li><div>Published <div class="small muted"><${At} at=${letter.published_at} millis /></div></div></li>
    ${letter.first_failed_at && html`<li><div>Failed first, ${waited} later <div class="small muted"><${At} at=${letter.first_failed_at} millis /></div></div></li>`}
    <li class="last"><div>Died${ended} · <${Ago} at=${letter.dead_at} /> <div class="small muted"><${At} at=${letter.dead_at} millis /></div></div></li>
  </ol>`;
}

/** Others that died of the same: counted by the index. */
function Twins({ letter }) {
  const found = useData("dead-letters/groups", { query: { queue: letter.queue, reason: letter.reason, limit: 1000 }, every: 0 });
  const groups = found.data?.items ?? [];
  const mine = groups.find((group) => (letter.fingerprint ? group.fingerprint === letter.fingerprint : (group.first_id ?? Infinity) <= letter.dead_id && (group.last_id ?? 0) >= letter.dead_id && group.sample === letter.error));
  if (!mine) return null;
  const twins = link("dead-letters", { queue: mine.queue, reason: mine.reason, fingerprint: mine.fingerprint });
  return html`<section class="card" aria-labelledby="twins"><h2 id="twins">Died of the same</h2>
    ${mine.count === 1
      ? html`<p>No other letter of this queue has this kind of error.</p>`
      : html`<p><a href=${twins}><b>${counted(mine.count, "letter")}</b> of this queue</a> have this kind of error. The first died at <${At} at=${mine.first_at} />, the last <${Ago} at=${mine.last_at} />.</p>
        <p><a class="button slim" href=${twins}>Show all ${count(mine.count)}</a></p>`}
  </section>`;
}

/** The letters beside this one, in the filter that one came from. */
function Neighbours({ id, filter }) {
  const [beside, setBeside] = useState({ after: null, before: null });
  const key = JSON.stringify([id, filter]);
  useEffect(() => {
    const leaving = new AbortController();
    const ask = async (bounds, order) => {
      const answer = await get("dead-letters", { ...queryObject({ ...filter, ...bounds }), order, limit: 1 }, { signal: leaving.signal });
      return answer.items[0] ?? null;
    };
    const both = async () => {
      const after = await ask({ from_id: Math.max(filter.from_id ?? 0, id + 1) }, "oldest");
      const before = id > 1 ? await ask({ to_id: Math.min(filter.to_id ?? Infinity, id - 1) }, "newest") : null;
      setBeside({ after, before });
    };
    both().catch(() => {});
    return () => leaving.abort();
  }, [key]);
  return html`<nav class="buttons" aria-label="Letters beside this one">
    ${beside.after && html`<a class="button slim" href=${letterLink(beside.after.dead_id, beside.after.queue, filter)} rel="prev">← Newer</a>`}
    ${beside.before && html`<a class="button slim" href=${letterLink(beside.before.dead_id, beside.before.queue, filter)} rel="next">Older →</a>`}
  </nav>`;
}

start(LetterPage);
