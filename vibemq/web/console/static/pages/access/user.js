// One user: what it may, its tokens, and what may be changed. Users of the settings file are shown, never changed.
import { html, useState } from "../../vendor/ui.js";
import { patch, remove } from "../../parts/api.js";
import { Commands } from "../../parts/command.js";
import { useData } from "../../parts/data.js";
import { ask, say } from "../../parts/dialog.js";
import { isSuperuser, session } from "../../parts/session.js";
import { Loaded } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { Ago, At, Facts, Name, Outside } from "../../parts/text.js";
import { path } from "../../pure/commands.js";
import { AddUser, ChangePassword, Grant, MakeToken } from "./forms.js";
import { resourceOf, resourceText, Rule } from "./rules.js";

export { AddUser };

export function User({ name, onGone }) {
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
          ["Password", isKept ? null : html`its hash is made by <code>vibemq-admin user hash</code>`],
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
  { key: "token", label: "Token", isHead: true, isTight: true, cell: (token) => html`<${Outside} text=${token.token_id} mono=${true} />` },
  { key: "label", label: "For", cell: (token) => html`<${Outside} text=${token.label} />` },
  { key: "used", label: "Last use", isTight: true, cell: (token) => (token.used_at ? html`<${Ago} at=${token.used_at} />` : html`<span class="muted">never</span>`) },
  { key: "expires", label: "Ends", isTight: true, cell: (token) => (token.expires_at ? html`<${At} at=${token.expires_at} />` : html`<span class="muted">when revoked</span>`) },
  { key: "limits", label: "No more than", cell: (token) => (token.permissions ? html`${token.permissions.map((rule) => html`<div><${Rule} rule=${rule} /></div>`)}${token.permissions_left_out && html`<div>and ${token.permissions_left_out} more</div>`}` : html`<span class="muted">what the user may</span>`) },
  { key: "revoke", label: html`<span class="hidden-text">Revoke</span>`, isTight: true, cell: (token) => html`<button type="button" class="button danger slim" onClick=${() => revokeToken(user, token, done)}>Revoke…</button>` },
];

async function revokeToken(user, token, done) {
  const where = path`users/${user}/tokens/${token.token_id}`;
  if (await ask({
    title: "Revoke this token?",
    happens: html`<p>Token <code>${token.token_id}</code>${token.label && html` (<${Outside} text=${token.label} />)`} stops counting at once, and connections that logged in with it are closed.</p>`,
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
    title: `Take this away from ${user.user}?`,
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
    title: user.superuser ? `Make ${user.user} an ordinary user?` : `Make ${user.user} a superuser?`,
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
    title: `Remove user ${user.user}?`,
    happens: "The user, its permissions and its access tokens go, and its connections are closed. Queues and messages stay.",
    reversible: "This cannot be taken back.",
    button: "Remove 1 user", typed: user.user, isDanger: true,
    commands: { admin: [["user", "rm"], { options: { yes: true }, names: [user.user] }], request: { method: "DELETE", path: path`users/${user.user}` } },
    act: () => remove(path`users/${user.user}`),
  })) {
    say(`User ${user.user} is removed.`);
    onGone();
  }
}
