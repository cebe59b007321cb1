// Keys: / filters, g and a letter goes to a page, j and k move by rows, ? helps. They can be switched off.
import { signal } from "../../vendor/ui.js";
import { letterKeys } from "../choices.js";

export const PLACES = { o: "", q: "queues", d: "dead-letters", j: "jobs", c: "connections", u: "cursors", b: "broker", a: "access", t: "audit", i: "api" };
const WAIT_MS = 1500;

export const helpOpen = signal(false);
let isGoing = 0;

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || letterKeys.value === "off" || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (isGoing && event.timeStamp - isGoing < WAIT_MS) {
    isGoing = 0;
    if (event.key in PLACES) {
      event.preventDefault();
      location.assign(`./${PLACES[event.key]}`);
    }
    return;
  }
  isGoing = 0;
  if (event.key === "g") isGoing = event.timeStamp;
  else if (event.key === "?") helpOpen.value = true;
  else if (event.key === "/") focusFilter(event);
  else if (event.key === "j" || event.key === "k") moveByRow(event);
});

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName));
}

function focusFilter(event) {
  const field = document.querySelector("[data-filter]");
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select?.();
}

/** To the link or button that opens the next row; the first one when no row has the focus. */
function moveByRow(event) {
  const rows = [...document.querySelectorAll("tbody [data-open]")];
  if (rows.length === 0) return;
  event.preventDefault();
  const here = document.activeElement?.closest("tr")?.querySelector("[data-open]");
  const at = here ? rows.indexOf(here) + (event.key === "j" ? 1 : -1) : 0;
  rows[Math.max(0, Math.min(rows.length - 1, at))].focus();
}
