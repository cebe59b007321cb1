// Streams of events over fetch, so that the cookie and the policy of the page hold for them; and the one stream of the
// browser that all its tabs share.
import { signal } from "../vendor/ui.js";
import { EventReader } from "../pure/sse.js";
import { leaveForLogin, Problem, urlOf } from "./api.js";

/** Calls `onEvent({event, data})` until the stream ends or `signal` says so. Throws a Problem when it cannot be had. */
export async function readEvents(path, query, { signal: leaving, onEvent, onOpen }) {
  const response = await fetch(urlOf(path, query), { headers: { accept: "text/event-stream" }, signal: leaving, credentials: "same-origin" });
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

const listeners = new Map();

/** `onFrame` is called with each frame of a topic; the answer ends that. */
export function onTopic(topic, onFrame) {
  if (!listeners.has(topic)) listeners.set(topic, new Set());
  listeners.get(topic).add(onFrame);
  return () => listeners.get(topic)?.delete(onFrame);
}
