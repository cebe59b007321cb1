// One job: how far, how fast, what became of its letters; pause, go on, cancel, the rate, and the same again.
import { html, useState } from "../vendor/ui.js";
import { link, params } from "../parts/address.js";
import { patch } from "../parts/api.js";
import { Commands } from "../parts/command.js";
import { useData } from "../parts/data.js";
import { ask, say } from "../parts/dialog.js";
import { start } from "../parts/frame.js";
import { may, session } from "../parts/session.js";
import { Empty, Loaded, Trouble } from "../parts/states.js";
import { At, Count, Facts, Figures, Name, Outside, Size } from "../parts/text.js";
import { path } from "../pure/commands.js";
import { count, counted } from "../pure/format.js";
import { actionsOf, hasEnded, isCounted, settled, verbOf } from "../pure/job_figures.js";
import { filterOfBody } from "../pure/letter_filter.js";
import { FilterWords, lettersLink } from "./jobs/filter_words.js";
import { JobBar, StatePill } from "./jobs/progress.js";
import { RateSlider } from "./jobs/rate.js";
import { ReplayDialog } from "./letters/replay.js";
import { purge } from "./letters/purge.js";

function JobPage() {
  const { id = "" } = params.value;
  const isId = /^\d{1,18}$/.test(id);
  const [hasLeft, setLeft] = useState(false);
  const found = useData(isId ? path`jobs/${id}` : null, { every: hasLeft ? 0 : 1000 });
  if (found.data && hasEnded(found.data) && !hasLeft) setLeft(true);
  const isGone = found.problem?.status === 404;
  return html`
    <nav class="crumbs" aria-label="Where this is"><a href="./jobs">Jobs</a><span aria-hidden="true">/</span><span>Job ${isId ? id : ""}</span></nav>
    ${!isId || isGone
      ? html`<div class="title"><h1>${isId ? `Job ${id}` : "Job"}</h1></div><div class="card"><${Empty} title=${isId ? `There is no job ${id}` : "Which job?"}><p>Finished jobs are kept for seven days, the latest 200. <a href="./jobs">All jobs</a></p></${Empty}></div>`
      : html`<${Loaded} found=${found} what="Loading the job">${(job) => html`<${Job} job=${job} refresh=${async () => { await found.refresh(); setLeft(false); }} />`}</${Loaded}>`}`;
}

/** Whoever made it, and whoever might have the same done. */
function mayChange(job) {
  const queue = job.filter?.queue || "*";
  return session.value?.user === job.user || (may(job.kind === "export_dead" ? "inspect" : "purge", queue) && (job.kind !== "replay" || may("publish", job.to || queue)));
}

function Job({ job, refresh }) {
  const [problem, setProblem] = useState(null);
  const [isAgain, setAgain] = useState(false);
  const change = async (body) => {
    setProblem(null);
    try {
      await patch(path`jobs/${job.job}`, body);
    } catch (found) {
      setProblem(found);
    }
    await refresh();
  };
  const cancel = async () => {
    const left = isCounted(job) ? Math.max(0, job.selected - settled(job)) : null;
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
  const mine = mayChange(job);
  const actions = mine ? actionsOf(job) : [];
  const again = () => {
    if (job.kind === "replay") setAgain(true);
    else if (job.kind === "purge_dead") purge(filterOfBody(job.filter));
    else location.assign(lettersLink(job.filter));
  };
  return html`
    <div class="title"><h1>${verbOf(job.kind)} · job ${job.job}</h1><${StatePill} job=${job} /><span class="push"></span>
      <div class="actions">
        ${actions.includes("running") && html`<button type="button" class="button main" onClick=${() => change({ state: "running" })}>Go on</button>`}
        ${actions.includes("paused") && html`<button type="button" class="button" onClick=${() => change({ state: "paused" })}>Pause</button>`}
        ${actions.includes("cancelled") && html`<button type="button" class="button danger" onClick=${cancel}>Cancel…</button>`}
        ${hasEnded(job) && mine && html`<button type="button" class="button" onClick=${again}>Run the same again…</button>`}
      </div>
    </div>
    <p>${verbOf(job.kind)} <${FilterWords} body=${job.filter} />${job.kind === "replay" && html` to ${job.to ? html`<b><${Name} name=${job.to} /></b>` : "where they died"}`}</p>
    ${problem && html`<${Trouble} problem=${problem} />`}
    <${Told} job=${job} />
    <section class="card" aria-label="Progress"><${JobBar} job=${job} />
      ${!hasEnded(job) && mine && html`<${RateSlider} rate=${job.rate} onChange=${(rate) => change({ rate: rate ?? 0 })} />`}
    </section>
    <${Figures} label="What became of the letters" items=${[
      [verbOf(job.kind, 2), count(job.done)],
      ["Left", isCounted(job) ? count(Math.max(0, job.selected - settled(job))) : "–"],
      job.kind === "replay" && ["Died again", html`${count(job.dead_again)}${job.dead_again > 0 ? html`<span class="more"><a href=${lettersLink({ ...(job.filter?.queue ? { queue: job.to || job.filter.queue } : {}), replayed: true, from_id: job.last_id + 1 })}>show them</a></span>` : ""}`, job.dead_again > 0 ? "bad" : ""],
      ["Skipped", html`${count(job.skipped)}${job.skipped > 0 ? html`<span class="more">taken by somebody else</span>` : ""}`],
      job.damaged > 0 && ["Unreadable", count(job.damaged), "bad"],
      ["Looked at", count(job.examined)],
      job.kind === "export_dead" && ["File", html`<${Size} bytes=${job.size_bytes} />`],
    ]} />
    <div class="grid wide">
      <section class="card" aria-labelledby="events"><h2 id="events">What has happened</h2><${Events} events=${job.events ?? []} /></section>
      <section class="card" aria-labelledby="how"><h2 id="how">How it was asked for</h2>
        <${Facts} items=${[
          ["By", html`<${Outside} text=${job.user || "nobody (no authentication)"} />`],
          ["Note", job.note ? html`<${Outside} text=${job.note} />` : null],
          ["Created", html`<${At} at=${job.created_at} />`],
          ["Started", job.started_at ? html`<${At} at=${job.started_at} />` : null],
          ["Ended", job.ended_at ? html`<${At} at=${job.ended_at} />` : null],
          ["At most", job.limit ? counted(job.limit, "letter") : null],
          ["Try first", job.canary ? html`${counted(job.canary, "letter")}${job.canary_passed ? ": all settled" : ""}` : null],
          ["Waits above", job.max_ready !== null && job.max_ready !== undefined ? html`${count(job.max_ready)} ready` : null],
          ["Stops at", job.stop_after_dead_again ? html`${count(job.stop_after_dead_again)} died again` : null],
          ["Letters", html`up to <${Count} value=${job.last_id} />; what dies later does not join`],
        ]} />
      </section>
    </div>
    <${Commands} admin=${[["job", "show"], { names: [job.job] }]} request=${{ path: path`jobs/${job.job}` }} more=${actions.map((state) => ({ label: ACTION_NAMES[state], ...commandsOf(job, VERBS[state], { state }) }))} />
    ${isAgain && html`<${ReplayDialog} filter=${filterOfBody(job.filter)} first=${{ to: job.to, limit: job.limit, rate: job.rate, canary: job.canary, max_ready: job.max_ready, stop_after_dead_again: job.stop_after_dead_again, note: job.note }} onClose=${() => setAgain(false)} />`}`;
}

const VERBS = { paused: "pause", running: "resume", cancelled: "cancel" };
const ACTION_NAMES = { paused: "Pause", running: "Go on", cancelled: "Cancel" };
const commandsOf = (job, verb, body) => ({
  admin: [["job", verb], { names: [job.job] }],
  request: { method: "PATCH", path: path`jobs/${job.job}`, body, headers: { "content-type": "application/merge-patch+json" } },
});

/** The state in a sentence, where there is something to say. */
function Told({ job }) {
  const tones = { held: "bad", failed: "bad", waiting: "warn", paused: "warn", done: "good" };
  const tone = tones[job.state];
  if (!tone) return null;
  const queue = job.to || job.filter?.queue;
  const texts = {
    held: "A guard holds the job. Look at the letters that died again, then let it go on or cancel it.",
    failed: "The job has failed.",
    waiting: "The job waits and goes on by itself.",
    paused: "The job is paused. Nothing is moved until it goes on.",
    done: job.dead_again > 0 ? `Done. ${counted(job.dead_again, "letter")} died again.` : job.kind === "replay" ? "Done. None of the letters has died again so far." : "Done.",
  };
  return html`<div class=${`well ${job.state === "done" && job.dead_again > 0 ? "warn" : tone}`} role=${tone === "bad" ? "alert" : "status"}>${texts[job.state]} ${job.why && html`<span class="small"><${Outside} text=${job.why} /></span>`}
    ${job.state === "waiting" && queue && html`<span class="small"><a href=${link("queue", { queue })}>Look at queue <${Name} name=${queue} /></a></span>`}</div>`;
}

function Events({ events }) {
  if (events.length === 0) return html`<p class="muted">Nothing yet.</p>`;
  return html`<ol class="steps">${events.map(({ at, event, detail }, index) => html`<li class=${index === events.length - 1 ? "now" : ""}><div>${event.replaceAll("_", " ")}${detail && html` – <${Outside} text=${detail} />`} <div class="small muted"><${At} at=${at} /></div></div></li>`)}</ol>`;
}

start(JobPage);
