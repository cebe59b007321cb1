// The event stream: one per browser, none while no tab is seen. Until it runs, pages poll.
import { signal } from "../vendor/ui.js";

/** Whether frames arrive; then pages need not poll. */
export const streaming = signal(false);

const listeners = new Map();

/** `onFrame` is called with each frame of a topic; the answer ends that. */
export function onTopic(topic, onFrame) {
  if (!listeners.has(topic)) listeners.set(topic, new Set());
  listeners.get(topic).add(onFrame);
  return () => listeners.get(topic)?.delete(onFrame);
}
