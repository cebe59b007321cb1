// Memory, disk and journal, each against its limit.
import { html } from "../../vendor/ui.js";
import { size } from "../../pure/format.js";

export function Resources({ resources }) {
  const { memory, disk, journal } = resources;
  const total = disk && disk.used !== null && disk.free !== null ? disk.used + disk.free : null;
  return html`
    ${memory && html`<${Meter} label="Memory" value=${memory.used} most=${memory.limit} none="no limit is set" />`}
    ${disk && html`<${Meter} label="Disk" value=${disk.used} most=${total} warnAt=${total && disk.watermark ? (total - disk.watermark) / total : 0.9} more=${disk.watermark ? `publishing stops below ${size(disk.watermark)} free` : ""} />`}
    ${journal && html`<${Meter} label="Journal" value=${journal.bytes} most=${journal.limit} none="" />`}`;
}

/** A bar beside the words that say the same. */
export function Meter({ label, value, most, warnAt = 0.85, more = "", none = "" }) {
  const share = most ? Math.min(1, value / most) : null;
  const tone = share === null ? "" : share >= 0.97 || share >= warnAt ? "bad" : share >= warnAt * 0.9 ? "warn" : "";
  const words = most ? `${size(value)} of ${size(most)}` : [size(value), none].filter(Boolean).join(", ");
  return html`<div class="meter"><div class="words"><span>${label}</span><span class="num">${words}${tone === "bad" ? " – nearly full" : ""}</span></div>
    ${share !== null && html`<div class=${`bar ${tone}`} aria-hidden="true"><${Fill} share=${share} /></div>`}
    ${more && html`<span class="muted small">${more}</span>`}</div>`;
}

/** Widths are set by the script: the policy of the page allows no style attributes in markup. */
const Fill = ({ share }) => html`<i style=${{ width: `${Math.max(share * 100, 0.5)}%` }}></i>`;
