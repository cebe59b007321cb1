// Streams of events over fetch, so that the cookie and the policy of the page hold for them; and the one stream of the
// browser that all its tabs share.
import { signal } from "../vendor/ui.js";
import { EventReader } from "../pure/sse.js";
import { BASE, leaveForLogin, lostSince, newKey, Problem, urlOf } from "./api.js";

/** Calls `onEvent({event, data})` until the stream ends or `signal` says so. Throws a Problem when it cannot be had. */
export async function readEvents(path, query, { signal: leaving, onEvent, onOpen }) {
  const response = await fetch(urlOf(path, query), { headers: { accept: "text/event-stream" }, signal: leaving, credentials: "same-origin" });
  lostSince.value = 0;
  if (!response.ok) {
    if (response.status === 401) leaveForLogin();
    throw new Problem(response.status, await response.json().catch(() => ({})), { retryAfterS: Number(response.headers.get("retry-after")) || 0 });
  }
  onOpen?.();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const events = new EventReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    for (const event of events.read(value)) onEvent(event);
  }
}

/** Whether frames of topics arrive; then pages need not poll. */
export const streaming = signal(false);

const AGAIN_MS = 5000;
const listeners = new Map();
const me = newKey();
const channel = new BroadcastChannel(`vibemq-events ${BASE.pathname}`);
/** Of the leader: which topics each tab wants. */
const wanted = new Map();
let isLeader = false;
let open = { topics: "", stop: () => {} };

/** `onFrame` is called with the data of each frame of a topic; the answer ends that. */
export function onTopic(topic, onFrame) {
  if (!listeners.has(topic)) listeners.set(topic, new Set());
  listeners.get(topic).add(onFrame);
  announce();
  return () => {
    const some = listeners.get(topic);
    some?.delete(onFrame);
    if (some?.size === 0) listeners.delete(topic);
    announce();
  };
}

/** Tell the leader what this tab wants: nothing while nobody sees it. */
function announce() {
  const topics = document.visibilityState === "visible" ? [...listeners.keys()].sort() : [];
  tell({ tab: me, topics });
}

/** To all tabs, this one included. */
function tell(message) {
  channel.postMessage(message);
  hear(message);
}

channel.onmessage = ({ data }) => hear(data);

function hear({ tab, topics, frame, state, leader }) {
  if (frame) for (const onFrame of listeners.get(frame.topic) ?? []) onFrame(frame.data);
  if (state) streaming.value = state === "open";
  if (leader) announce();
  if (topics && isLeader) {
    if (topics.length) wanted.set(tab, topics);
    else wanted.delete(tab);
    follow();
  }
}

/** Of the leader: one stream with what all tabs want together; none when they want nothing. */
function follow() {
  const topics = [...new Set([...wanted.values()].flat())].sort();
  const text = topics.join("\n");
  if (text === open.topics) {
    if (text && streaming.value) tell({ state: "open" });
    return;
  }
  open.stop();
  if (!text) {
    open = { topics: "", stop: () => {} };
    tell({ state: "closed" });
    return;
  }
  const leaving = new AbortController();
  open = { topics: text, stop: () => leaving.abort() };
  const onEvent = ({ event, data }) => {
    if (event === "bye") return;
    const frame = JSON.parse(data);
    if (frame.data) tell({ frame });
  };
  readEvents("events", { topic: topics }, { signal: leaving.signal, onEvent, onOpen: () => tell({ state: "open" }) })
    .catch(() => {})
    .then(() => {
      if (leaving.signal.aborted) return;
      tell({ state: "closed" });
      setTimeout(() => {
        if (open.topics !== text) return;
        open.topics = "";
        follow();
      }, AGAIN_MS * (0.5 + Math.random()));
    });
}

document.addEventListener("visibilitychange", announce);
addEventListener("pagehide", () => tell({ tab: me, topics: [] }));
addEventListener("pageshow", announce);

// Whoever has the lock is the leader, until its tab is closed. Only secure pages have locks; the others poll.
navigator.locks?.request(`vibemq-events ${BASE.pathname}`, async () => {
  isLeader = true;
  tell({ leader: me });
  await new Promise(() => {});
});
