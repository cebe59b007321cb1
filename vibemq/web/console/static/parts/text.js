// Names and texts from outside, instants, and figures, as elements.
import { html, render, useEffect, useRef, useState } from "../vendor/ui.js";
import { setParams, zone } from "./address.js";
import { ahead } from "./api.js";
import { capitalized, count, duration, instant, rate, sizeParts, toDate } from "../pure/format.js";
import { codePieces, pieces } from "../pure/symbols.js";

/** Text from outside: isolated, so that it cannot turn what is beside it around, with hidden characters as symbols. `isName`: of a user,
 * a client, a queue; what is `mono` is taken for one. */
export function Outside({ text, lines = false, mono = false, isName = mono }) {
  if (text === null || text === undefined || text === "") return html`<span class="muted">–</span>`;
  const shown = pieces(String(text), { lines, isName });
  return html`<bdi class=${mono ? "mono" : ""}>${shown.map(([piece, isSymbol]) =>
    isSymbol ? html`<span class="symbol" title="a character that is not shown">${piece}</span>` : piece,
  )}</bdi>`;
}

export const Name = ({ name }) => html`<${Outside} text=${name} mono />`;

/** A sentence of the broker: what stands between backticks is code. */
export const Prose = ({ text }) => codePieces(String(text ?? "")).map(([piece, isCode]) => (isCode ? html`<code><${Outside} text=${piece} isName /></code>` : html`<${Outside} text=${piece} />`));

/** An instant in the chosen zone, the other one as its title. */
export function At({ at, millis = false }) {
  const date = toDate(at);
  if (date === null) return html`<span class="muted">–</span>`;
  const utc = zone.value === "utc";
  const other = `${instant(at, { utc: !utc, millis: true })} ${utc ? "local time" : "UTC"}`;
  return html`<time class="num" datetime=${date.toISOString()} title=${other}>${instant(at, { utc, millis })}</time>`;
}

/** How long ago, whatever the clock of the browser says; it goes on by itself. */
export function Ago({ at, suffix = " ago" }) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && setNow(Date.now()), 5000);
    return () => clearInterval(timer);
  }, []);
  const date = toDate(at);
  if (date === null) return html`<span class="muted">–</span>`;
  const ms = Math.max(0, now - ahead.value - date.getTime());
  const text = ms < 5000 ? "just now" : duration(Math.round(ms / 1000) * 1000) + suffix;
  return html`<time datetime=${date.toISOString()} title=${instant(at, { utc: zone.value === "utc", millis: true })}>${text}</time>`;
}

const dimmed = (value) => (value === 0 ? "zero" : "");

export const Count = ({ value }) => html`<span class=${dimmed(value)}>${count(value)}</span>`;
export const Rate = ({ value }) => html`<span class=${dimmed(value)}>${rate(value)}</span>`;
export const Duration = ({ ms }) => html`<span class=${dimmed(ms)}>${duration(ms)}</span>`;

export function Size({ bytes }) {
  const [value, unit] = sizeParts(bytes);
  return html`<span class=${dimmed(bytes)} title=${bytes === null || bytes === undefined ? undefined : `${count(bytes)} bytes`}>${value}<span class="unit"> ${unit}</span></span>`;
}

/** In place of what the API tells as null: somebody else may see it. */
export const Hidden = ({ what }) => html`<span class="muted">${what} hidden from you: the broker's setting <code>http.show_bodies</code> says who may see it.</span>`;

/** A list of figures: [[label, value, tone?]]. */
export function Figures({ items, label }) {
  return html`<dl class="figures" aria-label=${label}>${items
    .filter(Boolean)
    .map(([name, value, tone]) => html`<div class=${tone ?? ""}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** Names and values, one below the other: [[label, value]]; what has no value is left out. */
export function Facts({ items }) {
  return html`<dl class="facts">${items
    .filter((item) => item && item[1] !== null && item[1] !== undefined)
    .map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

/** The page itself, in place of what its document says as long as no module has run. */
export function draw(page) {
  /** @type {any} */
  const place = document.getElementById("console");
  place.replaceChildren();
  render(page, place);
}

// What stands where there is no data.

/** While the first answer is on its way. */
export const Waiting = ({ what = "Loading" }) => html`<p class="wait" role="status">${what}…</p>`;

/** A place that has nothing to show, and what would bring something here. */
export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2>${children}</div>`;

const HEARD_MS = 500;

/** `aria-live` of a region with figures that move: it is read out when `of` has changed, and not with each figure. */
export function useLive(of, how = "polite") {
  const told = useRef({ of: undefined, at: 0 });
  if (told.current.of !== of) told.current = { of, at: performance.now() };
  return performance.now() - told.current.at < HEARD_MS ? how : "off";
}

/** A problem as the API told it. `retry`: what the button does. The id of the request, which is another one with each answer, is not
 * read out. */
export function Trouble({ problem, retry }) {
  // Settings and foreign origins refuse with 403 as well, and nobody has a permission against that.
  const hint =
    problem.code === "NOT_AUTHORIZED" && !problem.message.includes("http.show_bodies")
      ? "Ask a superuser of this broker for the permission that is named, or log in as somebody else."
      : null;
  return html`<div class="problem"><div role="alert">
    <strong><${Prose} text=${capitalized(problem.message)} /></strong>
    ${problem.errors.map(({ pointer, detail }) => html`<span><code>${pointer}</code> <${Prose} text=${detail} /></span>`)}
    ${hint && html`<span class="small">${hint}</span>`}
    ${problem.code && html`<span class="small">${problem.code}</span>`}</div>
    ${problem.requestId && html`<span class="small">request ${problem.requestId}</span>`}
    ${problem.isOldPage ? html`<span><button type="button" class="button slim" onClick=${() => setParams({ cursor: null })}>First page</button></span>` : retry && html`<span><button type="button" class="button slim" onClick=${retry}>Try again</button></span>`}
  </div>`;
}

/** The usual three: waiting, trouble, or the data itself. `found` comes from useData. */
export function Loaded({ found, what, children }) {
  if (found.data === undefined) {
    return found.problem ? html`<${Trouble} problem=${found.problem} retry=${found.refresh} />` : html`<${Waiting} what=${what} />`;
  }
  return html`${found.problem && found.problem.status !== 0 && html`<${Trouble} problem=${found.problem} retry=${found.refresh} />`}${children(found.data)}`;
}
