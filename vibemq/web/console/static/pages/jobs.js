// Jobs: replays, purges and exports that the broker does by itself.
import { html } from "../vendor/ui.js";
import { link, params } from "../parts/address.js";
import { Commands } from "../parts/command.js";
import { useData, useSteady } from "../parts/data.js";
import { Filters } from "../parts/filters.js";
import { start } from "../parts/frame.js";
import { Ago, Count, Empty, Loaded, Name, Outside } from "../parts/text.js";
import { Table } from "../parts/table.js";
import { rate } from "../pure/format.js";
import { hasEnded, isElsewhere, verbOf } from "../pure/jobs.js";
import { FilterWords, SmallBar, StatePill } from "./jobs/progress.js";
import { useKinds } from "./letters/kinds.js";

const LIMIT = 50;
const STATES = [["", "Any state"], ["running", "Running"], ["waiting", "Waiting"], ["paused", "Paused"], ["held", "Held"], ["queued", "Waits for its turn"], ["done", "Done"], ["cancelled", "Cancelled"], ["failed", "Failed"]];
/** @type {Columns<Row<"jobs">>} */
const COLUMNS = [
  { key: "job", label: "Job", isHead: true, isTight: true, cell: (job) => html`<a data-open href=${link("job", { id: job.job })}>${job.job}</a>` },
  { key: "state", label: "State", isTight: true, cell: (job) => html`<${StatePill} job=${job} />` },
  { key: "what", label: "What", className: "wrap", cell: (job) => html`<b>${verbOf(job.kind)}</b> <${FilterWords} body=${job.filter} />${isElsewhere(job) && html` to <b><${Name} name=${job.to} /></b>`}` },
  { key: "progress", label: "Done", isTight: true, cell: (job) => html`<${SmallBar} job=${job} />` },
  { key: "rate", label: "Now/s", isNum: true, cell: (job) => (hasEnded(job) ? "–" : rate(job.rate_now ?? 0)) },
  { key: "again", label: "Died again", isNum: true, cell: (job) => html`<${Count} value=${job.kind === "replay" ? job.dead_again : null} />` },
  { key: "user", label: "Started by", isTight: true, cell: (job) => html`<${Outside} text=${job.user} isName />` },
  { key: "created", label: "When", isTight: true, cell: (job) => html`<${Ago} at=${job.created_at} />` },
  { key: "note", label: "Note", className: "wrap", cell: (job) => html`<${Outside} text=${job.note} />` },
];

function Jobs() {
  const { state, cursor } = params.value;
  const query = { state, limit: LIMIT, cursor };
  const found = useData("jobs", { query, every: 2000, topic: state || cursor ? null : "jobs", merge: (frame, before) => ({ ...before, items: frame.jobs ?? frame.items ?? before.items }) });
  useKinds((found.data?.items ?? []).map(({ filter }) => filter?.fingerprint));
  const rows = useSteady(found.data?.items, ({ job }) => job, `${state}${cursor}${found.data?.items?.[0]?.job}`);
  return html`
    <div class="title"><h1>Jobs</h1></div>
    <p class="lead">Replays, purges and exports of dead letters. They go on when this page is closed, and after a restart.</p>
    <${Filters} fields=${[{ name: "state", label: "State", kind: "select", options: STATES }]} />
    <${Loaded} found=${found} what="Loading jobs">${(data) => html`<${Table} isOld=${found.isOld} caption="Jobs" isQuiet columns=${COLUMNS} rows=${rows} keyOf=${({ job }) => job} name="jobs" hiddenAtFirst="note" next=${data.next}
      empty=${state
        ? html`<${Empty} title="No job is in this state"><p>Choose <em>Any state</em> to see all that are kept.</p></${Empty}>`
        : html`<${Empty} title="There are no jobs"><p>A job begins on the page <a href="./dead-letters">Dead letters</a>: filter, look at the preview, then <em>Replay</em> or <em>Purge</em>. On the command line, <code>vibemq-admin dlq replay</code> starts one.</p><p>Finished jobs stay here for seven days.</p></${Empty}>`} />`}</${Loaded}>
    <${Commands} admin=${[["job", "ls"], { options: { state } }]} request=${{ path: "jobs", query }} />`;
}

start(Jobs);
