// Memory, disk and journal, each against its limit.
import { html } from "../../vendor/ui.js";
import { size } from "../../pure/format.js";

export function Resources({ resources }) {
  const { memory, disk, journal } = resources;
  return html`
    ${memory && html`<${Meter} label="Memory" value=${memory.used} most=${memory.limit} stopsAt=${memory.watermark} none="no limit is set" />`}
    ${disk && html`<${Meter} label="Disk" value=${disk.used} most=${disk.total ?? disk.used + disk.free} stopsAt=${disk.watermark} isFree=${true} />`}
    ${journal && html`<${Meter} label="Journal" value=${journal.bytes} most=${journal.limit} none="" />`}`;
}

/** A bar beside the words that say the same. `stopsAt`: where publishing stops. `isFree`: the words say what is left. */
export function Meter({ label, value, most, stopsAt, none = "", isFree = false }) {
  const share = most ? Math.min(1, value / most) : null;
  const used = value / (stopsAt || most || Infinity);
  const tone = used >= 0.97 ? "bad" : used >= 0.9 ? "warn" : "";
  const more = !stopsAt ? "" : isFree ? `publishing stops when only ${size(most - stopsAt)} are free` : `publishing stops at ${size(stopsAt)}`;
  const words = isFree ? `${size(most - value)} of ${size(most)} free` : most ? `${size(value)} of ${size(most)}` : [size(value), none].filter(Boolean).join(", ");
  return html`<div class="meter"><div class="words"><span>${label}</span><span class="num">${words}${tone === "bad" ? " – nearly full" : ""}</span></div>
    ${share !== null && html`<div class=${`bar ${tone}`} aria-hidden="true"><${Fill} share=${share} /></div>`}
    ${more && html`<span class="muted small">${more}</span>`}</div>`;
}

/** Widths are set by the script: the policy of the page allows no style attributes in markup. */
const Fill = ({ share }) => html`<i style=${{ width: `${Math.max(share * 100, 0.5)}%` }}></i>`;
