// The texts of kinds of errors, whose fingerprints say nothing to anybody.
import { html, signal } from "../../vendor/ui.js";
import { useData } from "../../parts/data.js";
import { Outside } from "../../parts/text.js";

/** What one letter of a group says. */
export const Sample = ({ group: { sample, count } }) =>
  sample ? html`${count > 1 && html`<span class="muted">e.g. </span>`}<${Outside} text=${sample} />` : html`<span class="muted">${sample === null ? "error text hidden" : "no error text"}</span>`;

const KEY = "vibemq.kinds";
/** More than a page ever lists. */
const KEPT = 4000;

/** @type {any} */
let made = null;
/** Not before it is known who is here: a tab may keep what somebody else was shown. */
const kinds = () => (made ??= signal(read()));

function read() {
  try {
    return Object.fromEntries(Object.entries(JSON.parse(sessionStorage.getItem(KEY) ?? "{}")).filter(([, text]) => typeof text === "string"));
  } catch {
    return {};
  }
}

/** Groups that a page has: after a replay nobody else knows what their errors said. */
export function remember(groups) {
  const fresh = groups.filter(({ fingerprint, sample }) => kinds().value[fingerprint] === undefined && sample !== null);
  if (fresh.length === 0) return;
  const all = [...Object.entries(kinds().value), ...fresh.map(({ fingerprint, sample }) => [fingerprint, (sample ?? "").slice(0, 200)])];
  kinds().value = Object.fromEntries(all.slice(-KEPT));
  try {
    sessionStorage.setItem(KEY, JSON.stringify(kinds().value));
  } catch {
    // Without a place to keep them they are known to this page.
  }
}

export const sampleOf = (fingerprint) => kinds().value[fingerprint];

/** The same for pages that list no groups: they are asked for once, where one of the fingerprints is not known. */
export function useKinds(fingerprints) {
  const isMissing = fingerprints.some((one) => one && kinds().value[one] === undefined);
  const found = useData(isMissing ? "dead-letters/groups" : null, { query: { limit: 1000 }, every: 0 });
  if (found.data) remember(found.data.items);
  return sampleOf;
}
