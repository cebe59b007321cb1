// Arithmetic of jobs: how far, how fast, how long, and what that means in a sentence.

export const RATE_MIN = 1;
export const RATE_MAX = 10_000;
export const SLIDER_MAX = 100;

const ENDED = new Set(["done", "cancelled", "failed"]);

/** @param {{state: string}} job */
export function hasEnded(job) {
  return ENDED.has(job.state);
}

/** What a person may ask of a job in this state. @param {{state: string}} job */
export function actionsOf(job) {
  if (hasEnded(job)) return [];
  if (job.state === "paused" || job.state === "held") return ["running", "cancelled"];
  return ["paused", "cancelled"];
}

/** Letters that are settled for the job: done, gone before it came, or unreadable. */
export function settled(job) {
  return (job.done ?? 0) + (job.skipped ?? 0) + (job.damaged ?? 0);
}

/** Whether it is known how many letters there are to do. */
export function isCounted(job) {
  return Number.isFinite(job.selected) && job.selected >= 0;
}

/** From 0 to 1; null while the broker still counts. */
export function fraction(job) {
  if (job.state === "done") return 1;
  if (!isCounted(job)) return null;
  if (job.selected === 0) return 0;
  return Math.min(1, settled(job) / job.selected);
}

/** Time left in ms, as the broker says, else by the present rate; null when nothing can be said. */
export function leftMs(job) {
  if (hasEnded(job) || job.state === "paused" || job.state === "held" || job.state === "waiting") return null;
  if (Number.isFinite(job.left_ms)) return job.left_ms;
  const rate = job.rate_now || job.rate;
  if (!rate || !isCounted(job)) return null;
  return Math.round((Math.max(0, job.selected - settled(job)) / rate) * 1000);
}

/** How long `count` letters take at a rate; null without one. */
export function durationAt(count, rate) {
  return rate > 0 ? Math.ceil((count / rate) * 1000) : null;
}

/** A slider is logarithmic: each tenth of its way multiplies the rate. Its last place means no limit (null). */
export function rateOfSlider(place) {
  if (place >= SLIDER_MAX) return null;
  const exact = RATE_MIN * (RATE_MAX / RATE_MIN) ** (Math.max(0, place) / (SLIDER_MAX - 1));
  return Math.max(RATE_MIN, rounded(exact));
}

export function sliderOfRate(rate) {
  if (rate === null || rate === undefined || rate === 0) return SLIDER_MAX;
  const within = Math.min(RATE_MAX, Math.max(RATE_MIN, rate));
  return Math.round((Math.log(within / RATE_MIN) / Math.log(RATE_MAX / RATE_MIN)) * (SLIDER_MAX - 1));
}

/** Two digits are as exact as a slider is. */
function rounded(value) {
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(value)) - 1);
  return Math.round(value / unit) * unit;
}

export const CANARY = 10;
export const CANARY_FROM = 100;

/** The guard that a dialog begins with: many letters go behind a few first. */
export function canaryFor(count) {
  return count > CANARY_FROM ? CANARY : null;
}

/** What a canary of so many letters means when only so many go at all; "" when it holds some back. */
export function wholeCanary(canary, chosen) {
  if (!canary || canary < chosen) return "";
  return chosen === canary
    ? `All ${chosen} letters are the canary: they go at once, and none is held back. That is fine for a first look; to hold some back, make the canary smaller.`
    : `Only ${chosen} ${chosen === 1 ? "letter goes" : "letters go"}, fewer than the canary of ${canary}: ${chosen === 1 ? "it goes" : "they go"} at once, and none is held back. Make the canary smaller, or replay more.`;
}

/** So many of `count` letters are the canary, if somebody wants one. */
export function fewFirst(count) {
  return count > 2 * CANARY ? CANARY : Math.max(1, Math.floor(count / 2));
}

export const LEVEL_2_FROM = 10_000;

/** Which confirmation an action on so many letters asks for (1: a button; 2: the number is typed). */
export function levelOf(kind, count) {
  if (kind === "export_dead") return 0;
  if (kind === "purge_dead") return count === 1 ? 1 : 2;
  return count > LEVEL_2_FROM ? 2 : 1;
}

export const EXPORT_JOB_FROM = 10_000;

/** Whether a browser fetches so many letters in a moment. */
export function isSmallExport(count) {
  return count < EXPORT_JOB_FROM;
}

/** Where the letters of a preview go, in words for a button: "orders", "the 3 queues they died in". */
export function targetText(targets, to) {
  if (to) return to;
  if (targets?.length === 1) return targets[0].queue;
  return targets?.length ? `the ${targets.length} queues they died in` : "where they died";
}

const VERBS = {
  replay: ["Replay", "Replaying", "Replayed"],
  purge_dead: ["Purge", "Purging", "Purged"],
  export_dead: ["Export", "Exporting", "Exported"],
};

/** "Replay", "Replaying" or "Replayed", as the state of the job wants it. */
export function verbOf(kind, form = 0) {
  return (VERBS[kind] ?? [kind, kind, kind])[form];
}

const STATES = {
  queued: ["waits for its turn", ""],
  running: ["running", "good"],
  waiting: ["waiting", "warn"],
  paused: ["paused", "warn"],
  held: ["held by a guard", "bad"],
  done: ["done", ""],
  cancelled: ["cancelled", ""],
  failed: ["failed", "bad"],
};

/** [word, tone] */
export function stateOf(job) {
  return STATES[job.state] ?? [job.state, ""];
}

/** Whether the letters of a replay go to another queue than the one they died in. @param {Row<"jobs">} job */
export const isElsewhere = ({ to, filter }) => Boolean(to) && to !== filter?.queue;
