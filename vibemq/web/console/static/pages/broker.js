// The broker: is everything in order, who may connect where, how much room is left, how it is set.
import { html, useRef, useState } from "../vendor/ui.js";
import { namedPieces } from "../pure/names.js";
import { link, params } from "../parts/address.js";
import { mayDo, post } from "../parts/api.js";
import { Commands } from "../parts/command.js";
import { useData } from "../parts/data.js";
import { ask, Modal, say, useSending } from "../parts/dialog.js";
import { Field, Filters, Tabs } from "../parts/filters.js";
import { start } from "../parts/frame.js";
import { At, Count, Empty, Facts, Loaded, Name, Outside, Prose, Size, Trouble } from "../parts/text.js";
import { Table } from "../parts/table.js";
import { adminLine, quote } from "../pure/commands.js";
import { count, duration, exactJson } from "../pure/format.js";

const TABS = [["now", "Doctor", "broker.checks"], ["listeners", "Listeners", "listeners.list"], ["storage", "Storage", "broker.info"], ["settings", "Settings", "broker.settings"]];

function Broker() {
  const tabs = TABS.filter(([, , operation]) => mayDo(operation));
  const [dialog, setDialog] = useState(null);
  const { tab } = params.value;
  if (tabs.length === 0) {
    return html`<div class="title"><h1>Broker</h1></div><div class="card"><${Empty} title="This page is for superusers"><p>It shows the listeners, the storage and the settings of the broker. Ask a superuser, or look at <a href="./access">what you may</a>.</p></${Empty}></div>`;
  }
  const shown = tabs.some(([key]) => key === tab) ? tab : tabs[0][0];
  return html`
    <div class="title"><h1>Broker</h1><span class="push"></span><div class="actions">
      ${mayDo("broker.reload") && html`<button type="button" class="button" onClick=${reload}>Reload the settings…</button>`}
      ${mayDo("storage.backup") && html`<button type="button" class="button" onClick=${() => setDialog("backup")}>Back up…</button>`}
    </div></div>
    <${Tabs} label="Parts of this page" tabs=${tabs.map(([key, text]) => [key, text])} />
    ${shown === "now" && html`<${Doctor} />`}
    ${shown === "listeners" && html`<${Listeners} />`}
    ${shown === "storage" && html`<${Storage} />`}
    ${shown === "settings" && html`<${Settings} />`}
    ${dialog === "backup" && html`<${Backup} onClose=${() => setDialog(null)} />`}`;
}

const LEVELS = { ok: ["good", "ok"], warn: ["warn", "warning"], warning: ["warn", "warning"], fail: ["bad", "fails"] };
const WORST_FIRST = { fail: 0, warn: 1, warning: 1, ok: 2 };

function Doctor() {
  const found = useData("broker/checks", { every: 30_000 });
  return html`<${Loaded} found=${found} what="Looking at everything">${({ checks }) => {
    const sorted = [...checks].sort((a, b) => (WORST_FIRST[a.level] ?? 0) - (WORST_FIRST[b.level] ?? 0));
    const bad = checks.filter(({ level }) => level !== "ok").length;
    return html`
      <div class=${`well ${bad === 0 ? "good" : checks.some(({ level }) => level === "fail") ? "bad" : "warn"}`} role="status">${bad === 0 ? `All ${count(checks.length)} checks are fine.` : `${count(bad)} of ${count(checks.length)} checks have found something.`}</div>
      <${Table} caption="Checks" isQuiet rows=${sorted} keyOf=${({ name }) => name} columns=${[
        { key: "name", label: "Check", isHead: true, isTight: true, cell: ({ name }) => name.replaceAll("_", " ") },
        { key: "level", label: "Result", isTight: true, cell: ({ level }) => html`<span class=${`pill ${LEVELS[level]?.[0] ?? ""}`}>${LEVELS[level]?.[1] ?? level}</span>` },
        { key: "text", label: "What was found", className: "wrap", cell: ({ text, queues, name }) => namedPieces(text, queues ?? []).map(([piece, isName]) => (isName ? html`<a href=${link(name === "dead letters" ? "dead-letters" : "queue", { queue: piece })}><${Name} name=${piece} /></a>` : html`<${Prose} text=${piece} />`)) },
        { key: "remedy", label: "What helps", className: "wrap", cell: ({ remedy }) => (remedy ? html`<${Prose} text=${remedy} />` : html`<${Outside} />`) },
      ]} />
      <${Commands} admin=${[["doctor"]]} request=${{ path: "broker/checks" }} />`;
  }}</${Loaded}>`;
}

const addressOf = ({ host, port }) => `${host.includes(":") ? `[${host}]` : host}:${port}`;

function Listeners() {
  const found = useData("broker/listeners");
  return html`<${Loaded} found=${found} what="Loading the listeners">${(data) => html`<${Table} caption="Listeners" isQuiet rows=${data.listeners} keyOf=${addressOf} columns=${[
    { key: "address", label: "Address", isHead: true, cell: (row) => html`<${Outside} text=${addressOf(row)} mono />` },
    { key: "protocol", label: "Protocol", isTight: true, cell: ({ protocol }) => protocol },
    { key: "tls", label: "TLS", cell: (row) => (row.tls ? html`yes${row.certificate_until && html`, certificate until <${At} at=${row.certificate_until} />`}` : html`<span class="muted">no</span>`) },
    { key: "connections", label: "Connections", isNum: true, cell: ({ connections }) => html`<${Count} value=${connections ?? null} />` },
    { key: "refused", label: "Refused", isNum: true, title: "Connections that were refused since the start", cell: ({ refused }) => html`<${Count} value=${refused ?? null} />` },
    { key: "handshakes", label: "TLS failed", isNum: true, title: "TLS handshakes that failed since the start", cell: ({ handshakes_failed }) => html`<${Count} value=${handshakes_failed ?? null} />` },
  ]} empty=${html`<p class="wait">The broker listens nowhere.</p>`} /><${Commands} admin=${[["broker", "listeners"]]} request=${{ path: "broker/listeners" }} />`}</${Loaded}>`;
}

function Storage() {
  const found = useData("broker");
  return html`<${Loaded} found=${found} what="Loading">${(broker) => {
    const storage = broker.storage ?? {};
    const lag = storage.last_lsn !== undefined ? storage.last_lsn - storage.applied_lsn : null;
    return html`<div class="grid">
      <section class="card" aria-labelledby="process"><h2 id="process">Process</h2><${Facts} items=${[
        ["Version", broker.version],
        ["Runs for", duration(broker.uptime_ms)],
        ["Process id", broker.pid],
        ["Pressure", broker.pressure],
        ["Alarms", broker.alarms?.length ? html`<ul>${broker.alarms.map((alarm) => html`<li><${Prose} text=${alarm} /></li>`)}</ul>` : "none"],
      ]} /></section>
      <section class="card" aria-labelledby="store"><h2 id="store">Store</h2><${Facts} items=${[
        ["Directory", html`<${Name} name=${broker.data_dir} />`],
        ["Provider", broker.provider],
        ["Store", html`<${Size} bytes=${storage.store_bytes} />`],
        ["Reclaimable", html`<${Size} bytes=${storage.reclaimable_bytes} />, given back by <code>vibemq-admin compact</code> while the broker is stopped`],
        ["Disk", html`<${Size} bytes=${storage.disk_free_bytes} /> of <${Size} bytes=${storage.disk_total_bytes} /> free`],
        ["Full", storage.full ? html`<${Prose} text=${storage.full} />` : "no"],
        ["Reserve for a full disk", storage.details?.ballast_held === undefined ? null : storage.details.ballast_held ? "there: with it consumers can empty queues on a full disk" : "used up: free some space, and the broker sets it aside again"],
      ]} /></section>
      <section class="card" aria-labelledby="journal"><h2 id="journal">Journal</h2><${Facts} items=${[
        ["Size", html`<${Size} bytes=${storage.journal_bytes} /> of at most <${Size} bytes=${storage.journal_bytes_max} />`],
        ["Not in the store yet", lag === null ? null : html`<${Count} value=${lag} /> records, <${Size} bytes=${storage.unapplied_bytes} />`],
        ["Checkpoint", storage.details?.checkpoint_age_s === undefined ? null : `${duration(Math.round(storage.details.checkpoint_age_s * 1000))} ago, every ${duration((storage.checkpoint_interval_s ?? 0) * 1000)}`],
        ["Checkpointer", storage.details?.checkpointer_error ? html`<${Prose} text=${storage.details.checkpointer_error} />` : storage.details?.checkpointer_running ? "runs" : null],
        ["Cut off at the last start", storage.torn_tail_bytes ? html`<${Size} bytes=${storage.torn_tail_bytes} /> of an unfinished write` : null],
      ]} /></section></div>
      <${Backups} />
      <${Commands} admin=${[["top"], { options: { once: true } }]} request=${{ path: "broker" }} />`;
  }}</${Loaded}>`;
}

/** Which backups the broker has written; nothing where there are none. */
function Backups() {
  const { data } = useData(mayDo("backup.list") ? "broker/backups" : null, { every: 10_000 });
  if (!data?.backups.length) return null;
  return html`<${Table} caption="Backups" rows=${data.backups} keyOf=${({ at, target }) => `${at} ${target}`} columns=${[
    { key: "at", label: "Written", isHead: true, isTight: true, cell: ({ at }) => html`<${At} at=${at} />` },
    { key: "target", label: "Folder", className: "wrap", cell: ({ target }) => html`<${Outside} text=${target} mono />` },
    { key: "there", label: "Still there", isTight: true, cell: ({ is_there }) => (is_there ? "yes" : html`<span class="pill warn">no</span>`) },
    { key: "size", label: "Size", isNum: true, cell: ({ size_bytes }) => html`<${Size} bytes=${size_bytes ?? null} />` },
    { key: "took", label: "Took", isNum: true, cell: ({ took_ms }) => (took_ms === undefined ? "–" : duration(took_ms)) },
    { key: "user", label: "By", isTight: true, cell: ({ user }) => html`<${Outside} text=${user} isName />` },
  ]} /><${Commands} admin=${[["broker", "backups"]]} request=${{ path: "broker/backups" }} />`;
}

const isOwn = ({ origin }) => origin !== "default" && origin !== null;

function Settings() {
  const { search = "", own } = params.value;
  const found = useData("broker/settings", { every: 0 });
  const fits = (setting) => setting.name.includes(search.trim()) && (!own || isOwn(setting));
  return html`
    <${Filters} fields=${[{ name: "search", label: "Name contains", size: 22 }, { name: "own", label: "Show", kind: "select", options: [["", "All settings"], ["true", "Only what is set"]] }]} />
    <${Loaded} found=${found} what="Loading the settings">${({ settings }) => html`<${Table} caption="Settings" isQuiet rows=${settings.filter(fits)} keyOf=${({ name }) => name} columns=${[
      { key: "name", label: "Setting", isHead: true, cell: ({ name }) => html`<code>${name}</code>` },
      { key: "value", label: "Value", className: "wrap", cell: ({ value }) => html`<${Outside} text=${typeof value === "string" ? value : exactJson(value)} mono />` },
      { key: "origin", label: "From", isTight: true, cell: (setting) => (isOwn(setting) ? html`<b><${Outside} text=${setting.origin} /></b>` : html`<span class="muted">default</span>`) },
      { key: "when", label: "A change counts after", isTight: true, cell: ({ when }) => when },
    ]} empty=${html`<${Empty} title="No setting fits"><p>Names are written with dots, as <code>http.port</code>.</p></${Empty}>`} />`}</${Loaded}>
    <p class="muted small">Secrets are shown as <em>set</em>. The settings file, the environment and the command line change settings; this page does not.</p>
    <${Commands} admin=${[["broker", "settings"]]} request=${{ path: "broker/settings" }} />`;
}

async function reload() {
  const told = await ask({
    title: "Reload the settings?",
    happens: "The broker reads its settings file and the TLS files of its listeners again. If one cannot be used, nothing changes, and the error says why.",
    reversible: "Change the file back and reload again.",
    button: "Reload the settings",
    commands: { admin: [["reload"]], request: { method: "POST", path: "broker/reload", body: {} } },
    act: () => post("broker/reload", {}, { key: null }),
  });
  if (!told) return;
  const changed = told.changed?.length ? `Changed: ${told.changed.join(", ")}.` : "Nothing has changed.";
  say(told.needs_restart?.length ? `${changed} These count after a restart: ${told.needs_restart.join(", ")}.` : changed);
}

function Backup({ onClose }) {
  const [target, setTarget] = useState("");
  const isLeft = useRef(false);
  const leave = () => {
    isLeft.current = true;
    onClose();
  };
  const body = { target };
  const { send, problem, isUnderWay } = useSending(body, async (key) => {
    try {
      await post("broker/backups", body, { key });
    } catch (found) {
      if (!isLeft.current) throw found;
      say(html`No backup in <${Name} name=${target} /> was confirmed. <${Outside} text=${found.message} />`);
      return;
    }
    say(html`The backup is in <${Name} name=${target} />.`);
    if (!isLeft.current) onClose();
  });
  const isAbsolute = target.startsWith("/") || /^[A-Za-z]:[\\/]/.test(target);
  const footer = html`<button type="button" class="button" onClick=${leave}>${isUnderWay ? "Do not wait for it" : "Cancel"}</button><button type="submit" class="button main" disabled=${!isAbsolute || isUnderWay}>${isUnderWay ? "Backing up…" : "Write 1 backup"}</button>`;
  return html`<${Modal} title="Back up the store" onClose=${leave} onSubmit=${send} footer=${footer}>
    <p>A consistent copy is written while the broker serves. It lies on the broker's machine, not on yours.</p>
    ${isUnderWay && html`<p class="muted" role="status">It goes on when this dialog is closed, and what comes of it is told on this page.</p>`}
    <${Field} label="New or empty folder, as an absolute path">${(id) => html`<input id=${id} value=${target} placeholder="/var/backups/vibemq/2026-11-22" spellcheck=${false} onInput=${(event) => setTarget(event.target.value.trim())} />`}</${Field}>
    <${Commands} admin=${`${adminLine(["backup"])} --url "\${VIBEMQ_URL:-vibemq://${location.hostname}}" -- ${quote(target || "FOLDER")}`} request=${{ method: "POST", path: "broker/backups", body }} />
    ${problem && html`<${Trouble} problem=${problem} />`}
  </${Modal}>`;
}

start(Broker);
