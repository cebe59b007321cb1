// Access: my own rights, users, and who may do what.
import { html, useRef, useState } from "../vendor/ui.js";
import { linkHere, params, setParams, stay } from "../parts/address.js";
import { isSuperuser, patch, post, put, remove, session } from "../parts/api.js";
import { Commands, Copy } from "../parts/command.js";
import { useData } from "../parts/data.js";
import { Form, Modal, ask, dialogCount, say } from "../parts/dialog.js";
import { DraftInput, Field, Segments, Tabs } from "../parts/filters.js";
import { start } from "../parts/frame.js";
import { Table } from "../parts/table.js";
import { Ago, At, Empty, Facts, Loaded, Name, Outside } from "../parts/text.js";
import { path } from "../pure/commands.js";
import { parseDuration } from "../pure/format.js";

function Access() {
  const { tab, user } = params.value;
  const here = session.value;
  const tabs = [["me", "My rights"], ...(isSuperuser() && here.auth_enabled ? [["users", "Users"]] : []), ...(isSuperuser() ? [["who", "Who may"]] : [])];
  const before = useRef("me");
  // Rights that are taken away meanwhile take no dialog away.
  const shown = dialogCount.value > 0 ? before.current : tabs.some(([key]) => key === tab) ? tab : "me";
  before.current = shown;
  return html`
    <div class="title"><h1>Access</h1></div>
    <${Tabs} label="Parts of this page" tabs=${tabs} />
    ${shown === "me" && html`<${Me} here=${here} />`}
    ${shown === "users" && html`<${Users} chosen=${user} />`}
    ${shown === "who" && html`<${WhoMay} />`}`;
}

function Me({ here }) {
  if (!here.auth_enabled && here.authenticated) {
    return html`<div class="card"><${Empty} title="This broker has one token and no users"><p>Whoever has the token of the setting <code>http.token</code> may do everything over HTTP; whoever reaches its other ports may do everything there.</p></${Empty}></div>`;
  }
  if (!here.auth_enabled) {
    return html`<div class="card"><${Empty} title="This broker asks nobody for a password">
      <p>Whoever reaches its ports may do everything. That is fine on one's own machine. Before others can reach it, add a superuser to the settings:</p>
      <pre class="code">${'[auth.users.root]\npassword_hash = "…"   # printed by: vibemq-admin user hash\nsuperuser = true'}</pre>
      <p>Then start the broker again. More users can be added on this page.</p>
    </${Empty}></div>`;
  }
  return html`
    <section class="card" aria-labelledby="me"><h2 id="me">Who I am</h2><${Facts} items=${[
      ["User", html`<${Outside} text=${here.user} isName />`],
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
    ${!chosen && html`<${Loaded} found=${found} what="Loading users">${(data) => html`<${Table} caption="Users" isQuiet columns=${USER_COLUMNS} rows=${data.items} keyOf=${({ user }) => user} next=${data.next}
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
      <${Field} label="on queue">${(id) => html`<${DraftInput} id=${id} type="search" value=${queue} data-filter autocomplete="off" spellcheck=${false} finish=${(text) => setParams({ queue: text, cursor: null })} />`}</${Field}>
      <button type="submit" class="button">Look</button>
    </form>
    ${!queue && html`<p class="muted">Name a queue, of which need not be any yet, to see who may do this on it and by which permission.</p>`}
    ${queue && html`<${Loaded} found=${found} what="Looking">${(data) => html`<${Table} caption="Users who may" isQuiet rows=${data.items} keyOf=${({ user }) => user} next=${data.next}
        columns=${[
          { key: "user", label: "User", isHead: true, cell: ({ user }) => html`<${Name} name=${user} />` },
          { key: "why", label: "Because of", cell: ({ superuser, rule }) => (superuser ? "is a superuser" : rule ? html`<${Rule} rule=${rule} />` : "–") },
        ]} empty=${html`<${Empty} title="Nobody may"><p>No user has <code>${action}</code> on <${Name} name=${queue} />.</p></${Empty}>`} />`}</${Loaded}>
      <${Commands} admin=${[["user", "check"], { names: [action, queue] }]} request=${{ path: "access", query }} />`}`;
}

// One user: what it may, its tokens, and what may be changed. Users of the settings file are shown, never changed.

function User({ name, onGone }) {
  const found = useData(path`users/${name}`, { every: 0 });
  const tokens = useData(path`users/${name}/tokens`, { every: 0 });
  const [dialog, setDialog] = useState(null);
  const done = () => {
    setDialog(null);
    found.refresh();
    tokens.refresh();
  };
  return html`<${Loaded} found=${found} what="Loading the user">${(user) => {
    const isKept = user.source === "store";
    return html`
      <section class="card" aria-labelledby="user"><h2 id="user">User <${Name} name=${user.user} />${user.superuser && html` <span class="pill">superuser</span>`}</h2>
        <${Facts} items=${[
          ["Kept in", isKept ? "the broker's store" : html`the settings file: change it there, then <code>vibemq-admin reload</code>`],
          ["Password", isKept ? null : html`stands in the settings: a hash that <code>vibemq-admin user hash</code> makes, or, of <code>auth.superuser</code>, the secret <code>auth.superuser_password</code>`],
          ["Added", user.created_at ? html`<${At} at=${user.created_at} />` : null],
          ["Changed", user.changed_at ? html`<${At} at=${user.changed_at} />` : null],
        ]} />
        ${isKept && html`<div class="buttons">
          <button type="button" class="button" onClick=${() => setDialog("password")}>Change the password…</button>
          ${isSuperuser() && html`<button type="button" class="button" onClick=${() => makeSuperuser(user, done)}>${user.superuser ? "Make an ordinary user" : "Make a superuser"}…</button>`}
          <span class="push"></span>
          ${isSuperuser() && user.user !== session.value?.user && html`<button type="button" class="button danger" onClick=${() => removeUser(user, onGone)}>Remove the user…</button>`}
        </div>`}
      </section>
      <section class="card" aria-labelledby="rights"><h2 id="rights">Permissions</h2>
        ${user.superuser
          ? html`<p>A superuser may do everything.</p>`
          : html`${user.permissions?.length ? html`<ul class="rules">${user.permissions.map((rule) => html`<li><${Rule} rule=${rule} />${isKept && isSuperuser() && html`<button type="button" class="button quiet slim" onClick=${() => revoke(user, rule, done)}>Take away…</button>`}</li>`)}</ul>` : html`<p class="muted">It may do nothing yet.</p>`}
            ${isKept && isSuperuser() && html`<div class="buttons"><button type="button" class="button" onClick=${() => setDialog("grant")}>Allow something…</button></div>`}`}
      </section>
      <${Loaded} found=${tokens} what="Loading tokens">${(data) => html`<${Table} caption="Access tokens" columns=${tokenColumns(name, done)} rows=${data.items} keyOf=${(token) => token.token_id}
        bar=${html`<button type="button" class="button slim" onClick=${() => setDialog("token")}>Make a token…</button>`} empty=${html`<p class="wait">This user has no access tokens.</p>`} />${data.next && html`<p class="muted">There are more tokens than these. <code>vibemq-admin token ls</code> lists all of them.</p>`}`}</${Loaded}>
      <${Commands} admin=${[["user", "show"], { names: [name] }]} request=${{ path: path`users/${name}` }} />
      ${dialog === "password" && html`<${ChangePassword} user=${name} onClose=${() => setDialog(null)} onDone=${done} />`}
      ${dialog === "grant" && html`<${Grant} user=${name} onClose=${() => setDialog(null)} onDone=${done} />`}
      ${dialog === "token" && html`<${MakeToken} user=${name} onClose=${() => setDialog(null)} onDone=${done} />`}`;
  }}</${Loaded}>`;
}

const tokenColumns = (user, done) => [
  { key: "token", label: "Token", isHead: true, isTight: true, cell: (token) => html`<${Outside} text=${token.token_id} mono />` },
  { key: "label", label: "For", cell: (token) => html`<${Outside} text=${token.label} isName />` },
  { key: "used", label: "Last use", isTight: true, cell: (token) => (token.used_at ? html`<${Ago} at=${token.used_at} />` : html`<span class="muted">never</span>`) },
  { key: "expires", label: "Ends", isTight: true, cell: (token) => (token.expires_at ? html`<${At} at=${token.expires_at} />` : html`<span class="muted">when revoked</span>`) },
  { key: "limits", label: "No more than", cell: (token) => (token.permissions?.length === 0 ? "nothing" : token.permissions ? html`${token.permissions.map((rule) => html`<div><${Rule} rule=${rule} /></div>`)}${token.permissions_left_out && html`<div>and ${token.permissions_left_out} more</div>`}` : html`<span class="muted">what the user may</span>`) },
  { key: "revoke", label: html`<span class="hidden-text">Revoke</span>`, isTight: true, cell: (token) => html`<button type="button" class="button danger slim" onClick=${() => revokeToken(user, token, done)}>Revoke…</button>` },
];

async function revokeToken(user, token, done) {
  const where = path`users/${user}/tokens/${token.token_id}`;
  if (await ask({
    title: "Revoke this token?",
    happens: html`<p>Token <code>${token.token_id}</code>${token.label && html` (<${Outside} text=${token.label} isName />)`} stops counting at once, and connections that logged in with it are closed.</p>`,
    reversible: "A revoked token cannot be made valid again; make another one.",
    button: "Revoke 1 token", isDanger: true,
    commands: { admin: [["token", "revoke"], { options: { user }, names: [token.token_id] }], request: { method: "DELETE", path: where } },
    act: () => remove(where),
  })) {
    say("The token is revoked.");
    done();
  }
}

async function revoke(user, rule, done) {
  const [kind, pattern] = resourceOf(rule);
  const where = path`users/${user.user}/permissions`;
  if (await ask({
    title: html`Take this away from <${Name} name=${user.user} />?`,
    happens: html`<p><${Rule} rule=${rule} />. It counts for the next request of every connection.</p>`,
    reversible: "It can be granted again.",
    button: "Take 1 permission away", isDanger: true,
    commands: { admin: [["user", "revoke"], { names: [user.user, rule.actions.includes("*") ? "all" : rule.actions.join(","), resourceText(kind, pattern)] }], request: { method: "DELETE", path: where, query: { [kind]: pattern } } },
    act: () => remove(where, { [kind]: pattern }),
  })) {
    say("The permission is taken away.");
    done();
  }
}

async function makeSuperuser(user, done) {
  const body = { superuser: !user.superuser };
  if (await ask({
    title: html`Make <${Name} name=${user.user} /> ${user.superuser ? "an ordinary user" : "a superuser"}?`,
    happens: user.superuser ? "From its next request on it may do what its permissions say, and no more." : "From its next request on it may do everything: read all messages, change all users, stop all work.",
    reversible: "It can be changed back.",
    button: user.superuser ? "Make 1 user ordinary" : "Make 1 user a superuser",
    isDanger: !user.superuser,
    commands: { admin: [["user", "change"], { options: body.superuser ? { superuser: true } : { "no-superuser": true }, names: [user.user] }], request: { method: "PATCH", path: path`users/${user.user}`, body } },
    act: () => patch(path`users/${user.user}`, body),
  })) done();
}

async function removeUser(user, onGone) {
  if (await ask({
    title: html`Remove user <${Name} name=${user.user} />?`,
    happens: "The user, its permissions and its access tokens go, and its connections are closed. Queues and messages stay.",
    reversible: "This cannot be taken back.",
    button: "Remove 1 user", typed: user.user, isDanger: true,
    commands: { admin: [["user", "rm"], { options: { yes: true }, names: [user.user] }], request: { method: "DELETE", path: path`users/${user.user}` } },
    act: () => remove(path`users/${user.user}`),
  })) {
    say(html`User <${Name} name=${user.user} /> is removed.`);
    onGone();
  }
}

// Forms for what the broker keeps: users, their permissions, their tokens. Passwords and tokens stand in no shown command.

const Password = ({ label, value, set, isFirst = false }) =>
  html`<${Field} label=${label}>${(id) => html`<input id=${id} type="password" autofocus=${isFirst} autocomplete="new-password" value=${value} required onInput=${(event) => set(event.target.value)} />`}</${Field}>`;

function AddUser({ onClose, onDone }) {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [superuser, setSuperuser] = useState(false);
  const isReady = /^[A-Za-z0-9._-]{1,64}$/.test(user) && password !== "" && password === again;
  return html`<${Form} title="Add a user" button=${`Add user ${user}`} isReady=${isReady} onClose=${onClose}
    act=${async () => { await post("users", { user, password, superuser }, { key: null }); say(html`User <${Name} name=${user} /> is added. It may do nothing until it is granted something.`); onDone(user); }}
    commands=${{ admin: [["user", "add"], { options: { superuser }, names: [user || "NAME"] }] }}><div class="form">
    <${Field} label="Name" hint="Letters, digits, and - _ ." wrong=${user && !/^[A-Za-z0-9._-]{1,64}$/.test(user) ? "1 to 64 letters, digits, and - _ ." : null}>${(id, about) => html`<input id=${id} aria-describedby=${about} autofocus autocomplete="off" autocapitalize="none" spellcheck=${false} value=${user} required onInput=${(event) => setUser(event.target.value.trim())} />`}</${Field}>
    <${Password} label="Password" value=${password} set=${setPassword} />
    <${Password} label="Password again" value=${again} set=${setAgain} />
    ${again !== "" && again !== password && html`<div class="wrong" role="alert">The two are different.</div>`}
    <label class="check"><input type="checkbox" checked=${superuser} onChange=${() => setSuperuser(!superuser)} />Superuser: may do everything</label>
  </div></${Form}>`;
}

function ChangePassword({ user, onClose, onDone }) {
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [keep, setKeep] = useState(false);
  return html`<${Form} title=${html`Change the password of <${Name} name=${user} />`} button="Change the password" isReady=${password !== "" && password === again} onClose=${onClose}
    act=${async () => { await put(path`users/${user}/password`, { password, keep_connections: keep }); say(html`The password of <${Name} name=${user} /> is changed.`); onDone(); }}
    commands=${{ admin: [["user", "passwd"], { options: { "keep-connections": keep }, names: [user] }] }}><div class="form">
    <${Password} label="New password" isFirst value=${password} set=${setPassword} />
    <${Password} label="New password again" value=${again} set=${setAgain} />
    ${again !== "" && again !== password && html`<div class="wrong" role="alert">The two are different.</div>`}
    <label class="check"><input type="checkbox" checked=${keep} onChange=${() => setKeep(!keep)} />Leave connections open that logged in with the old one</label>
  </div></${Form}>`;
}

/** One permission that is being written: {rule: null or {queues: pattern, actions}, fields: elements}. */
function useRule(isFirst) {
  const [kind, setKind] = useState("queues");
  const [pattern, setPattern] = useState("");
  const [actions, setActions] = useState(new Set());
  const chosen = ACTIONS[kind].filter((action) => actions.has(action));
  const toggle = (action) => {
    const made = new Set(actions);
    if (!made.delete(action)) made.add(action);
    setActions(made);
  };
  const fields = html`<div class="field"><span class="label">On</span><${Segments} label="On what" value=${kind} options=${KINDS.map(([key, text]) => [key, text.split(/\W/)[0]])} onChange=${(value) => { setKind(value); setActions(new Set(value === "queues" ? [] : ACTIONS[value])); }} /></div>
    <${Field} label=${KINDS.find(([key]) => key === kind)?.[1]} hint="A name, or a pattern: * stands for any characters.">${(id, about) => html`<input id=${id} aria-describedby=${about} autofocus=${isFirst} autocomplete="off" spellcheck=${false} value=${pattern} onInput=${(event) => setPattern(event.target.value.trim())} />`}</${Field}>
    <fieldset><legend>Actions</legend><div class="checks">${ACTIONS[kind].map((action) => html`<label class="check"><input type="checkbox" checked=${actions.has(action)} onChange=${() => toggle(action)} />${action}<span class="muted small">${MEANINGS[action]}</span></label>`)}</div></fieldset>`;
  const clear = () => { setPattern(""); setActions(new Set()); };
  return { kind, pattern, chosen, fields, clear, rule: pattern && chosen.length ? { [kind]: pattern, actions: chosen } : null };
}

function Grant({ user, onClose, onDone }) {
  const { kind, pattern, chosen, fields, rule } = useRule(true);
  const body = { [kind]: pattern, actions: chosen, only: chosen };
  return html`<${Form} title=${html`Allow <${Name} name=${user} /> something`} button="Allow it" isReady=${rule !== null} onClose=${onClose}
    act=${async (key) => { await post(path`users/${user}/permissions`, body, { key }); say(html`<${Name} name=${user} /> may ${chosen.join(", ")} on <${Name} name=${pattern} />.`); onDone(); }}
    commands=${{ admin: [["user", "grant"], { names: [user, chosen.join(",") || "ACTIONS", resourceText(kind, pattern || "QUEUES")] }], request: { method: "POST", path: path`users/${user}/permissions`, body } }}><div class="form">
    ${fields}
    <p class="muted small">What is allowed on the same pattern already stays.</p>
  </div></${Form}>`;
}

function MakeToken({ user, onClose, onDone }) {
  const [label, setLabel] = useState("");
  const [expires, setExpires] = useState("90d");
  const [made, setMade] = useState(null);
  const [kept, setKept] = useState(null);
  const next = useRule(false);
  // Null: all that the user may. What stands in the fields counts without a press of "Add".
  const rules = kept && [...kept, ...(next.rule ? [next.rule] : [])];
  const body = { label, ...(rules ? { permissions: rules } : {}) };
  const ms = expires.trim() === "" ? undefined : /^\d+$/.test(expires.trim()) ? null : parseDuration(expires);
  if (made) {
    return html`<${Modal} title="The token, only this once" onClose=${onDone} footer=${html`<button type="button" class="button main" onClick=${onDone}>I have it</button>`}>
      <p>${rules ? html`Whoever has it may do this, as far as <${Name} name=${user} /> may:` : html`Whoever has it may do what <${Name} name=${user} /> may.`}</p>${rules && html`<${Rules} rules=${rules} />`}<p>The broker keeps a hash of it and cannot show it again.</p>
      <div class="code wrapped" data-keep="once" role="region" aria-label="Token" tabindex="0">${made.token}</div>
      <div class="buttons"><${Copy} text=${made.token} what="the token" label="Copy the token" /></div>
    </${Modal}>`;
  }
  return html`<${Form} title=${html`Make an access token for <${Name} name=${user} />`} button="Make a token" isReady=${ms !== null && rules?.length !== 0} onClose=${onClose}
    act=${async () => setMade(await post(path`users/${user}/tokens`, { ...body, ...(ms === undefined ? {} : { expires_ms: ms }) }, { key: null }))}
    commands=${{ admin: [["token", "create"], { options: { user, label, expires: expires.trim(), allow: rules?.map(allowText) } }] }}><div class="form">
    <${Field} label="What it is for">${(id) => html`<input id=${id} autofocus value=${label} maxlength="64" onInput=${(event) => setLabel(event.target.value)} />`}</${Field}>
    <${Field} label="Valid for" hint="As 90d or 12h. Empty: until it is revoked." wrong=${ms === null ? "Write a number and its unit." : null}>${(id, about) => html`<input id=${id} aria-describedby=${about} value=${expires} onInput=${(event) => setExpires(event.target.value)} />`}</${Field}>
    <div class="field"><span class="label">It allows</span><${Segments} label="What the token allows" value=${kept ? "part" : "all"} options=${[["all", "All that the user may"], ["part", "Only a part"]]} onChange=${(value) => setKept(value === "all" ? null : [])} /></div>
    ${kept && html`<p class="muted small">Only what both the user and the token may is allowed.</p>
      ${kept.length > 0 && html`<ul class="rules">${kept.map((rule) => html`<li><${Rule} rule=${rule} /><button type="button" class="button quiet slim" onClick=${() => setKept(kept.filter((one) => one !== rule))}>Leave out</button></li>`)}</ul>`}
      ${next.fields}
      <div class="buttons"><button type="button" class="button slim" disabled=${!next.rule} onClick=${() => { setKept(rules); next.clear(); }}>Add another</button></div>`}
  </div></${Form}>`;
}

// Permissions as the broker writes them: one of queues, groups or transactions, and actions.

const ACTIONS = {
  queues: ["publish", "subscribe", "create", "delete", "purge", "inspect", "list", "manage"],
  groups: ["manage"],
  transactions: ["transact"],
};
const MEANINGS = {
  publish: "publish messages",
  subscribe: "consume, read by ranges, create durable groups",
  create: "create queues, change their options",
  delete: "delete queues",
  purge: "remove messages and dead letters",
  inspect: "read options, figures and dead letters",
  list: "see names in lists",
  manage: "delete, move and limit groups of others",
  transact: "stage and commit as the application",
};
const KINDS = [["queues", "Queues"], ["groups", "Groups, as QUEUE/GROUP"], ["transactions", "Transactions of applications"]];

/** [kind, pattern] of a rule: {queues: "orders.*", actions} or {kind: "queue", pattern, actions}. */
function resourceOf(rule) {
  if (rule.pattern !== undefined) return [`${rule.kind ?? "queue"}s`, rule.pattern];
  return Object.entries(rule).find(([name]) => name in ACTIONS) ?? ["queues", "*"];
}

/** As the command line writes it: a queue by itself, others with their kind in front. */
const resourceText = (kind, pattern) => (kind === "queues" ? pattern : `${kind}:${pattern}`);

/** A rule for `token create --allow`. */
function allowText(rule) {
  const [kind, pattern] = resourceOf(rule);
  return `${resourceText(kind, pattern)}=${rule.actions.join(",")}`;
}

const actionsText = (actions) => (actions.includes("*") ? "everything" : actions.join(", "));

function Rule({ rule }) {
  const [kind, pattern] = resourceOf(rule);
  return html`<span><b>${actionsText(rule.actions)}</b> on ${kind === "queues" ? "" : `${kind} `}<${Name} name=${pattern} /></span>`;
}

function Rules({ rules, none = "Nothing." }) {
  if (!rules?.length) return html`<p class="muted">${none}</p>`;
  return html`<ul class="rules">${rules.map((rule) => html`<li><${Rule} rule=${rule} /></li>`)}</ul>`;
}

start(Access);
