// How the broker, its queues and their consumers do: a word, a sentence, a bar, the columns of a table.
import { html } from "../../vendor/ui.js";
import { link } from "../../parts/address.js";
import { mayDo } from "../../parts/api.js";
import { useData } from "../../parts/data.js";
import { Ago, Duration, Outside, Prose } from "../../parts/text.js";
import { capitalized, count, size } from "../../pure/format.js";

/** Where clients connect: the listener of the native protocol, as the broker tells it to those who may ask. For others
 * the port is not guessed: a command that reaches another broker is worse than one that does not run. */
export function useNativeUrl() {
  const { data } = useData(mayDo("listeners.list") ? "broker/listeners" : null, { every: 0 });
  const native = data?.listeners.find(({ protocol }) => protocol === "native");
  return `${native?.tls ? "vibemqs" : "vibemq"}://${location.hostname || "localhost"}:${native?.port ?? "PORT"}`;
}

export const STATES = {
  idle: { text: "Idle", tone: "", title: "Nothing waits and nothing moves" },
  delayed: { text: "Delayed", tone: "", title: "All that there is waits for its time: a delay, or the next attempt" },
  flowing: { text: "Flowing", tone: "good", title: "Consumers keep up with publishers" },
  falling_behind: { text: "Falling behind", tone: "warn", title: "More comes in than is settled" },
  awaiting_acks: { text: "Waiting for acks", tone: "", title: "Consumers hold messages and have settled none for some seconds. One that is at its limit (prefetch) gets no more until it settles some" },
  stuck: { text: "Stuck", tone: "warn", title: "Messages are ready, and for a minute consumers and cursors have taken and settled nothing. One that is at its limit (prefetch) gets no more until it settles some" },
  full: { text: "Full", tone: "warn", title: "A limit of the queue is reached" },
  no_consumer: { text: "No consumer", tone: "warn", title: "Messages wait and nobody consumes" },
};

/** Where consumers are what to look at. */
const OF_CONSUMERS = new Set(["awaiting_acks", "stuck"]);

/** `queue`: on the page of this one, with what the word means, where it tells of something to look after. */
export function QueueState({ state, queue = undefined }) {
  const { text, tone, title } = STATES[state] ?? { text: state ?? "–", tone: "", title: "" };
  const ofConsumers = OF_CONSUMERS.has(state);
  return html`<span class=${`pill ${tone}`} title=${title}>${text}</span>${queue && (tone === "warn" || ofConsumers) && html`<span class="meaning muted small">${title}${ofConsumers ? html`. <a href=${`${link("queue", { queue })}#consumers`}>What its consumers hold</a>` : ""}</span>`}`;
}

// What the broker says of itself: an alarm or a warning, what helps, and where to look.

const WHERE = { queue: "Show the queue", cursors: "Show its cursors", "dead-letters": "Show the dead letters" };

export function Sentence({ level, text, remedy, link: target }) {
  return html`<p class=${`well ${level === "alarm" ? "bad" : "warn"}`}>
    <strong>${level === "alarm" ? "Alarm: " : ""}<${Prose} text=${capitalized(text)} /></strong>
    ${remedy && html`<span class="small"><${Prose} text=${capitalized(remedy)} /></span>`}
    ${target && html`<a href=${link(target.page, { queue: target.queue })}>${WHERE[target.page] ?? "Show"}</a>`}
  </p>`;
}

// Memory, disk and journal, each against its limit.

export function Resources({ resources }) {
  const { memory, disk, journal } = resources;
  return html`
    ${memory && html`<${Meter} label="Memory" value=${memory.used} most=${memory.limit} stopsAt=${memory.watermark} none="no limit is set" />`}
    ${disk && html`<${Meter} label="Disk" value=${disk.used} most=${disk.total ?? disk.used + disk.free} stopsAt=${disk.watermark} isFree />`}
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

// Consumers in tables: what each holds, on the pages of its queue and of its connection.

/** @param {Row<"queues/{queue}/consumers">} row */
const heldSince = ({ in_flight, oldest_held_ms, ack_timeout_ms }) =>
  in_flight && !ack_timeout_ms
    ? html`<span class="muted" title="Its subscription has no ack timeout: it may hold messages for ever, and the broker notes no instant of a hand-out that does not end">no ack timeout</span>`
    : html`<${Duration} ms=${oldest_held_ms} />`;

/** @type {Columns<Row<"queues/{queue}/consumers">>} */
export const HELD = [
  { key: "group", label: "Group", cell: ({ group }) => html`<${Outside} text=${group} mono />` },
  { key: "prefetch", label: "Prefetch used", isNum: true, title: "Messages that it holds, of those that it may hold. One that is at its limit gets no more until it settles some", cell: ({ in_flight, prefetch }) => html`${count(in_flight)} / ${prefetch ? count(prefetch) : "∞"}${prefetch && prefetch <= (in_flight ?? 0) ? html` <span class="muted small">at its limit</span>` : ""}` },
  { key: "oldest", label: "Oldest held", isNum: true, cell: heldSince },
  { key: "last", label: "Last ack", isNum: true, cell: ({ last_ack_at }) => html`<${Ago} at=${last_ack_at} />` },
];
