// What is done to many letters at once, each after a look at what would happen: replay, purge and export, as jobs.
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from "../../vendor/ui.js";
import { link } from "../../parts/address.js";
import { post, remove, urlOf } from "../../parts/api.js";
import { Form, ask } from "../../parts/dialog.js";
import { DraftInput, Field, Segments } from "../../parts/filters.js";
import { Ago, Count, Name, Outside, Trouble, Waiting } from "../../parts/text.js";
import { FilterWords } from "../jobs/progress.js";
import { Sample } from "./kinds.js";
import { queryObject } from "./list.js";
import { path } from "../../pure/commands.js";
import { count, counted, duration, rateLimit, size } from "../../pure/format.js";
import { SLIDER_MAX, canaryFor, durationAt, fewFirst, levelOf, rateOfSlider, sliderOfRate, targetText, wholeCanary } from "../../pure/jobs.js";
import { bodyOfFilter, hasOptions, isEmpty, optionsOfFilter, previewSentences, reasonText } from "../../pure/letters.js";

const SETTLE_MS = 250;

/** The answer of POST /dead-letters/preview for this question; null: none is asked. */
export function usePreview(question) {
  const key = question === null ? null : JSON.stringify(question);
  const [state, setState] = useState({ key: null, data: null, problem: null });
  useEffect(() => {
    if (key === null) return undefined;
    const leaving = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const data = await post("dead-letters/preview", JSON.parse(key), { key: null, changesNothing: true, signal: leaving.signal });
        setState({ key, data, problem: null });
      } catch (problem) {
        if (problem.name !== "AbortError") setState({ key, data: null, problem });
      }
    }, state.key === null ? 0 : SETTLE_MS);
    return () => {
      clearTimeout(timer);
      leaving.abort();
    };
  }, [key]);
  const isNew = state.key === key;
  return { data: isNew ? state.data : null, before: state.data, problem: isNew ? state.problem : null };
}

/** Keeps the room that it had, so that what is below stays where it is. */
export function Steady({ children }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    box.current.style.minHeight = `${box.current.offsetHeight}px`;
  });
  return html`<div class="steady" ref=${box}>${children}</div>`;
}

/** What is done to them is asked in a dialog, below which the page may show others by then. */
const Which = ({ filter }) => html`<p>Which letters: <${FilterWords} body=${bodyOfFilter(filter)} />.</p>`;

const STATES = {
  ok: ["good", "ready"],
  missing: ["bad", "does not exist"],
  full: ["bad", "full"],
  no_consumers: ["warn", "no consumer"],
};

/** `withTargets`: where the letters go, for a replay; of them the first `chosen` go, at `rate`. */
export function Preview({ preview, withTargets = false, chosen = preview.count, rate = null }) {
  const isPart = chosen < preview.count;
  const takes = isPart ? durationAt(chosen, rate) : preview.duration_ms;
  const facts = [
    isPart ? [`The first ${count(chosen)} of ${counted(preview.count, "letter")}, the oldest first`] : [counted(preview.count, "letter"), size(preview.bytes)],
    preview.oldest_at && [html`oldest <${Ago} at=${preview.oldest_at} />`, !isPart && html`newest <${Ago} at=${preview.newest_at} />`],
    preview.replayed_before > 0 && [`${count(preview.replayed_before)}${isPart ? " of all" : ""} replayed before`],
    takes > 0 && [`takes about ${duration(takes)}`],
  ].filter(Boolean).flat().filter(Boolean);
  const told = withTargets ? previewSentences(preview) : [];
  return html`<div class="preview">
    <p>${preview.exact === false ? "At least " : ""}${facts.map((fact, at) => html`${at > 0 ? " · " : ""}${at === 0 ? html`<b>${fact}</b>` : fact}`)}</p>
    ${told.length > 0 && html`<ul class="sentences">${told.map((sentence) => html`<li><${Outside} text=${sentence} /></li>`)}</ul>`}
    ${withTargets && html`<${Targets} targets=${preview.targets ?? []} chosen=${chosen} isPart=${isPart} />`}
    <${Kinds} groups=${preview.groups ?? []} />
    ${preview.examples?.length > 0 && html`<details><summary>${counted(preview.examples.length, "example")}</summary>
      <ul class="examples">${preview.examples.map((letter) => html`<li>${letter.dead_id} · <${Name} name=${letter.queue} /> · ${reasonText(letter.reason)} · <${Outside} text=${letter.error} /></li>`)}</ul>
    </details>`}
  </div>`;
}

function Targets({ targets, chosen, isPart }) {
  // Of several queues it is not known whose letters are the oldest.
  const isAll = targets.length > 1 && isPart;
  return html`<div class="table-scroll" role="region" aria-label="Where the letters go" tabindex="0"><table>
    <caption class="hidden-text">Where the letters go</caption>
    <thead><tr><th scope="col">Goes to</th><th scope="col" class="num">${isAll ? "Letters that fit" : "Letters"}</th><th scope="col">The queue is</th></tr></thead>
    <tbody>${targets.map(({ queue, count: letters, state }) => {
      const [tone, word] = STATES[state] ?? ["", state];
      return html`<tr><th scope="row"><${Name} name=${queue} /></th><td class="num"><${Count} value=${targets.length === 1 ? Math.min(chosen, letters) : letters} /></td><td><span class=${`pill ${tone}`}>${word}</span></td></tr>`;
    })}</tbody>
  </table></div>`;
}

const KINDS_SHOWN = 5;

function Kinds({ groups }) {
  if (groups.length < 2) return null;
  const rest = groups.length - KINDS_SHOWN;
  return html`<details><summary>${counted(groups.length, "kind of error", "kinds of errors")}</summary>
    <ul class="examples">${groups.slice(0, KINDS_SHOWN).map((group) => html`<li><b class="num">${count(group.count)}</b> · <${Name} name=${group.queue} /> · ${reasonText(group.reason)} · <${Sample} group=${group} /></li>`)}
      ${rest > 0 && html`<li class="muted">and ${count(rest)} more</li>`}</ul>
  </details>`;
}

// The rate of a job: a slider that counts at once while the job runs, and a number beside it.

/** From 0.1 to a million, as the broker takes it. */
const RATE_TEXT = "0\\.[1-9][0-9]{0,5}|[1-9][0-9]{0,5}(\\.[0-9]{1,6})?|1000000";

/** `rate`: letters in a second, null for no limit. `onChange(rate)` comes a moment after the last movement;
 * where it answers false, the rate stays as it was. */
export function RateSlider({ rate, onChange }) {
  const id = useId();
  const [shown, setShown] = useState(rate || null);
  const [wrong, setWrong] = useState("");
  const timer = useRef(0);
  const isMoving = useRef(false);
  const latest = useRef(rate);
  latest.current = rate;
  /** What is to be sent when the one before has been answered: two under way could be carried out in any order. */
  const waiting = useRef(undefined);
  const isSending = useRef(false);
  useEffect(() => {
    if (!isMoving.current) setShown(rate || null);
  }, [rate]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const move = (next, isTyped = false) => {
    setShown(next);
    setWrong("");
    isMoving.current = true;
    clearTimeout(timer.current);
    const send = async () => {
      waiting.current = next;
      if (isSending.current) return;
      isSending.current = true;
      while (waiting.current !== undefined) {
        const wanted = waiting.current;
        waiting.current = undefined;
        const isTaken = (await onChange(wanted)) !== false;
        if (!isTaken && waiting.current === undefined) setShown(latest.current || null);
      }
      isSending.current = false;
      isMoving.current = false;
    };
    // What was typed is whole: whoever sends the form right behind it means it.
    if (isTyped) send();
    else timer.current = setTimeout(send, SETTLE_MS);
  };
  const typed = (text) => move(text === "" ? null : Number(text), true);
  const words = shown ? `${rateLimit(shown)} per second` : "as fast as the broker can";
  return html`<div class="field">
    <label for=${id}>Letters per second, at most</label>
    <div class="rate-slider">
      <input id=${id} type="range" min="0" max=${SLIDER_MAX} step="1" value=${sliderOfRate(shown)} aria-valuetext=${words} onInput=${(event) => move(rateOfSlider(Number(event.target.value)))} />
      <${DraftInput} type="text" inputmode="decimal" size="6" pattern=${RATE_TEXT} aria-invalid=${wrong ? "true" : undefined} refuse=${setWrong} aria-label="Letters per second, at most, as a number; empty: no limit" placeholder="no limit" value=${wrong || (shown ?? "")} finish=${typed} />
      <output for=${id} class="small">${words}</output>
    </div>
    ${wrong && html`<div class="wrong" role="alert">“<${Outside} text=${wrong} />” is no rate: give a number from 0.1 to 1000000, or nothing for no limit.</div>`}
  </div>`;
}

// Replay: look first, choose how many and how carefully, then start a job and go to its page.

const FEW = 10;

/** What the API is asked for; what is not set is left out. */
export function replayRequest({ filter, to, rate, limit, canary, maxReady, stopAfter, note, atMost = undefined }) {
  const given = { to, rate, limit, canary, max_ready: maxReady, stop_after_dead_again: stopAfter, note };
  const set = Object.entries(given).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return { kind: "replay", filter: bodyOfFilter(filter), ...Object.fromEntries(set), ...(atMost === undefined ? {} : { at_most: atMost }) };
}

/** The same as options of `vibemq-admin dlq replay`. */
export function replayOptions({ filter, to, rate, limit, canary, maxReady, stopAfter, note, atMost = undefined }) {
  return { ...optionsOfFilter(filter), to, rate, limit, canary, "max-ready": maxReady, "stop-after-dead-again": stopAfter, "at-most": atMost, note };
}

/** `before`: the job that has replayed some of these. @param {any} props */
export function ReplayDialog({ filter, first = {}, before, onClose }) {
  const [to, setTo] = useState(first.to ?? "");
  const [few, setFew] = useState(first.limit ?? null);
  const [rate, setRate] = useState(first.rate ?? null);
  const [canary, setCanary] = useState(first.canary);
  const [maxReady, setMaxReady] = useState(first.max_ready ?? "");
  const [stopAfter, setStopAfter] = useState(first.stop_after_dead_again ?? "");
  const [note, setNote] = useState(first.note ?? "");
  const [typed, setTyped] = useState("");
  const question = { filter: bodyOfFilter(filter), ...(to ? { to } : {}), ...(rate ? { rate } : {}) };
  const asked = usePreview(question);
  const preview = asked.data ?? (asked.problem ? null : asked.before);
  const all = preview?.count ?? 0;
  const isOpen = few === null && preview?.exact === false;
  const chosen = few === null ? all : Math.min(few, all);
  // What fits decides what the dialog begins with. How many of them go changes no guard.
  const guard = canary === undefined ? canaryFor(all) : canary;
  const isWhole = wholeCanary(guard, chosen);
  const stuck = guard && !isWhole ? (preview?.targets ?? []).filter(({ state }) => state === "no_consumers").map(({ queue }) => queue) : [];
  const needsNumber = levelOf("replay", chosen) === 2;
  const wanted = { filter, to, rate, limit: few, canary: guard, maxReady: maxReady === "" ? null : Number(maxReady), stopAfter: stopAfter === "" ? null : Number(stopAfter), note, atMost: few === null && !isOpen ? all : undefined };
  const request = replayRequest(wanted);
  const act = async (key) => {
    const job = await post("jobs", request, { key });
    location.assign(link("job", { id: job.job }));
  };
  const where = targetText(preview?.targets, to);
  const isReady = asked.data !== null && chosen > 0 && (!needsNumber || typed.trim() === String(chosen));
  const button = html`Replay ${isOpen ? "all that fit" : counted(chosen, "letter")} to <${Outside} text=${where} isName />`;
  return html`<${Form} title="Replay dead letters" button=${button} isReady=${isReady} broad onClose=${onClose} act=${act}
    commands=${{ admin: hasOptions(filter) && [["dlq", "replay"], { options: replayOptions(wanted) }], request: { method: "POST", path: "jobs", body: request } }}>
    <p>Each letter leaves the dead letters and enters its queue again in one step. Consumers get it as a new message. A letter that dies again comes back here.</p>
    <${Which} filter=${filter} />
    ${before && preview && html`<p>Job ${before.job} has replayed <b>${counted(before.done, "letter")}</b>, and <b>${count(all)}</b> ${all === 1 ? "is" : "are"} left of the ${count(before.done + all)} that it might have.</p>`}
    <${Steady}>${preview ? html`<${Preview} preview=${preview} withTargets chosen=${chosen} rate=${rate} />` : asked.problem ? html`<${Trouble} problem=${asked.problem} />` : html`<${Waiting} what="Looking what would happen" />`}</${Steady}>
    <div class="options-row">
      <div class="field"><span class="label">How many</span>
        <${Segments} label="How many letters" value=${few === null ? "all" : "few"} options=${[["all", preview?.exact === false ? "All that fit" : `All ${count(all)}`], ["few", "Only the first"]]} onChange=${(value) => setFew(value === "all" ? null : FEW)} /></div>
      ${few !== null && html`<${Whole} label="Letters" value=${few} set=${(value) => setFew(value === "" ? FEW : Number(value))} />`}
      <${Field} label="To queue" hint=${to ? null : "Empty: where each died."}>${(id, about) => html`<${DraftInput} id=${id} aria-describedby=${about} value=${to} autocomplete="off" spellcheck=${false} finish=${setTo} />`}</${Field}>
    </div>
    <fieldset class="guards"><legend>Guards</legend>
      <label class="check"><input type="checkbox" checked=${Boolean(guard)} disabled=${chosen < 2} onChange=${() => setCanary(guard ? null : fewFirst(chosen))} />
        <span>Canary: replay <b>${guard || fewFirst(chosen)}</b> ${(guard || fewFirst(chosen)) === 1 ? "letter" : "letters"} first, and the others only when all of these are settled and none has died again</span></label>
      ${isWhole && html`<p class="well warn" role="status">${isWhole}</p>`}
      ${stuck.length > 0 && html`<p class="well warn" role="status"><span><${Name} name=${stuck[0]} />${stuck.length > 1 ? ` and ${counted(stuck.length - 1, "other queue")} have` : " has"} no consumer, so the canary cannot pass: the job waits after ${counted(guard, "letter")} until something consumes them.</span></p>`}
      <${RateSlider} rate=${rate} onChange=${setRate} />
      <div class="options-row">
        ${Boolean(guard) && html`<${Whole} label="Letters of the canary" value=${guard} set=${(value) => setCanary(value === "" ? null : Number(value))} />`}
        <${Whole} label="Wait while the queue has more ready than" value=${maxReady} set=${setMaxReady} isZeroFine placeholder="never" />
        <${Whole} label="Stop when so many died again" value=${stopAfter} set=${setStopAfter} placeholder="never" />
        <${Field} label="Note, for the audit">${(id) => html`<${DraftInput} id=${id} value=${note} maxlength="200" finish=${setNote} />`}</${Field}>
      </div>
    </fieldset>
    ${needsNumber && html`<${Field} label=${html`Type <b>${chosen}</b> to confirm`}>${(id) => html`<input id=${id} inputmode="numeric" autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} />`}</${Field}>`}
    <p class="muted">A replay cannot be taken back. While it runs it can be paused and cancelled: what has not gone stays.</p>
  </${Form}>`;
}

function Whole({ label, value, set, placeholder = "", isZeroFine = false }) {
  const pattern = isZeroFine ? "[0-9]{1,12}" : "[1-9][0-9]{0,11}";
  return html`<${Field} label=${label}>${(id) => html`<${DraftInput} id=${id} inputmode="numeric" size="8" pattern=${pattern} placeholder=${placeholder} value=${value} autocomplete="off" finish=${set} />`}</${Field}>`;
}

// Purge: how many and which, export first, the number typed, and refused when there are more than were shown.

/** Ask, start the job, and go to its page. */
export async function purge(filter, onDone) {
  const asked = bodyOfFilter(filter);
  let isNothing = false;
  const look = async (signal) => {
    const preview = await post("dead-letters/preview", { filter: asked }, { key: null, changesNothing: true, signal });
    isNothing = preview.count_max === 0;
    return isNothing ? { nothing: "No letter fits any more." } : purgeQuestion(filter, preview);
  };
  const job = await ask({ title: "Purge dead letters?", happens: html`<${Which} filter=${filter} />`, button: "Purge", isDanger: true, look });
  if (job || isNothing) onDone?.();
  if (job?.job) location.assign(link("job", { id: job.job }));
}

/** Of `ask`, when it is known how many fit. */
function purgeQuestion(filter, preview) {
  const { count: least, count_max: most, exact } = preview;
  const guard = exact ? { at_most: least } : { limit: most };
  const body = { kind: "purge_dead", filter: bodyOfFilter(filter), ...guard };
  const number = exact ? count(least) : `${count(least)} to ${count(most)}`;
  return {
    title: `Purge ${exact ? counted(least, "dead letter") : `${number} dead letters`}?`,
    happens: html`<${Which} filter=${filter} /><p>The letters are deleted with their bodies. Nobody can replay them then.</p><${Preview} preview=${preview} />`,
    reversible: `This cannot be taken back. ${!exact ? `Every letter that fits is purged, and never more than ${count(most)}.` : "If more letters fit by then than are shown here, nothing is purged."}`,
    instead: html`<p><a class="button slim" href=${urlOf("dead-letters/export", queryObject(filter)).href} download>Export ${exact ? count(least) : "all that fit"} first</a></p>`,
    button: exact ? `Purge ${counted(least, "letter")}` : `Purge at most ${counted(most, "letter")}`,
    typed: levelOf("purge_dead", most) === 2 ? most : undefined,
    commands: { admin: hasOptions(filter) && [["dlq", "purge"], { options: { ...optionsOfFilter(filter), all: isEmpty(filter), "at-most": guard.at_most, limit: guard.limit, yes: true } }], request: { method: "POST", path: "jobs", body } },
    act: (key) => post("jobs", body, { key }),
  };
}

export async function purgeOne({ dead_id: id, queue }, onDone) {
  const where = path`dead-letters/${String(id)}`;
  const done = await ask({
    title: `Purge dead letter ${id}?`,
    happens: "The letter is deleted with its body. Nobody can replay it then.",
    reversible: "This cannot be taken back.",
    instead: html`<p><a class="button slim" href=${urlOf(`${where}/body`, { queue }).href} download>Download the body first</a></p>`,
    button: "Purge 1 letter",
    isDanger: true,
    commands: { admin: [["dlq", "purge"], { options: { queue, id: String(id), yes: true } }], request: { method: "DELETE", path: where, query: { queue } } },
    act: () => remove(where, { queue }),
  });
  if (done) onDone();
}

// Export of many letters: the broker writes a file, as a job, or the browser fetches them at once.

/** Ask, start the job, and go to its page. `number`: how many letters fit, or null; `more`: limit, rate and note. */
export async function exportLetters(filter, number, more = {}) {
  const given = Object.fromEntries(Object.entries(more).filter(([, value]) => value));
  const body = { kind: "export_dead", filter: bodyOfFilter(filter), ...given };
  const words = number === null ? "all letters that fit" : counted(number, "letter");
  const job = await ask({
    title: `Export ${words}?`,
    happens: html`<p>A job writes the letters with their bodies into a file. Fetch it on the job's page within seven days. The letters stay.</p>`,
    instead: html`<p>Or fetch them at once, which ends when the connection does: <a class="button slim" href=${urlOf("dead-letters/export", queryObject(filter)).href} download>Download ${number === null ? "now" : count(number)}</a></p>`,
    button: `Write a file of ${words}`,
    commands: { admin: hasOptions(filter) && [["dlq", "export"], { options: { ...optionsOfFilter(filter), ...given, detach: true } }], request: { method: "POST", path: "jobs", body } },
    act: (key) => post("jobs", body, { key }),
  });
  if (job?.job) location.assign(link("job", { id: job.job }));
}
