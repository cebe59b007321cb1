// Forms for what the broker keeps: users, their permissions, their tokens. Passwords and tokens stand in no shown command.
import { html, useState } from "../../vendor/ui.js";
import { post, put } from "../../parts/api.js";
import { Commands, Copy } from "../../parts/command.js";
import { Modal, say } from "../../parts/dialog.js";
import { Field, Segments } from "../../parts/filters.js";
import { Trouble } from "../../parts/states.js";
import { Name } from "../../parts/text.js";
import { path } from "../../pure/commands.js";
import { parseDuration } from "../../pure/format.js";
import { ACTIONS, allowText, KINDS, MEANINGS, resourceText, Rule, Rules } from "./rules.js";

/** A dialog with one request. `send` does it; what it throws is shown, and the dialog stays. */
function Form({ title, button, isReady = true, send, onDone, onClose, commands, children }) {
  const [problem, setProblem] = useState(null);
  const [isUnderWay, setUnderWay] = useState(false);
  const submit = async () => {
    if (!isReady || isUnderWay) return;
    setUnderWay(true);
    setProblem(null);
    try {
      onDone(await send());
    } catch (found) {
      setProblem(found);
      setUnderWay(false);
    }
  };
  const footer = html`<button type="button" class="button" onClick=${onClose}>Cancel</button><button type="submit" class="button main" disabled=${!isReady || isUnderWay}>${button}</button>`;
  return html`<${Modal} title=${title} onClose=${onClose} onSubmit=${submit} footer=${footer}><div class="form">${children}</div>
    ${commands && html`<${Commands} ...${commands} />`}${problem && html`<${Trouble} problem=${problem} />`}</${Modal}>`;
}

const Password = ({ label, value, set, isFirst = false }) =>
  html`<${Field} label=${label}>${(id) => html`<input id=${id} type="password" autofocus=${isFirst} autocomplete="new-password" value=${value} required onInput=${(event) => set(event.target.value)} />`}</${Field}>`;

export function AddUser({ onClose, onDone }) {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [superuser, setSuperuser] = useState(false);
  const isReady = /^[A-Za-z0-9._-]{1,64}$/.test(user) && password !== "" && password === again;
  return html`<${Form} title="Add a user" button=${`Add user ${user}`} isReady=${isReady} onClose=${onClose}
    send=${() => post("users", { user, password, superuser }, { key: null })} onDone=${() => { say(`User ${user} is added. It may do nothing until it is granted something.`); onDone(user); }}
    commands=${{ admin: [["user", "add"], { options: { superuser }, names: [user || "NAME"] }] }}>
    <${Field} label="Name" hint="Letters, digits, and - _ ." wrong=${user && !/^[A-Za-z0-9._-]{1,64}$/.test(user) ? "1 to 64 letters, digits, and - _ ." : null}>${(id, about) => html`<input id=${id} aria-describedby=${about} autofocus autocomplete="off" autocapitalize="none" spellcheck=${false} value=${user} required onInput=${(event) => setUser(event.target.value.trim())} />`}</${Field}>
    <${Password} label="Password" value=${password} set=${setPassword} />
    <${Password} label="Password again" value=${again} set=${setAgain} />
    ${again !== "" && again !== password && html`<div class="wrong" role="alert">The two are different.</div>`}
    <label class="check"><input type="checkbox" checked=${superuser} onChange=${() => setSuperuser(!superuser)} />Superuser: may do everything</label>
  </${Form}>`;
}

export function ChangePassword({ user, onClose, onDone }) {
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [keep, setKeep] = useState(false);
  return html`<${Form} title=${`Change the password of ${user}`} button="Change the password" isReady=${password !== "" && password === again} onClose=${onClose}
    send=${() => put(path`users/${user}/password`, { password, keep_connections: keep })} onDone=${() => { say(`The password of ${user} is changed.`); onDone(); }}
    commands=${{ admin: [["user", "passwd"], { options: { "keep-connections": keep }, names: [user] }] }}>
    <${Password} label="New password" isFirst=${true} value=${password} set=${setPassword} />
    <${Password} label="New password again" value=${again} set=${setAgain} />
    ${again !== "" && again !== password && html`<div class="wrong" role="alert">The two are different.</div>`}
    <label class="check"><input type="checkbox" checked=${keep} onChange=${() => setKeep(!keep)} />Leave connections open that logged in with the old one</label>
  </${Form}>`;
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
    <${Field} label=${KINDS.find(([key]) => key === kind)[1]} hint="A name, or a pattern: * stands for any characters.">${(id, about) => html`<input id=${id} aria-describedby=${about} autofocus=${isFirst} autocomplete="off" spellcheck=${false} value=${pattern} onInput=${(event) => setPattern(event.target.value.trim())} />`}</${Field}>
    <fieldset><legend>Actions</legend><div class="checks">${ACTIONS[kind].map((action) => html`<label class="check"><input type="checkbox" checked=${actions.has(action)} onChange=${() => toggle(action)} />${action}<span class="muted small">${MEANINGS[action]}</span></label>`)}</div></fieldset>`;
  const clear = () => { setPattern(""); setActions(new Set()); };
  return { kind, pattern, chosen, fields, clear, rule: pattern && chosen.length ? { [kind]: pattern, actions: chosen } : null };
}

export function Grant({ user, onClose, onDone }) {
  const { kind, pattern, chosen, fields, rule } = useRule(true);
  const body = { [kind]: pattern, actions: chosen, only: chosen };
  return html`<${Form} title=${`Allow ${user} something`} button="Allow it" isReady=${rule !== null} onClose=${onClose}
    send=${() => post(path`users/${user}/permissions`, body)} onDone=${() => { say(`${user} may ${chosen.join(", ")} on ${pattern}.`); onDone(); }}
    commands=${{ admin: [["user", "grant"], { names: [user, chosen.join(",") || "ACTIONS", resourceText(kind, pattern || "QUEUES")] }], request: { method: "POST", path: path`users/${user}/permissions`, body } }}>
    ${fields}
    <p class="muted small">What is allowed on the same pattern already stays.</p>
  </${Form}>`;
}

export function MakeToken({ user, onClose, onDone }) {
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
      <div class="code wrapped" role="region" aria-label="Token" tabindex="0">${made.token}</div>
      <div class="buttons"><${Copy} text=${made.token} what="the token" label="Copy the token" /></div>
    </${Modal}>`;
  }
  return html`<${Form} title=${`Make an access token for ${user}`} button="Make a token" isReady=${ms !== null && rules?.length !== 0} onClose=${onClose}
    send=${() => post(path`users/${user}/tokens`, { ...body, ...(ms === undefined ? {} : { expires_ms: ms }) }, { key: null })} onDone=${setMade}
    commands=${{ admin: [["token", "create"], { options: { user, label, expires: expires.trim(), allow: rules?.map(allowText) } }] }}>
    <${Field} label="What it is for">${(id) => html`<input id=${id} autofocus value=${label} maxlength="64" onInput=${(event) => setLabel(event.target.value)} />`}</${Field}>
    <${Field} label="Valid for" hint="As 90d or 12h. Empty: until it is revoked." wrong=${ms === null ? "Write a number and its unit." : null}>${(id, about) => html`<input id=${id} aria-describedby=${about} value=${expires} onInput=${(event) => setExpires(event.target.value)} />`}</${Field}>
    <div class="field"><span class="label">It allows</span><${Segments} label="What the token allows" value=${kept ? "part" : "all"} options=${[["all", "All that the user may"], ["part", "Only a part"]]} onChange=${(value) => setKept(value === "all" ? null : [])} /></div>
    ${kept && html`<p class="muted small">Only what both the user and the token may is allowed.</p>
      ${kept.length > 0 && html`<ul class="rules">${kept.map((rule) => html`<li><${Rule} rule=${rule} /><button type="button" class="button quiet slim" onClick=${() => setKept(kept.filter((one) => one !== rule))}>Leave out</button></li>`)}</ul>`}
      ${next.fields}
      <div class="buttons"><button type="button" class="button slim" disabled=${!next.rule} onClick=${() => { setKept(rules); next.clear(); }}>Add another</button></div>`}
  </${Form}>`;
}
