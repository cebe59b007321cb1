// New messages as they come. It makes no group and no consumer; what is too much is left out, and counted.
import { html, useEffect, useRef, useState } from "../../vendor/ui.js";
import { path } from "../../pure/commands.js";
import { count, size } from "../../pure/format.js";
import { link } from "../../parts/address.js";
import { Commands } from "../../parts/command.js";
import { live } from "../../parts/data.js";
import { readEvents } from "../../parts/events.js";
import { Empty, Trouble } from "../../parts/states.js";
import { At, Outside } from "../../parts/text.js";

const KEPT = 200;
const SHOWN_CHARACTERS = 2000;

export function Tail({ queue }) {
  const [rows, setRows] = useState([]);
  const [skipped, setSkipped] = useState(0);
  const [problem, setProblem] = useState(null);
  const [isOpen, setOpen] = useState(false);
  const [attempt, setAttempt] = useState(0);
  const waiting = useRef([]);
  const isLive = live.value;
  useEffect(() => {
    if (!isLive) return undefined;
    const leaving = new AbortController();
    const onEvent = ({ event, data }) => {
      if (event !== "messages") return;
      const told = JSON.parse(data);
      waiting.current.push(...told.messages);
      if (told.skipped) setSkipped((before) => before + told.skipped);
    };
    const follow = async () => {
      try {
        setProblem(null);
        await readEvents(path`queues/${queue}/tail`, {}, { signal: leaving.signal, onEvent, onOpen: () => setOpen(true) });
        if (!leaving.signal.aborted) setTimeout(() => setAttempt((before) => before + 1), 1000 + Math.random() * 1000);
      } catch (found) {
        if (found.name !== "AbortError") setProblem(found);
      }
      setOpen(false);
    };
    follow();
    // Many at once are one change of the page.
    const timer = setInterval(() => {
      if (waiting.current.length === 0) return;
      const fresh = waiting.current.splice(0).reverse();
      setRows((before) => [...fresh, ...before].slice(0, KEPT));
    }, 250);
    return () => {
      leaving.abort();
      clearInterval(timer);
    };
  }, [queue, isLive, attempt]);
  return html`
    <div class="table-box">
      <div class="table-bar"><span class=${`pill ${isOpen ? "good" : ""}`}>${isOpen ? "Following" : isLive ? "Connecting" : "Paused"}</span>
        <span class="muted small">${skipped > 0 ? `${count(skipped)} left out: more come than are shown (50 a second).` : "New messages are shown at the top, and stay in the queue."}</span>
        <span class="push"></span>${rows.length > 0 && html`<button type="button" class="button slim" onClick=${() => { setRows([]); setSkipped(0); }}>Clear</button>`}</div>
      ${rows.length === 0 ? html`<${Empty} title="Waiting for the next message"><p>What is published to this queue from now on is shown here, up to 50 messages a second.</p></${Empty}>` : html`<ul class="tail" tabindex="0" aria-label="New messages">${rows.map((row) => html`<li key=${row.sequence}>
        <span class="line"><a data-open href=${link("message", { queue, sequence: row.sequence })}>${count(row.sequence)}</a><${At} at=${row.published_at} millis=${true} /><span>${size(row.payload_size)}</span><${Outside} text=${row.id} mono=${true} /></span>
        <span class="body">${row.payload_base64 !== undefined ? html`<span class="muted">binary</span>` : html`<${Outside} text=${(row.payload ?? "").slice(0, SHOWN_CHARACTERS)} lines=${true} />`}</span></li>`)}</ul>`}
    </div>
    ${problem && html`<${Trouble} problem=${problem} retry=${() => setAttempt(attempt + 1)} />`}
    <${Commands} request=${{ path: path`queues/${queue}/tail`, headers: { accept: "text/event-stream" }, stream: true }} />`;
}
