// How a queue does, in one word.
import { html } from "../../vendor/ui.js";

export const STATES = {
  idle: { text: "Idle", tone: "", title: "Nothing waits and nothing moves" },
  delayed: { text: "Delayed", tone: "", title: "All that there is waits for its time: a delay, or the next attempt" },
  flowing: { text: "Flowing", tone: "good", title: "Consumers keep up with publishers" },
  falling_behind: { text: "Falling behind", tone: "warn", title: "More comes in than is settled" },
  stuck: { text: "Stuck", tone: "warn", title: "Messages are ready, and for a minute consumers and cursors have taken and settled nothing" },
  full: { text: "Full", tone: "warn", title: "A limit of the queue is reached" },
  no_consumer: { text: "No consumer", tone: "warn", title: "Messages wait and nobody consumes" },
};

/** `isWhole`: with what the word means, where it tells of something to look after. */
export function QueueState({ state, isWhole = false }) {
  const { text, tone, title } = STATES[state] ?? { text: state ?? "–", tone: "", title: "" };
  return html`<span class=${`pill ${tone}`} title=${title}>${text}</span>${isWhole && tone === "warn" && html`<span class="muted small">${title}</span>`}`;
}
