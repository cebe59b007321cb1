// Access: my own rights, users, and who may do what.
import { html, useState } from "../vendor/ui.js";
import { linkHere, params, setParams, stay } from "../parts/address.js";
import { Commands } from "../parts/command.js";
import { useData } from "../parts/data.js";
import { DraftInput, Field, Tabs } from "../parts/filters.js";
import { start } from "../parts/frame.js";
import { isSuperuser, session } from "../parts/session.js";
import { Empty, Loaded } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { Ago, Facts, Name, Outside } from "../parts/text.js";
import { ACTIONS, AddUser, Rule, Rules, User } from "./access/user.js";

function Access() {
  const { tab, user } = params.value;
  const here = session.value;
  const tabs = [["me", "My rights"], ...(isSuperuser() && here.auth_enabled ? [["users", "Users"]] : []), ...(isSuperuser() ? [["who", "Who may"]] : [])];
  const shown = tabs.some(([key]) => key === tab) ? tab : "me";
  return html`
    <div class="title"><h1>Access</h1></div>
    <${Tabs} label="Parts of this page" tabs=${tabs} />
    ${shown === "me" && html`<${Me} here=${here} />`}
    ${shown === "users" && html`<${Users} chosen=${user} />`}
    ${shown === "who" && html`<${WhoMay} />`}`;
}

function Me({ here }) {
  if (!here.auth_enabled) {
    return html`<div class="card"><${Empty} title="This broker asks nobody for a password">
      <p>Whoever reaches its ports may do everything. That is fine on one's own machine. Before others can reach it, add a superuser to the settings:</p>
      <pre class="code">${'[auth.users.root]\npassword_hash = "…"   # printed by: vibemq-admin user hash\nsuperuser = true'}</pre>
      <p>Then start the broker again. More users can be added on this page.</p>
    </${Empty}></div>`;
  }
  return html`
    <section class="card" aria-labelledby="me"><h2 id="me">Who I am</h2><${Facts} items=${[
      ["User", html`<${Outside} text=${here.user} />`],
      ["Superuser", here.superuser ? "yes: may do everything" : "no"],
      ["Logged in with", here.token ? html`an access token, <code>${here.token}</code>` : "a password"],
    ]} /></section>
    ${!here.superuser && html`<section class="card" aria-labelledby="mine"><h2 id="mine">What I may</h2>
      <${Rules} rules=${here.permissions} none="Nothing. Ask a superuser of this broker for permissions." />
      ${here.narrowed_to && html`<p>The token allows no more than:</p><${Rules} rules=${here.narrowed_to} />`}
      <p class="muted">What is missing here, a superuser grants with <code>vibemq-admin user grant</code> or on this page.</p></section>`}
    <${Commands} admin=${[["whoami"]]} request=${{ path: "session" }} />
    ${!here.token && here.user && html`<${User} name=${here.user} onGone=${() => {}} />`}`;
}

/** @type {Columns<Row<"users">>} */
const USER_COLUMNS = [
  { key: "user", label: "User", isHead: true, cell: ({ user }) => html`<a data-open href=${linkHere({ user })} onClick=${(event) => stay(event, { user })}><${Name} name=${user} /></a>` },
  { key: "super", label: "Superuser", isTight: true, cell: ({ superuser }) => (superuser ? "yes" : html`<span class="muted">no</span>`) },
  { key: "source", label: "Kept in", isTight: true, cell: ({ source }) => (source === "store" ? "the broker's store" : "the settings file") },
  { key: "created", label: "Added", isTight: true, cell: ({ created_at }) => html`<${Ago} at=${created_at} />` },
  { key: "changed", label: "Changed", isTight: true, cell: ({ changed_at }) => html`<${Ago} at=${changed_at} />` },
];

function Users({ chosen }) {
  const query = { limit: 100, cursor: params.value.cursor };
  const found = useData("users", { query, every: 0 });
  const [isAdding, setAdding] = useState(false);
  return html`
    ${chosen && html`<p><a href=${linkHere({ user: null })} onClick=${(event) => stay(event, { user: null })}>← All users</a></p><${User} key=${chosen} name=${chosen} onGone=${() => { setParams({ user: null }); found.refresh(); }} />`}
    ${!chosen && html`<${Loaded} found=${found} what="Loading users">${(data) => html`<${Table} caption="Users" isQuiet=${true} columns=${USER_COLUMNS} rows=${data.items} keyOf=${({ user }) => user} next=${data.next}
        bar=${html`<button type="button" class="button main slim" onClick=${() => setAdding(true)}>Add a user…</button>`} empty=${html`<p class="wait">There are no users.</p>`} />`}</${Loaded}>
      <${Commands} admin=${[["user", "ls"]]} request=${{ path: "users", query }} />`}
    ${isAdding && html`<${AddUser} onClose=${() => setAdding(false)} onDone=${(user) => { setAdding(false); found.refresh(); setParams({ user }); }} />`}`;
}

function WhoMay() {
  const { action = "publish", queue = "" } = params.value;
  const query = { action, queues: queue, limit: 100, cursor: params.value.cursor };
  const found = useData(queue ? "access" : null, { query, every: 0 });
  return html`
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Field} label="Who may">${(id) => html`<select id=${id} value=${action} onChange=${(event) => setParams({ action: event.target.value, cursor: null })}>${ACTIONS.queues.map((one) => html`<option value=${one} selected=${one === action}>${one}</option>`)}</select>`}</${Field}>
      <${Field} label="on queue">${(id) => html`<${DraftInput} id=${id} type="search" value=${queue} data-filter=${true} autocomplete="off" spellcheck=${false} finish=${(text) => setParams({ queue: text, cursor: null })} />`}</${Field}>
      <button type="submit" class="button">Look</button>
    </form>
    ${!queue && html`<p class="muted">Name a queue, of which need not be any yet, to see who may do this on it and by which permission.</p>`}
    ${queue && html`<${Loaded} found=${found} what="Looking">${(data) => html`<${Table} caption="Users who may" isQuiet=${true} rows=${data.items} keyOf=${({ user }) => user} next=${data.next}
        columns=${[
          { key: "user", label: "User", isHead: true, cell: ({ user }) => html`<${Name} name=${user} />` },
          { key: "why", label: "Because of", cell: ({ superuser, rule }) => (superuser ? "is a superuser" : rule ? html`<${Rule} rule=${rule} />` : "–") },
        ]} empty=${html`<${Empty} title="Nobody may"><p>No user has <code>${action}</code> on <${Name} name=${queue} />.</p></${Empty}>`} />`}</${Loaded}>
      <${Commands} admin=${[["user", "check"], { names: [action, queue] }]} request=${{ path: "access", query }} />`}`;
}

start(Access);
