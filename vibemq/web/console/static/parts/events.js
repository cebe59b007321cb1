// Reads a stream of events over fetch, so that the cookie and the policy of the page hold for it.
import { EventReader } from "../pure/sse.js";
import { leaveForLogin, Problem, urlOf } from "./api.js";

/** Calls `onEvent({event, data})` until the stream ends or `signal` says so. Throws a Problem when it cannot be had. */
export async function readEvents(path, query, { signal, onEvent, onOpen }) {
  const response = await fetch(urlOf(path, query), { headers: { accept: "text/event-stream" }, signal, credentials: "same-origin" });
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
