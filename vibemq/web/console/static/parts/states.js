// What stands where there is no data.
import { html } from "../vendor/ui.js";
import { Outside } from "./text.js";

/** While the first answer is on its way. */
export const Waiting = ({ what = "Loading" }) => html`<p class="wait" role="status">${what}…</p>`;

/** A place that has nothing to show, and what would bring something here. */
export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2>${children}</div>`;

/** A problem as the API told it. `retry`: what the button does. */
export function Trouble({ problem, retry }) {
  const hint =
    problem.status === 403
      ? "Ask a superuser of this broker for the permission that is named, or log in as somebody else."
      : null;
  return html`<div class="problem" role="alert">
    <strong><${Outside} text=${sentence(problem.message)} /></strong>
    ${problem.errors.map(({ pointer, detail }) => html`<span><code>${pointer}</code> <${Outside} text=${detail} /></span>`)}
    ${hint && html`<span class="small">${hint}</span>`}
    <span class="small">${[problem.code, problem.requestId && `request ${problem.requestId}`].filter(Boolean).join(" · ")}</span>
    ${retry && html`<span><button type="button" class="button slim" onClick=${retry}>Try again</button></span>`}
  </div>`;
}

/** Errors begin with a small letter where a prefix may stand before them. */
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** The usual three: waiting, trouble, or the data itself. `found` comes from useData. */
export function Loaded({ found, what, children }) {
  if (found.data === undefined) {
    return found.problem ? html`<${Trouble} problem=${found.problem} retry=${found.refresh} />` : html`<${Waiting} what=${what} />`;
  }
  return html`${found.problem && found.problem.status !== 0 && html`<${Trouble} problem=${found.problem} retry=${found.refresh} />`}${children(found.data)}`;
}
