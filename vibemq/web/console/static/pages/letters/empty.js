// What stands there when no letter does: there are none at all, or the filter fits none.
import { html, useEffect, useState } from "../../vendor/ui.js";
import { get } from "../../parts/api.js";
import { Outside } from "../../parts/text.js";
import { partsOf, reasonHelp, REASON_NAMES, reasonText, without } from "../../pure/letter_filter.js";
import { sampleOf } from "./kinds.js";
import { queryObject } from "./list.js";

export function NoLetters() {
  return html`<div class="empty">
    <h2>There are no dead letters</h2>
    <p>A message becomes a dead letter when its queue gives it up. It is kept here with the reason, the error that the consumer gave, and its whole body, until somebody replays or purges it.</p>
    <dl class="facts">
      ${REASON_NAMES.map((reason) => html`<dt>${reasonText(reason)}</dt><dd>${reasonHelp(reason)[0]}</dd>`)}
    </dl>
    <p>To see one, reject a message with a reason. In Python:</p>
    <pre class="code">${'[message] = mq.fetch("orders")\nmessage.reject("no such article")'}</pre>
  </div>`;
}

/** Says which part of the filter excludes letters: each part is left out once, and one letter is asked for. */
export function NothingFits({ filter, change }) {
  const parts = partsOf(filter, sampleOf);
  const [others, setOthers] = useState(null);
  const key = JSON.stringify(filter);
  useEffect(() => {
    const leaving = new AbortController();
    setOthers(null);
    if (parts.length < 2) return;
    const ask = async () => {
      const found = [];
      // One by one: a filter on texts has the broker look at many letters.
      for (const { part } of parts) {
        const answer = await get("dead-letters", { ...queryObject(without(filter, part)), limit: 1 }, { signal: leaving.signal });
        if (answer.items.length > 0) found.push(part);
      }
      setOthers(found);
    };
    ask().catch((problem) => problem.name !== "AbortError" && setOthers([]));
    return () => leaving.abort();
  }, [key]);
  return html`<div class="empty" role="status">
    <h2>No dead letter fits this filter</h2>
    ${parts.length === 1 && html`<p>It has one part: ${parts[0].label} <b><${Outside} text=${parts[0].value} /></b>.</p>`}
    ${others === null && parts.length > 1 && html`<p class="muted">Looking which part excludes them…</p>`}
    ${others?.length > 0 && html`<p>Letters would fit without one of these parts:</p>`}
    ${others?.length === 0 && parts.length > 1 && html`<p>No single part is the cause: with any one of them left out, still none fits.</p>`}
    <div class="buttons">
      ${(others ?? []).map((part) => {
        const { label, value } = parts.find((one) => one.part === part);
        return html`<button type="button" class="button slim" onClick=${() => change(without(filter, part))}>Without ${label} <bdi>${value}</bdi></button>`;
      })}
      <button type="button" class="button slim" onClick=${() => change({})}>Clear all filters</button>
    </div>
  </div>`;
}
