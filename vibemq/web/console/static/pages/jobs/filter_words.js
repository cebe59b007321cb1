// What a job works on, in words.
import { html } from "../../vendor/ui.js";
import { link } from "../../parts/address.js";
import { Outside } from "../../parts/text.js";
import { addressObject } from "../letters/list.js";
import { sampleOf } from "../letters/kinds.js";
import { filterOfBody, partsOf } from "../../pure/letter_filter.js";

/** "queue orders.eu, reason rejected"; a long list of ids is cut. */
export function FilterWords({ body }) {
  const parts = partsOf(filterOfBody(body), sampleOf);
  // In a list of jobs there is only their number.
  if (body?.id_count) parts.push({ part: "ids", label: "ids", value: `${body.id_count} chosen` });
  if (parts.length === 0) return html`<span>all dead letters</span>`;
  return html`<span>${parts.map(
    ({ label, value }, at) => html`${at > 0 ? ", " : ""}${label} <b><${Outside} text=${value.length > 80 ? `${value.slice(0, 80)}…` : value} /></b>`,
  )}</span>`;
}

/** The page of the letters that fit the filter of a job. */
export const lettersLink = (body, more = {}) => link("dead-letters", { ...addressObject(filterOfBody(body)), ...more });
