// What a replay or a purge would do, before it does: numbers, targets, kinds of errors, examples.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../vendor/ui.js";
import { post } from "../../parts/api.js";
import { Ago, Count, Name, Outside } from "../../parts/text.js";
import { Sample } from "./kinds.js";
import { count, counted, duration, size } from "../../pure/format.js";
import { durationAt } from "../../pure/job_figures.js";
import { previewSentences } from "../../pure/letter_words.js";
import { reasonText } from "../../pure/letter_filter.js";

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
        const data = await post("dead-letters/preview", JSON.parse(key), { key: null, signal: leaving.signal });
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
  const box = useRef();
  useLayoutEffect(() => {
    box.current.style.minHeight = `${box.current.offsetHeight}px`;
  });
  return html`<div class="steady" ref=${box}>${children}</div>`;
}

const STATES = {
  ok: ["good", "ready"],
  missing: ["bad", "does not exist"],
  full: ["bad", "full"],
  no_consumers: ["warn", "no consumer"],
};

/** `withTargets`: where the letters go, for a replay; of them the first `chosen` go, at `rate`. */
export function Preview({ preview, withTargets = false, chosen = preview.count, to = "", rate = null }) {
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
