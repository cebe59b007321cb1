// How far a job is: a bar with its figures, for the page of the job and for lists.
import { html } from "../../vendor/ui.js";
import { link, zone } from "../../parts/address.js";
import { Outside } from "../../parts/text.js";
import { sampleOf } from "../letters/kinds.js";
import { addressObject } from "../letters/list.js";
import { count, counted, duration, rate, rateLimit } from "../../pure/format.js";
import { fraction, hasEnded, isCounted, leftMs, settled, stateOf, verbOf } from "../../pure/jobs.js";
import { filterOfBody, partsOf } from "../../pure/letters.js";

export function StatePill({ job }) {
  const [word, tone] = stateOf(job);
  return html`<span class=${`pill ${tone}`}>${word}</span>`;
}

export function JobBar({ job }) {
  const part = fraction(job);
  const left = leftMs(job);
  const label = `${verbOf(job.kind, hasEnded(job) ? 2 : 1)} letters`;
  const whole = isCounted(job) ? ` of ${count(job.selected)}` : "";
  return html`<div class="job-bar">
    <div class="words">
      <span class="large">${count(job.done)}${whole} ${isCounted(job) && job.selected === 1 ? "letter" : "letters"}</span>
      <span>${left !== null ? html`about <b>${duration(Math.max(1000, Math.round(left / 1000) * 1000))}</b> left` : part !== null && `${Math.floor(part * 100)} %`}</span>
    </div>
    <progress aria-label=${label} max="1" value=${part ?? undefined}>${part === null ? "" : `${Math.floor(part * 100)} %`}</progress>
    <div class="words small muted">
      <span>${!hasEnded(job) && `${rate(job.rate_now ?? 0)} letters per second now, ${job.rate ? `at most ${rateLimit(job.rate)}` : "no limit"}`}</span>
      <span>${settled(job) > job.done && `${counted(settled(job) - job.done, "letter")} skipped or unreadable`}</span>
    </div>
  </div>`;
}

/** For a row of a table. */
export function SmallBar({ job }) {
  const part = fraction(job);
  const whole = isCounted(job) ? ` / ${count(job.selected)}` : "";
  return html`<progress class="slim-progress" max="1" value=${part ?? undefined} aria-label=${`Progress of job ${job.job}`}></progress>
    <span class="num"> ${count(job.done)}${whole}</span>`;
}

// What a job works on, in words.

/** "queue orders.eu, reason rejected"; a long list of ids is cut. */
export function FilterWords({ body }) {
  const parts = partsOf(filterOfBody(body), sampleOf, zone.value === "utc");
  // In a list of jobs there is only their number.
  if (body?.id_count) parts.push({ part: "ids", label: "ids", value: `${body.id_count} chosen` });
  if (parts.length === 0) return html`<span>all dead letters</span>`;
  return html`<span>${parts.map(
    ({ label, value }, at) => html`${at > 0 ? ", " : ""}${label} <b><${Outside} text=${value.length > 80 ? `${value.slice(0, 80)}…` : value} /></b>`,
  )}</span>`;
}

/** The page of the letters that fit the filter of a job. */
export const lettersLink = (body, more = {}) => link("dead-letters", { ...addressObject(filterOfBody(body)), ...more });
