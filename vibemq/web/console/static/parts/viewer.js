// The body of a message, as it is: JSON laid out but kept digit for digit, text, or hexadecimal; whole as a download.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { fromBase64, hexLines, isHidden, kindOf, laid, slices, textOf, tokenSteps } from "../pure/body.js";
import { counted, size } from "../pure/format.js";
import { urlOf } from "./api.js";
import { Copy } from "./command.js";
import { Segments } from "./filters.js";
import { Hidden, Outside } from "./text.js";

/** Bytes that are laid out at once; the rest on demand. */
const FIRST_BYTES = 64 * 1024;
const HEX_BYTES = 16 * 1024;

/** `message`: with `payload` (text) or `payload_base64`, `payload_size`, and `truncated` when that is not all. `bodyPath`: where
 * the whole body is, for the download. `decoded`: {value, options, onChange} of the decoding that the API does. */
export const Viewer = (props) => (isHidden(props.message) ? html`<p><${Hidden} what="The body is" /></p>` : html`<${Shown} ...${props} />`);

function Shown({ message, bodyPath, decoded }) {
  const bytes = useMemo(() => bytesOf(message), [message]);
  const kind = useMemo(() => kindOf(bytes), [bytes]);
  const [chosen, setChosen] = useState(null);
  const [shownBytes, setShownBytes] = useState(FIRST_BYTES);
  useEffect(() => setShownBytes(FIRST_BYTES), [message]);
  const isCut = message.truncated || bytes.length > shownBytes;
  const text = useMemo(() => textOf(wholeCharacters(bytes, shownBytes)), [bytes, shownBytes]);
  const pretty = useSteps(useMemo(() => tokenSteps(text ?? "", isCut), [text, isCut]));
  const ways = [text !== null && pretty !== null && ["json", "JSON"], text !== null && ["text", "Text"], ["hex", "Hex"]].filter(Boolean);
  const way = ways.some(([one]) => one === chosen) ? chosen : ways[0][0];
  const parts = useMemo(() => way === "json" && !pretty ? ["Laying it out…"].values() : partsOf(way, { bytes, text, pretty, shownBytes }), [way, bytes, text, pretty, shownBytes]);
  const whole = message.decoded_size ?? message.payload_size ?? bytes.length;
  return html`<div class="viewer">
    <div class="buttons">
      <${Segments} label="How the body is shown" value=${way} options=${ways} onChange=${setChosen} />
      ${decoded && html`<${Segments} label="How the body is decoded" ...${decoded} />`}
      <span class="muted small">${size(whole)} · ${kind}</span>
      <span class="push"></span>
      ${text !== null && html`<${Copy} text=${text} what="the body" label="Copy" />`}
      ${bodyPath && html`<a class="button slim" href=${urlOf(bodyPath).href} download>Download</a>`}
    </div>
    ${bytes.length === 0 ? html`<p class="muted">The body is empty.</p>` : html`<div class="code wrapped" role="region" aria-label="Body" tabindex="0"><${Slices} parts=${parts} /></div>`}
    ${isCut && html`<p class="muted small">Shown are ${size(Math.min(bytes.length, shownBytes))} of ${size(whole)}. ${bytes.length > shownBytes && html`<button type="button" class="button slim" onClick=${() => setShownBytes(Infinity)}>Show ${message.truncated ? size(bytes.length) : "all"}</button>`} ${message.truncated && bodyPath ? "The download has all of it." : ""}</p>`}
  </div>`;
}

const DECODINGS = [["", "As stored"], ["gzip", "gzip"], ["br", "brotli"]];

/** Of `Viewer`, for a message or letter that the API has opened so, or might: text is not compressed, so there is nothing to open. */
export function decodingOf(message, value, onChange) {
  const mayBePacked = value || message.payload_base64 !== undefined || Object.keys(message.headers ?? {}).some((name) => name.toLowerCase() === "content-encoding");
  return mayBePacked && { value, options: DECODINGS, onChange };
}

export function bytesOf(message) {
  if (typeof message.payload_base64 === "string") return fromBase64(message.payload_base64);
  return new TextEncoder().encode(message.payload ?? "");
}

/** The first `most` bytes, less a character of UTF-8 that is cut. */
function wholeCharacters(bytes, most) {
  if (bytes.length <= most) return bytes;
  let end = most;
  while (end > most - 4 && (bytes[end] & 0xc0) === 0x80) end -= 1;
  return bytes.subarray(0, end);
}

/** What is to be seen, in parts that are made one after the other. */
function* partsOf(way, { bytes, text, pretty, shownBytes }) {
  if (way !== "hex") {
    for (const slice of slices(way === "json" ? laid(pretty) : [["", text]])) yield html`<${Slice} ...${slice} way=${way} />`;
    return;
  }
  const most = Math.min(bytes.length, shownBytes === Infinity ? Infinity : HEX_BYTES);
  for (let from = 0; from < most; from += HEX_BYTES) {
    yield html`<span class="hex lines">${hexLines(bytes.subarray(from, Math.min(most, from + HEX_BYTES)), { from }).join("\n")}</span>`;
  }
  if (most < bytes.length) yield `… ${counted(bytes.length - most, "byte")} more`;
}

/** What the steps have found, at the end or with the latest of them: one for each frame, so that the page can be used meanwhile. */
function useSteps(steps) {
  const [made, setMade] = useState({ steps: null, step: null });
  const first = useMemo(() => steps.next(), [steps]);
  const now = made.steps === steps ? made.step : first;
  useEffect(() => {
    if (now.done) return undefined;
    const frame = requestAnimationFrame(() => setMade({ steps, step: steps.next() }));
    return () => cancelAnimationFrame(frame);
  }, [now]);
  return now.value;
}

const AT_ONCE = 16;

/** Elements that are there stay as they are. */
const Slices = ({ parts }) => useSteps(useMemo(() => grown(parts), [parts]));

function* grown(parts) {
  const elements = [];
  for (const part of parts) if (elements.push(part) % AT_ONCE === 0) yield [...elements];
  return elements;
}

/** Lines, which are made when they come near to what is seen; until then there is as much room for them. */
function Slice({ pieces, isWhole, way }) {
  const own = useRef(null);
  const [isNear, setNear] = useState(false);
  useEffect(() => {
    const seen = new IntersectionObserver(([{ isIntersecting }]) => isIntersecting && setNear(true), { root: own.current.parentElement, rootMargin: "100%" });
    seen.observe(own.current);
    return () => seen.disconnect();
  }, []);
  if (!isNear) return html`<span ref=${own} class="lines" style=${{ height: `${1.55 * pieces.join().split("\n").length}em` }}></span>`;
  return html`<span class=${isWhole ? "lines" : ""}>${pieces.map(([kind, piece]) => {
    const shown = kind || way === "text" ? html`<${Outside} text=${piece} lines />` : piece;
    return kind ? html`<span class=${`t-${kind}`}>${shown}</span>` : shown;
  })}</span>`;
}

/** Headers as a table; both columns are from outside. */
export function Headers({ headers, caption = "Headers" }) {
  const entries = Object.entries(headers ?? {});
  if (entries.length === 0) return html`<p class="muted">No headers.</p>`;
  return html`<div class="table-scroll" role="region" aria-label=${caption} tabindex="0"><table>
    <caption class="hidden-text">${caption}</caption>
    <thead><tr><th scope="col">Header</th><th scope="col">Value</th></tr></thead>
    <tbody>${entries.map(([name, value]) => html`<tr><th scope="row"><${Outside} text=${name} mono /></th><td class="wrap">${value === null ? html`<span class="muted">hidden</span>` : html`<${Outside} text=${value} mono />`}</td></tr>`)}</tbody>
  </table></div>`;
}
