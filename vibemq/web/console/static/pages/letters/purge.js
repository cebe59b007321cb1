// Purge: how many and which, export first, the number typed, and refused when there are more than were shown.
import { html } from "../../vendor/ui.js";
import { post, remove, urlOf } from "../../parts/api.js";
import { ask, say } from "../../parts/dialog.js";
import { path } from "../../pure/commands.js";
import { count, counted } from "../../pure/format.js";
import { levelOf } from "../../pure/job_figures.js";
import { bodyOfFilter, hasOptions, isEmpty, optionsOfFilter } from "../../pure/letter_filter.js";
import { link } from "../../parts/address.js";
import { queryObject } from "./list.js";
import { Preview } from "./preview.js";

/** Ask, start the job, and go to its page. */
export async function purge(filter, { onDone } = {}) {
  let preview;
  try {
    preview = await post("dead-letters/preview", { filter: bodyOfFilter(filter) }, { key: null });
  } catch (problem) {
    say(problem.message);
    return;
  }
  if (preview.count_max === 0) {
    say("No letter fits any more.");
    onDone?.();
    return;
  }
  const { count: least, count_max: most, exact } = preview;
  const guard = exact ? { at_most: least } : { limit: most };
  const body = { kind: "purge_dead", filter: bodyOfFilter(filter), ...guard };
  const number = exact ? count(least) : `${count(least)} to ${count(most)}`;
  const job = await ask({
    title: `Purge ${exact ? counted(least, "dead letter") : `${number} dead letters`}?`,
    happens: html`<p>The letters are deleted with their bodies. Nobody can replay them then.</p><${Preview} preview=${preview} />`,
    reversible: `This cannot be taken back. ${!exact ? `Every letter that fits is purged, and never more than ${count(most)}.` : "If more letters fit by then than are shown here, nothing is purged."}`,
    instead: html`<p><a class="button slim" href=${urlOf("dead-letters/export", queryObject(filter)).href} download>Export ${exact ? count(least) : "all that fit"} first</a></p>`,
    button: exact ? `Purge ${counted(least, "letter")}` : `Purge at most ${counted(most, "letter")}`,
    typed: levelOf("purge_dead", most) === 2 ? most : undefined,
    isDanger: true,
    commands: { admin: hasOptions(filter) && [["dlq", "purge"], { options: { ...optionsOfFilter(filter), all: isEmpty(filter), "at-most": guard.at_most, limit: guard.limit, yes: true } }], request: { method: "POST", path: "jobs", body } },
    act: () => post("jobs", body),
  });
  if (!job) return;
  onDone?.();
  if (job.job) location.assign(link("job", { id: job.job }));
}

export async function purgeOne({ dead_id: id, queue }, onDone) {
  const where = path`dead-letters/${String(id)}`;
  const done = await ask({
    title: `Purge dead letter ${id}?`,
    happens: "The letter is deleted with its body. Nobody can replay it then.",
    reversible: "This cannot be taken back.",
    instead: html`<p><a class="button slim" href=${urlOf(`${where}/body`, { queue }).href} download>Download the body first</a></p>`,
    button: "Purge 1 letter",
    isDanger: true,
    commands: { admin: [["dlq", "purge"], { options: { queue, id: String(id), yes: true } }], request: { method: "DELETE", path: where, query: { queue } } },
    act: () => remove(where, { queue }),
  });
  if (done) onDone();
}
