// Replay: look first, choose how many and how carefully, then start a job and go to its page.
import { html, useState } from "../../vendor/ui.js";
import { link } from "../../parts/address.js";
import { post } from "../../parts/api.js";
import { Commands } from "../../parts/command.js";
import { Modal } from "../../parts/dialog.js";
import { DraftInput, Field, Segments } from "../../parts/filters.js";
import { Trouble, Waiting } from "../../parts/states.js";
import { Name } from "../../parts/text.js";
import { count, counted } from "../../pure/format.js";
import { canaryFor, fewFirst, levelOf, targetText, trialWithout } from "../../pure/job_figures.js";
import { bodyOfFilter, hasOptions, optionsOfFilter } from "../../pure/letter_filter.js";
import { RateSlider } from "../jobs/rate.js";
import { Preview, Steady, usePreview } from "./preview.js";

const FEW = 10;

/** What the API is asked for; what is not set is left out. */
export function replayRequest({ filter, to, rate, limit, canary, maxReady, stopAfter, note, atMost }) {
  const given = { to, rate, limit, canary, max_ready: maxReady, stop_after_dead_again: stopAfter, note };
  const set = Object.entries(given).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return { kind: "replay", filter: bodyOfFilter(filter), ...Object.fromEntries(set), ...(atMost === undefined ? {} : { at_most: atMost }) };
}

/** The same as options of `vibemq-admin dlq replay`. */
export function replayOptions({ filter, to, rate, limit, canary, maxReady, stopAfter, note, atMost }) {
  return { ...optionsOfFilter(filter), to, rate, limit, canary, "max-ready": maxReady, "stop-after-dead-again": stopAfter, "at-most": atMost, note };
}

/** `before`: the job that has replayed some of these. */
export function ReplayDialog({ filter, first = {}, before = null, onClose }) {
  const [to, setTo] = useState(first.to ?? "");
  const [few, setFew] = useState(first.limit ?? null);
  const [rate, setRate] = useState(first.rate ?? null);
  const [canary, setCanary] = useState(first.canary);
  const [maxReady, setMaxReady] = useState(first.max_ready ?? "");
  const [stopAfter, setStopAfter] = useState(first.stop_after_dead_again ?? "");
  const [note, setNote] = useState(first.note ?? "");
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState(null);
  const [isUnderWay, setUnderWay] = useState(false);
  const question = { filter: bodyOfFilter(filter), ...(to ? { to } : {}), ...(rate ? { rate } : {}) };
  const asked = usePreview(question);
  const preview = asked.data ?? (asked.problem ? null : asked.before);
  const all = preview?.count ?? 0;
  const isOpen = few === null && preview?.exact === false;
  const chosen = few === null ? all : Math.min(few, all);
  // What fits decides what the dialog begins with. How many of them go changes no guard.
  const guard = canary === undefined ? canaryFor(all) : canary;
  const isAllTrial = trialWithout(guard, chosen);
  const stuck = guard && !isAllTrial ? (preview?.targets ?? []).filter(({ state }) => state === "no_consumers").map(({ queue }) => queue) : [];
  const needsNumber = levelOf("replay", chosen) === 2;
  const wanted = { filter, to, rate, limit: few, canary: guard, maxReady: maxReady === "" ? null : Number(maxReady), stopAfter: stopAfter === "" ? null : Number(stopAfter), note, atMost: few === null && !isOpen ? all : undefined };
  const where = targetText(preview?.targets, to);
  const isReady = asked.data !== null && chosen > 0 && !isUnderWay && (!needsNumber || typed.trim() === String(chosen));
  const start = async () => {
    if (!isReady) return;
    setUnderWay(true);
    setProblem(null);
    try {
      const job = await post("jobs", replayRequest(wanted));
      location.assign(link("job", { id: job.job }));
    } catch (found) {
      setProblem(found);
      setUnderWay(false);
    }
  };
  const footer = html`
    <button type="button" class="button" onClick=${onClose}>Cancel</button>
    <button type="submit" class="button main" disabled=${!isReady}>Replay ${isOpen ? "all that fit" : counted(chosen, "letter")} to <bdi>${where}</bdi></button>`;
  return html`<${Modal} title="Replay dead letters" broad=${true} onClose=${onClose} onSubmit=${start} footer=${footer}>
    <p>Each letter leaves the dead letters and enters its queue again in one step. Consumers get it as a new message. A letter that dies again comes back here.</p>
    ${before && preview && html`<p>Job ${before.job} has replayed <b>${counted(before.done, "letter")}</b>, and <b>${count(all)}</b> ${all === 1 ? "is" : "are"} left of the ${count(before.done + all)} that it might have.</p>`}
    <${Steady}>${preview ? html`<${Preview} preview=${preview} withTargets=${true} chosen=${chosen} to=${to} rate=${rate} />` : asked.problem ? html`<${Trouble} problem=${asked.problem} />` : html`<${Waiting} what="Looking what would happen" />`}</${Steady}>
    <div class="options-row">
      <div class="field"><span class="label">How many</span>
        <${Segments} label="How many letters" value=${few === null ? "all" : "few"} options=${[["all", preview?.exact === false ? "All that fit" : `All ${count(all)}`], ["few", "Only the first"]]} onChange=${(value) => setFew(value === "all" ? null : FEW)} /></div>
      ${few !== null && html`<${Whole} label="Letters" value=${few} set=${(value) => setFew(value === "" ? FEW : Number(value))} />`}
      <${Field} label="To queue" hint=${to ? null : "Empty: where each died."}>${(id, about) => html`<${DraftInput} id=${id} aria-describedby=${about} value=${to} autocomplete="off" spellcheck=${false} finish=${setTo} />`}</${Field}>
    </div>
    <fieldset class="guards"><legend>Guards</legend>
      <label class="check"><input type="checkbox" checked=${Boolean(guard)} disabled=${chosen < 2} onChange=${() => setCanary(guard ? null : fewFirst(chosen))} />
        <span>Try <b>${guard || fewFirst(chosen)}</b> ${(guard || fewFirst(chosen)) === 1 ? "letter" : "letters"} first, and go on only when all of them are settled and none has died again</span></label>
      ${isAllTrial && html`<p class="well warn" role="status">${isAllTrial}</p>`}
      ${stuck.length > 0 && html`<p class="well warn" role="status"><span><${Name} name=${stuck[0]} />${stuck.length > 1 ? ` and ${counted(stuck.length - 1, "other queue")} have` : " has"} no consumer, so the trial cannot end: the job waits after ${counted(guard, "letter")} until something consumes them.</span></p>`}
      <${RateSlider} rate=${rate} onChange=${setRate} />
      <div class="options-row">
        ${Boolean(guard) && html`<${Whole} label="Letters to try first" value=${guard} set=${(value) => setCanary(value === "" ? null : Number(value))} />`}
        <${Whole} label="Wait while the queue has more ready than" value=${maxReady} set=${setMaxReady} isZeroFine=${true} placeholder="never" />
        <${Whole} label="Stop when so many died again" value=${stopAfter} set=${setStopAfter} placeholder="never" />
        <${Field} label="Note, for the audit">${(id) => html`<${DraftInput} id=${id} value=${note} maxlength="200" finish=${setNote} />`}</${Field}>
      </div>
    </fieldset>
    ${needsNumber && html`<${Field} label=${html`Type <b>${chosen}</b> to confirm`}>${(id) => html`<input id=${id} inputmode="numeric" autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} />`}</${Field}>`}
    <p class="muted">A replay cannot be taken back, but it can be paused and cancelled while it runs: letters that have not gone yet stay.</p>
    <${Commands} admin=${hasOptions(filter) && [["dlq", "replay"], { options: replayOptions(wanted) }]} request=${{ method: "POST", path: "jobs", body: replayRequest(wanted) }} />
    ${problem && html`<${Trouble} problem=${problem} />`}
  </${Modal}>`;
}

function Whole({ label, value, set, placeholder = "", isZeroFine = false }) {
  const pattern = isZeroFine ? "[0-9]{1,12}" : "[1-9][0-9]{0,11}";
  return html`<${Field} label=${label}>${(id) => html`<${DraftInput} id=${id} inputmode="numeric" size="8" pattern=${pattern} placeholder=${placeholder} value=${value} autocomplete="off" finish=${set} />`}</${Field}>`;
}
