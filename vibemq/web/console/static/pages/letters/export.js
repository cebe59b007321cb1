// Export of many letters: the broker writes a file, as a job, or the browser fetches them at once.
import { html } from "../../vendor/ui.js";
import { link } from "../../parts/address.js";
import { newKey, post, urlOf } from "../../parts/api.js";
import { ask } from "../../parts/dialog.js";
import { count, counted } from "../../pure/format.js";
import { bodyOfFilter, hasOptions, optionsOfFilter } from "../../pure/letter_filter.js";
import { queryObject } from "./list.js";

/** Ask, start the job, and go to its page. `number`: how many letters fit, or null; `more`: limit, rate and note. */
export async function exportLetters(filter, number, more = {}) {
  const given = Object.fromEntries(Object.entries(more).filter(([, value]) => value));
  const body = { kind: "export_dead", filter: bodyOfFilter(filter), ...given };
  const key = newKey();
  const words = number === null ? "all letters that fit" : counted(number, "letter");
  const job = await ask({
    title: `Export ${words}?`,
    happens: html`<p>The broker writes the letters with their bodies into a file, as a job that goes on when this page is closed. You fetch the file on the page of the job; the broker deletes it after seven days. The letters stay where they are.</p>`,
    instead: html`<p>Or fetch them at once, which ends when the connection does: <a class="button slim" href=${urlOf("dead-letters/export", queryObject(filter)).href} download>Download ${number === null ? "now" : count(number)}</a></p>`,
    button: `Write a file of ${words}`,
    commands: { admin: hasOptions(filter) && [["dlq", "export"], { options: { ...optionsOfFilter(filter), ...given, detach: true } }], request: { method: "POST", path: "jobs", body } },
    act: () => post("jobs", body, { key }),
  });
  if (job?.job) location.assign(link("job", { id: job.job }));
}
