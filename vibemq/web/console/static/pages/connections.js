// Connections: who is there, what they hold, and hanging up on them.
import { html, useState } from "../vendor/ui.js";
import { link, params, setParams } from "../parts/address.js";
import { isSuperuser, mayDo, remove, session } from "../parts/api.js";
import { Commands } from "../parts/command.js";
import { useData, useSteady } from "../parts/data.js";
import { Form, say } from "../parts/dialog.js";
import { Field, Filters } from "../parts/filters.js";
import { start } from "../parts/frame.js";
import { Ago, At, Count, Empty, Facts, Loaded, Name, Outside, Size } from "../parts/text.js";
import { Table } from "../parts/table.js";
import { path } from "../pure/commands.js";
import { counted } from "../pure/format.js";
import { HELD } from "./shared/state.js";

const LIMIT = 100;
const PROTOCOLS = [["", "Any protocol"], ["native", "native"], ["omq", "omq"], ["blazingmq", "blazingmq"], ["eventmesh", "eventmesh"], ["eventmesh-http", "eventmesh-http"]];

const inBytes = (bytes) => html`<${Size} bytes=${bytes === null || bytes === undefined ? null : Math.round(bytes)} />`;
const notReading = (row) => (row.stuck_since ? html`<span class="pill bad"><${Ago} at=${row.stuck_since} suffix="" /></span>` : html`<span class="muted">–</span>`);

function columns(close) {
  return [
    { key: "name", label: "Client", sort: "name", isHead: true, cell: ({ connection_id: id, name }) => html`<a data-open href=${link("connections", { id })}><${Outside} text=${name || "unnamed"} isName /></a>` },
    { key: "user", label: "User", sort: "user", isTight: true, cell: ({ user }) => html`<${Outside} text=${user} isName />` },
    { key: "protocol", label: "Protocol", sort: "protocol", isTight: true, cell: ({ protocol, tls }) => html`${protocol}${tls ? html` <span class="muted">TLS</span>` : ""}` },
    { key: "remote", label: "From", sort: "remote", isTight: true, cell: ({ remote }) => html`<${Outside} text=${remote} mono />` },
    { key: "consumers", label: "Consumers", sort: "consumers", isNum: true, cell: ({ consumers }) => html`<${Count} value=${consumers ?? null} />` },
    { key: "unsettled", label: "Unsettled", sort: "unsettled", isNum: true, title: "Messages that it holds", cell: ({ unsettled }) => html`<${Count} value=${unsettled ?? null} />` },
    { key: "stuck", label: "Not reading since", sort: "stuck_since", isTight: true, cell: notReading },
    { key: "in", label: "In/s", sort: "bytes_in_rate", isNum: true, title: "Bytes received in a second", cell: (row) => inBytes(row.bytes_in_rate) },
    { key: "out", label: "Out/s", sort: "bytes_out_rate", isNum: true, title: "Bytes sent in a second", cell: (row) => inBytes(row.bytes_out_rate) },
    { key: "since", label: "Connected", sort: "since", isTight: true, cell: (row) => html`<${Ago} at=${row.since} suffix="" />` },
    { key: "id", label: "Id", isTight: true, cell: ({ connection_id }) => html`<${Outside} text=${connection_id} mono />` },
    close && { key: "close", label: html`<span class="hidden-text">Close</span>`, isTight: true, cell: (row) => html`<button type="button" class="button danger slim" onClick=${() => close(row)}>Close…</button>` },
  ];
}

const Connections = () => (params.value.id ? html`<${One} id=${params.value.id} />` : html`<${All} />`);

// Who is no superuser is shown the own connections, and closes these.
const ownName = () => (isSuperuser() ? undefined : session.value?.user);

function All() {
  const { name, protocol, sort, cursor } = params.value;
  const mayAll = isSuperuser();
  const user = mayAll ? params.value.user : ownName();
  const query = { name, user, protocol, ...(sort ? { sort: sort.replace(/^-/, ""), descending: sort.startsWith("-") } : {}), limit: LIMIT, cursor };
  const found = useData("connections", { query, topic: !mayAll || name || user || protocol || sort || cursor ? null : "connections", merge: (frame, before) => ({ ...before, items: Array.isArray(frame) ? frame : (frame.connections ?? frame.items ?? before.items) }) });
  const rows = useSteady(found.data?.items, ({ connection_id }) => connection_id, `${name}${user}${protocol}${sort}${cursor}${found.isOld}`);
  const [closing, setClosing] = useState(null);
  const isFiltered = Boolean(name || (mayAll && user) || protocol);
  return html`
    <div class="title"><h1>Connections</h1></div>
    ${!mayAll && html`<p class="lead">These are your own: to see all, one must be a superuser.</p>`}
    <${Filters} fields=${[
      { name: "name", label: "Client contains", size: 20 },
      mayAll && { name: "user", label: "User", size: 14 },
      { name: "protocol", label: "Protocol", kind: "select", options: PROTOCOLS },
    ].filter(Boolean)} />
    <${Loaded} found=${found} what="Loading connections">${(data) => html`<${Table} isOld=${found.isOld} caption="Connections" isQuiet columns=${columns(mayDo("connections.close") ? setClosing : null)} rows=${rows} keyOf=${({ connection_id }) => connection_id}
      name="connections" hiddenAtFirst="id" sort=${sort} onSort=${(value) => setParams({ sort: value, cursor: null })} next=${data.next}
      empty=${isFiltered
        ? html`<${Empty} title="No connection fits this filter"><p><button type="button" class="button slim" onClick=${() => setParams({ name: null, user: null, protocol: null, cursor: null })}>Show all connections</button></p></${Empty}>`
        : html`<${Empty} title=${mayAll ? "Nobody is connected" : "None of your clients is connected"}><p>${mayAll && html`Clients connect to the listeners that the page <a href="./broker">Broker</a> shows. `}To see one here:</p><pre class="code">vibemq sub orders --follow</pre></${Empty}>`} />`}</${Loaded}>
    <${Commands} admin=${[["connections", "ls"], { options: { sort, user, protocol, name } }]} request=${{ path: "connections", query }} />
    ${closing && html`<${CloseDialog} row=${closing} onClose=${() => setClosing(null)} onDone=${() => { setClosing(null); found.refresh(); }} />`}`;
}

/** @type {Columns<Row<"connections/{connection_id}/consumers">>} */
const CONSUMERS = [
  { key: "queue", label: "Queue", isHead: true, cell: ({ queue }) => html`<a data-open href=${link("queue", { queue })}><${Name} name=${queue} /></a>` },
  ...HELD,
];

function One({ id }) {
  const user = ownName();
  const found = useData("connections", { query: { connection_id: id, user } });
  const query = { user, limit: LIMIT, cursor: params.value.cursor };
  const place = path`connections/${id}/consumers`;
  const consumers = useData(place, { query });
  // Its row, which is gone from the answers as soon as the connection is.
  const [closing, setClosing] = useState(null);
  return html`
    <nav class="crumbs" aria-label="Where this is"><a href="./connections">Connections</a><span aria-hidden="true">/</span></nav>
    <${Loaded} found=${found} what="Loading the connection">${({ items: [row] }) => html`
      <div class="title"><h1>${row ? html`Connection of <${Outside} text=${row.name || row.user || "a client without a name"} isName />` : "Connection"}</h1><span class="push"></span>
        ${row && mayDo("connections.close") && html`<button type="button" class="button danger" onClick=${() => setClosing(row)}>Close…</button>`}</div>
      ${row
        ? html`<section class="card"><h2>Facts</h2><${Facts} items=${[
            ["User", html`<${Outside} text=${row.user} isName />`],
            ["Protocol", `${row.protocol}${row.tls ? ", TLS" : ""}`],
            ["From", html`<${Outside} text=${row.remote} mono />`],
            ["Connected", html`<${At} at=${row.since} />`],
            ["Unsettled", counted(row.unsettled ?? 0, "message")],
            ["Not reading since", notReading(row)],
            ["Received", html`${inBytes(row.bytes_in_rate)} a second, ${inBytes(row.bytes_received)} in all`],
            ["Sent", html`${inBytes(row.bytes_out_rate)} a second, ${inBytes(row.bytes_sent)} in all`],
            ["Id", html`<${Outside} text=${id} mono />`],
          ]} /></section>
          <${Loaded} found=${consumers} what="Loading its consumers">${(data) => html`<${Table} caption="What it consumes" columns=${CONSUMERS} rows=${data.items} keyOf=${({ consumer }) => consumer} next=${data.next}
            empty=${html`<p class="wait">It consumes nothing.</p>`} />`}</${Loaded}>`
        : html`<div class="card"><${Empty} title="This connection has gone"><p>Its client has left or was disconnected, or ${isSuperuser() ? "there was none with this id" : "it is not yours"}. <a href="./connections">All connections</a></p></${Empty}></div>`}
    `}</${Loaded}>
    ${closing && html`<${CloseDialog} row=${closing} onClose=${() => setClosing(null)} onDone=${() => { setClosing(null); found.refresh(); }} />`}
    <${Commands} admin=${[["connections", "consumers"], { options: { user }, names: [id] }]} request=${{ path: place, query }} />`;
}

/** What a client holds goes back to its queues; the question is whether that counts as a failed attempt. */
function CloseDialog({ row, onClose, onDone }) {
  const [mode, setMode] = useState("release");
  const [reason, setReason] = useState("");
  const where = path`connections/${row.connection_id}`;
  const query = { mode, reason, user: ownName() };
  const held = row.unsettled ?? null;
  const act = async () => {
    await remove(where, query);
    say("The connection is closed.");
    onDone();
  };
  return html`<${Form} title="Close this connection?" button="Close 1 connection" isDanger onClose=${onClose} act=${act}
    commands=${{ admin: [["connections", "close"], { options: { user: query.user, fail: mode === "fail", reason }, names: [row.connection_id] }], request: { method: "DELETE", path: where, query } }}>
    <p>Client <b><${Outside} text=${row.name} isName /></b> of user <b><${Outside} text=${row.user} isName /></b> from <${Outside} text=${row.remote} mono /> is told why and disconnected. It may connect again; to keep it out, revoke its token or change its password.</p>
    ${held !== 0 && html`<fieldset class="form"><legend>${held === null ? "What it holds unsettled" : `The ${counted(held, "message")} that it holds`}</legend>
      <label class="check"><input type="radio" name="mode" checked=${mode === "release"} onChange=${() => setMode("release")} /><span><b>Give back</b>: no attempt is counted</span></label>
      <label class="check"><input type="radio" name="mode" checked=${mode === "fail"} onChange=${() => setMode("fail")} /><span><b>Count as failed</b>: one attempt less is left, and the last one makes a dead letter</span></label>
    </fieldset>`}
    <${Field} label="Why; the client is told">${(id) => html`<input id=${id} maxlength="200" value=${reason} onInput=${(event) => setReason(event.target.value)} />`}</${Field}>
  </${Form}>`;
}

start(Connections);
