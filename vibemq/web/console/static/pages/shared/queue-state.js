// How a queue does, in one word.
import { html } from "../../vendor/ui.js";

export const STATES = {
  idle: { text: "Idle", tone: "", title: "Nothing waits and nothing moves" },
  flowing: { text: "Flowing", tone: "good", title: "Consumers keep up with publishers" },
  falling_behind: { text: "Falling behind", tone: "warn", title: "More comes in than is settled" },
  stuck: { text: "Stuck", tone: "bad", title: "Messages wait, consumers are there, and nothing is settled" },
  full: { text: "Full", tone: "bad", title: "A limit of the queue is reached" },
  no_consumer: { text: "No consumer", tone: "warn", title: "Messages wait and nobody consumes" },
};

export function QueueState({ state }) {
  const { text, tone, title } = STATES[state] ?? { text: state ?? "–", tone: "", title: "" };
  return html`<span class=${`pill ${tone}`} title=${title}>${text}</span>`;
}
