// One job: how far, how fast, what became of its letters; pause, go on, cancel, the rate, and the same again.
import { html, useState } from "../vendor/ui.js";
import { link, params } from "../parts/address.js";
import { isSuperuser, may, patch, post, remove, session, urlOf } from "../parts/api.js";
import { Commands } from "../parts/command.js";
import { useData } from "../parts/data.js";
import { ask } from "../parts/dialog.js";
import { start } from "../parts/frame.js";
import { At, Empty, Facts, Figures, Loaded, Name, Outside, Prose, Size, Trouble, useLive } from "../parts/text.js";
import { path } from "../pure/commands.js";
import { count, counted, rateLimit } from "../pure/format.js";
import { actionsOf, hasEnded, isElsewhere, levelOf, verbOf } from "../pure/jobs.js";
import { filterOfBody, isTold } from "../pure/letters.js";
import { FilterWords, JobBar, StatePill, lettersLink } from "./jobs/progress.js";
import { holdsBack, isInCanary, isLimitReached, isUnread, mayHaveLeft, restOf, sentence, targetOf, toldOf } from "./jobs/told.js";
import { useKinds } from "./letters/kinds.js";
import { RateSlider, ReplayDialog, exportLetters, purge, replayRequest } from "./letters/actions.js";

function JobPage() {
  const { id = "" } = params.value;
  const isId = /^\d{1,18}$/.test(id);
  const [hasLeft, setLeft] = useState(false);
  const found = useData(isId ? path`jobs/${id}` : null, { every: hasLeft ? 0 : 1000 });
  if (found.data && hasEnded(found.data) && !hasLeft) setLeft(true);
  const isGone = found.data === undefined && found.problem?.status === 404;
  return html`
    <nav class="crumbs" aria-label="Where this is"><a href="./jobs">Jobs</a><span aria-hidden="true">/</span><span>Job ${isId ? id : ""}</span></nav>
    ${!isId || isGone
      ? html`<div class="title"><h1>${isId ? `Job ${id}` : "Job"}</h1></div><div class="card"><${Empty} title=${isId ? `There is no job ${id}` : "Which job?"}><p>Finished jobs are kept for seven days; of those without a file only the latest 200. <a href="./jobs">All jobs</a></p></${Empty}></div>`
      : html`<${Loaded} found=${found} what="Loading the job">${(job) => html`<${Job} job=${job} refresh=${async () => { await found.refresh(); setLeft(false); }} />`}</${Loaded}>`}`;
}

/** Whoever made it, and whoever might have the same done. */
function mayChange(job) {
  const queue = job.filter?.queue || "*";
  return session.value?.user === job.user || (may(job.kind === "export_dead" ? "inspect" : "purge", queue) && (job.kind !== "replay" || may("publish", job.to || queue)));
}

/** The file is deleted by whoever made it, or by a superuser. */
const mayDiscard = (job) => session.value?.user === job.user || isSuperuser();

function Job({ job, refresh }) {
  const [problem, setProblem] = useState(null);
  const [isAgain, setAgain] = useState(false);
  const change = async (body) => {
    setProblem(null);
    const found = await patch(path`jobs/${job.job}`, body).then(() => null, (refused) => refused);
    setProblem(found);
    await refresh();
    return found === null;
  };
  const cancel = async () => {
    const left = restOf(job);
    const words = left === null ? "the rest" : counted(left, "letter");
    const body = { state: "cancelled" };
    await ask({
      title: `Cancel job ${job.job}?`,
      happens: html`<p>${counted(job.done, "letter")} ${job.done === 1 ? "is" : "are"} done and stay so. ${left === null ? "The rest stays" : `${counted(left, "letter")} ${left === 1 ? "stays" : "stay"}`} where ${left === 1 ? "it is" : "they are"}.</p>`,
      reversible: "A cancelled job cannot go on, but the same can be run again.",
      button: `Cancel and leave ${words}`,
      isDanger: true,
      commands: commandsOf(job, "cancel", body),
      act: () => patch(path`jobs/${job.job}`, body),
    });
    await refresh();
  };
  useKinds([job.filter?.fingerprint]);
  const target = targetOf(job);
  const queue = useData(target && may("inspect", target) ? path`queues/${target}` : null, { every: 2000 }).data ?? null;
  const mine = mayChange(job);
  // Without a part that is hidden, more letters would be meant.
  const mayRepeat = mine && isTold(job.filter);
  const actions = mine ? actionsOf(job) : [];
  const again = () => {
    if (job.kind === "replay") setAgain(true);
    else if (job.kind === "purge_dead") purge(filterOfBody(job.filter));
    else exportLetters(filterOfBody(job.filter), null, { limit: job.limit, rate: job.rate, note: job.note });
  };
  const discard = async () => {
    const where = path`jobs/${job.job}/result`;
    await ask({
      title: `Delete the file of job ${job.job}?`,
      happens: "The file is deleted on the broker's machine. The letters stay where they are.",
      reversible: "As long as the letters are dead, the same can be exported again.",
      button: "Delete 1 file",
      isDanger: true,
      commands: { admin: [["job", "discard"], { names: [job.job] }], request: { method: "DELETE", path: where } },
      act: () => remove(where),
    });
    await refresh();
  };
  return html`
    <div class="title"><h1>${verbOf(job.kind)} · job ${job.job}</h1><${StatePill} job=${job} /><span class="push"></span>
      <div class="actions">
        <${First} job=${job} queue=${queue} />
        ${actions.includes("running") && html`<button type="button" class=${`button ${job.state === "held" ? "" : "main"}`} onClick=${() => change({ state: "running" })}>Go on</button>`}
        ${actions.includes("paused") && html`<button type="button" class="button" onClick=${() => change({ state: "paused" })}>Pause</button>`}
        ${actions.includes("cancelled") && html`<button type="button" class="button danger" onClick=${cancel}>Cancel…</button>`}
        ${job.has_result && html`<a class="button main" href=${urlOf(path`jobs/${job.job}/result`).href} download>Download the file</a>`}
        ${job.has_result && mayDiscard(job) && html`<button type="button" class="button danger" onClick=${discard}>Delete the file…</button>`}
        ${hasEnded(job) && mayRepeat && html`<button type="button" class="button" onClick=${again}>${mayHaveLeft(job) ? "Replay what is left…" : "Run the same again…"}</button>`}
      </div>
    </div>
    <p>${verbOf(job.kind)}: <${FilterWords} body=${job.filter} />${job.kind === "replay" && html`. The letters go ${isElsewhere(job) ? html`to queue <b><${Name} name=${job.to} /></b>` : job.filter?.queue ? "back to their own queue" : "back to the queues they died in"}`}.</p>
    ${mine && !mayRepeat && html`<p class="muted">A part of its filter is hidden from you by the broker's setting <code>http.show_bodies</code>, so it cannot be asked for again from here.</p>`}
    ${problem && html`<${Trouble} problem=${problem} />`}
    <${Told} job=${job} queue=${queue} />
    ${mayRepeat && holdsBack(job) && html`<${Rash} job=${job} />`}
    <section class="card" aria-label="Progress"><${JobBar} job=${job} />
      ${!hasEnded(job) && mine && html`<${RateSlider} rate=${job.rate} onChange=${(rate) => change({ rate: rate ?? 0 })} />`}
    </section>
    <${Figures} label="What became of the letters" items=${[
      [verbOf(job.kind, 2), count(job.done)],
      ["To go", count(restOf(job))],
      job.kind === "replay" && ["Died again", html`${count(job.dead_again)}${job.dead_again > 0 ? html`<span class="more"><a href=${lettersLink(deadAgain(job))}>show them</a></span>` : ""}`, job.dead_again > 0 ? "bad" : ""],
      job.canary_gone > 0 && ["Gone", html`${count(job.canary_gone)}<span class="more">of the canary: neither settled nor dead</span>`, "warn"],
      ["Skipped", html`${count(job.skipped)}${job.skipped > 0 ? html`<span class="more">taken by somebody else</span>` : ""}`],
      job.damaged > 0 && ["Unreadable", count(job.damaged), "bad"],
      job.examined > job.done && ["Read to find them", count(job.examined)],
      job.kind === "export_dead" && ["File", job.size_bytes === null ? "–" : html`<${Size} bytes=${job.size_bytes} />`],
    ]} />
    <div class="grid wide">
      <section class="card" aria-labelledby="events"><h2 id="events">What has happened</h2><${Events} events=${job.events ?? []} /></section>
      <section class="card" aria-labelledby="how"><h2 id="how">How it was asked for</h2>
        <${Facts} items=${[
          ["By", html`<${Outside} text=${job.user || "nobody (no authentication)"} isName />`],
          ["Note", job.note ? html`<${Outside} text=${job.note} />` : null],
          ["Created", html`<${At} at=${job.created_at} />`],
          ["Started", job.started_at ? html`<${At} at=${job.started_at} />` : null],
          ["Ended", job.ended_at ? html`<${At} at=${job.ended_at} />` : null],
          ["How many", job.limit ? `at most ${counted(job.limit, "letter")}` : null],
          ["Canary", job.canary ? `${counted(job.canary, "letter")}${job.canary_passed ? ": none died again" : job.canary_waived ? ": let go by hand" : ""}` : null],
          ["Waits", job.max_ready !== null && job.max_ready !== undefined ? `while the queue has more than ${count(job.max_ready)} ready` : null],
          ["Stops", job.stop_after_dead_again ? `when ${count(job.stop_after_dead_again)} have died again` : null],
          ["Which letters", `those that were dead when it was asked for (up to letter ${job.last_id}), the oldest first; letters that die later are not among them`],
        ]} />
      </section>
    </div>
    <${Commands} admin=${[["job", "show"], { names: [job.job] }]} request=${{ path: path`jobs/${job.job}` }} more=${[...(job.has_result ? [{ label: "Fetch the file", admin: [["job", "result"], { names: [job.job, "letters.ndjson"] }], request: { path: path`jobs/${job.job}/result` } }] : []), ...actions.map((state) => ({ label: ACTION_NAMES[state], ...commandsOf(job, VERBS[state], { state }) }))]} />
    ${isAgain && html`<${Again} job=${job} onClose=${() => setAgain(false)} />`}`;
}

const VERBS = { paused: "pause", running: "resume", cancelled: "cancel" };
const ACTION_NAMES = { paused: "Pause", running: "Go on", cancelled: "Cancel" };
const commandsOf = (job, verb, body) => ({
  admin: [["job", verb], { names: [job.job] }],
  request: { method: "PATCH", path: path`jobs/${job.job}`, body, headers: { "content-type": "application/merge-patch+json" } },
});

/** The replay dialog for a job that has ended: for what it left, or for the same once more. */
function Again({ job, onClose }) {
  const filter = filterOfBody(job.filter);
  const isRest = mayHaveLeft(job);
  return html`<${ReplayDialog} filter=${isRest ? restFilter(job) : filter} before=${isRest ? job : null} first=${{ to: job.to, limit: isRest ? null : job.limit, rate: job.rate, canary: job.canary ?? (isRest ? undefined : null), max_ready: job.max_ready, stop_after_dead_again: job.stop_after_dead_again, note: job.note }} onClose=${onClose} />`;
}

/** The letters of a job that it has not replayed: those that died later, also its own, are not among them. */
function restFilter(job) {
  const filter = filterOfBody(job.filter);
  return { ...filter, to_id: Math.min(filter.to_id ?? Infinity, job.last_id) };
}

/** What to look at first where a job waits for somebody: its letters that died again, or the queue of its canary. */
function First({ job, queue }) {
  const target = targetOf(job);
  if (job.state === "held" && job.dead_again > 0) return html`<a class="button main" href=${lettersLink(deadAgain(job))}>Look at what died again</a>`;
  return isInCanary(job) && queue && html`<a class="button main" href=${link("queue", { queue: target })}>Look at queue <${Name} name=${target} /></a>`;
}

const deadAgain = (job) => ({ ...(job.filter?.queue ? { queue: job.to || job.filter.queue } : {}), replayed: true, from_id: job.last_id + 1 });

/** What somebody may do who does not wait for the canary, behind what it risks. */
function Rash({ job }) {
  const rest = restOf(job);
  const words = rest === null ? "all others go" : rest === 1 ? "the other letter goes" : `the other ${counted(rest, "letter")} go`;
  return html`<p class="muted small">Without the canary ${words} at once, though nobody knows yet whether consumers handle them. If they still fail, all of them die again. <button type="button" class="button slim" onClick=${() => withoutCanary(job)}>Go on without the canary…</button></p>`;
}

/** A job cannot lose its canary: it is cancelled, and one without a canary does the rest. */
async function withoutCanary(job) {
  const rest = restOf(job);
  const words = rest === null ? "the rest" : counted(rest, "letter");
  /** @type {any} */
  let cancelled = null;
  /** @type {any} */
  const request = replayRequest({
    filter: restFilter(job), to: job.to, rate: job.rate, limit: job.limit ? job.limit - job.done : null, canary: null,
    maxReady: job.max_ready, stopAfter: job.stop_after_dead_again, note: job.note,
  });
  const begun = await ask({
    title: "Go on without the canary?",
    happens: html`<p>Job ${job.job} is cancelled, and a new one replays ${words} at once${job.rate ? `, at most ${rateLimit(job.rate)} per second` : ""}. If the consumers still fail, all of them die again${job.stop_after_dead_again ? "" : ", and no guard stops that"}.</p>`,
    reversible: "Letters that have gone cannot be taken back; the new job can be paused and cancelled.",
    button: `Replay ${words} without a canary`,
    typed: rest !== null && levelOf("replay", rest) === 2 ? rest : undefined,
    isDanger: true,
    commands: { request: { method: "POST", path: "jobs", body: request } },
    act: async (key) => {
      // Said again after a failure, it does no more than what is still to do.
      cancelled ??= await patch(path`jobs/${job.job}`, { state: "cancelled" });
      // It may have gone on while this dialog was read, as far as its limit.
      if (isLimitReached(cancelled)) return cancelled;
      if (job.limit) request.limit = job.limit - cancelled.done;
      return post("jobs", request, { key });
    },
  });
  if (begun?.job) location.assign(link("job", { id: begun.job }));
}

const TONES = { held: "bad", failed: "bad", waiting: "warn", paused: "warn", done: "good" };

/** The state in sentences, where there is something to say. */
function Told({ job, queue }) {
  const told = toldOf(job, queue);
  const isLeft = job.state === "done" && isUnread(queue) && queue.ready > 0;
  const tone = job.state === "done" && (job.dead_again > 0 || isLeft) ? "warn" : TONES[job.state];
  const isHeard = useLive(`${job.state} ${tone} ${told.length}`, tone === "bad" ? "assertive" : "polite");
  if (told.length === 0) return null;
  const target = targetOf(job);
  return html`<div class=${`well ${tone}`} role=${tone === "bad" ? "alert" : "status"} aria-live=${isHeard}><${Prose} text=${told[0]} /> ${told.length > 1 && html`<span class="small"><${Prose} text=${told.slice(1).join(" ")} /></span>`}
    ${target && !isInCanary(job) && ["waiting", "done"].includes(job.state) && html`<span class="small"><a href=${link("queue", { queue: target })}>Look at queue <${Name} name=${target} /></a></span>`}</div>`;
}

function Events({ events }) {
  if (events.length === 0) return html`<p class="muted">Nothing yet.</p>`;
  return html`<ol class="steps">${events.map(({ at, event, detail }, index) => html`<li class=${index === events.length - 1 ? "now" : ""}><div>${sentence(event.replaceAll("_", " "))}${detail && html` <${Prose} text=${sentence(detail)} />`} <div class="small muted"><${At} at=${at} /></div></div></li>`)}</ol>`;
}

start(JobPage);
