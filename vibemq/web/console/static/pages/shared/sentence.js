// What the broker says of itself: an alarm or a warning, what helps, and where to look.
import { html } from "../../vendor/ui.js";
import { link } from "../../parts/address.js";
import { sentence } from "../../parts/states.js";
import { Outside } from "../../parts/text.js";

const WHERE = { queue: "Show the queue", cursors: "Show its cursors", "dead-letters": "Show the dead letters" };

export function Sentence({ level, text, remedy, link: target }) {
  return html`<p class=${`well ${level === "alarm" ? "bad" : "warn"}`}>
    <strong>${level === "alarm" ? "Alarm: " : ""}<${Outside} text=${sentence(text)} /></strong>
    ${remedy && html`<span class="small"><${Outside} text=${sentence(remedy)} /></span>`}
    ${target && html`<a href=${link(target.page, { queue: target.queue })}>${WHERE[target.page] ?? "Show"}</a>`}
  </p>`;
}
