// The options of a queue: value, default, meaning, what a change does; and the form, which shows what it would change.
import { html, useState } from "../../vendor/ui.js";
import { path } from "../../pure/commands.js";
import { get, patch } from "../../parts/api.js";
import { Commands } from "../../parts/command.js";
import { ask, say } from "../../parts/dialog.js";
import { may } from "../../parts/session.js";
import { Name } from "../../parts/text.js";
import { counted } from "../../pure/format.js";
import { OptionField } from "./option-field.js";
import { fieldValue, GROUPS, OPTIONS, readValue, shownValue } from "./options.js";
import { flag } from "./queue-create.js";

export function Options({ data, etag, onChange }) {
  const [form, setForm] = useState(null);
  return form === null
    ? html`<${Listed} data=${data} onEdit=${may("create", data.queue) ? () => setForm({ base: data.options, etag, texts: {} }) : null} />`
    : html`<${Form} data=${data} form=${form} setForm=${setForm} onChange=${onChange} />`;
}

function Listed({ data, onEdit }) {
  return html`<div class="title"><h2>Options</h2><span class="push"></span>${onEdit && html`<button type="button" class="button" onClick=${onEdit}>Change options</button>`}</div>
    ${GROUPS.map((group) => html`<div class="table-box"><div class="table-scroll" role="region" aria-label=${group} tabindex="0"><table class="options">
      <caption>${group}</caption>
      <thead><tr><th scope="col">Option</th><th scope="col">Value</th><th scope="col">Default</th><th scope="col">Meaning</th><th scope="col">A change</th></tr></thead>
      <tbody>${OPTIONS.filter((option) => option.group === group && option.name in data.options).map((option) => {
        const value = data.options[option.name];
        const isUsual = value === option.usual;
        return html`<tr><th scope="row">${option.label}<br /><code>${option.name}</code></th><td class="tight">${isUsual ? shownValue(option, value) : html`<strong>${shownValue(option, value)}</strong>`}</td><td class="tight muted">${isUsual ? "is the default" : shownValue(option, option.usual)}</td><td class="wrap">${option.meaning}</td><td class="wrap muted">${option.forLife ? html`Cannot be changed. ${option.forLife}` : option.change}</td></tr>`;
      })}</tbody></table></div></div>`)}`;
}

function Form({ data, form, setForm, onChange }) {
  const { base, texts } = form;
  const read = OPTIONS.filter((option) => option.name in texts).map((option) => [option, ...readValue(option, texts[option.name])]);
  const changes = read.filter(([option, value, wrong]) => !wrong && value !== base[option.name]);
  const isWrong = read.some(([, , wrong]) => wrong);
  const body = Object.fromEntries(changes.map(([option, value]) => [option.name, value]));
  const request = { method: "PATCH", path: path`queues/${data.queue}`, body, headers: { "if-match": form.etag } };
  const save = async () => {
    const done = await ask({
      title: html`Change ${counted(changes.length, "option")} of <${Name} name=${data.queue} />?`,
      happens: html`<${Diff} base=${base} changes=${changes} /><ul class="plain">${changes.map(([option]) => html`<li><code>${option.name}</code>: ${option.change}</li>`)}</ul>`,
      reversible: "It can be changed back. What has happened by then stays so.",
      button: `Change ${counted(changes.length, "option")}`,
      commands: { admin: [["queue", "change"], { options: Object.fromEntries(Object.entries(body).map(flag)), names: [data.queue] }], request },
      act: async () => {
        try {
          await patch(request.path, body, { ifMatch: form.etag });
          return { changed: true };
        } catch (problem) {
          if (problem.status !== 412) throw problem;
          return { race: await current(data.queue) };
        }
      },
    });
    if (done?.race) setForm({ ...form, race: done.race });
    else if (done) {
      say(`Changed ${counted(changes.length, "option")}.`);
      setForm(null);
      onChange();
    }
  };
  const set = (name, value) => setForm({ ...form, texts: { ...texts, [name]: value } });
  return html`
    ${form.race && html`<${Race} form=${form} changes=${changes} setForm=${setForm} />`}
    <form class="card form" onSubmit=${(event) => { event.preventDefault(); if (changes.length && !isWrong) save(); }}>
      <h2>Change options</h2>
      ${GROUPS.map((group) => html`<fieldset class="form"><legend><h3>${group}</h3></legend><div class="two">${OPTIONS.filter((option) => option.group === group).map((option) => html`<${OptionField} key=${option.name} option=${option} isFixed=${Boolean(option.forLife)} value=${texts[option.name] ?? fieldValue(option, base[option.name])} wrong=${read.find(([one]) => one === option)?.[2]} hint=${option.forLife ? html`<strong>Cannot be changed.</strong> ${option.forLife}` : option.change} onChange=${(value) => set(option.name, value)} />`)}</div></fieldset>`)}
      <section><h3>What would change</h3>${changes.length ? html`<${Diff} base=${base} changes=${changes} />` : html`<p class="muted">Nothing yet.</p>`}</section>
      <div class="buttons"><button type="submit" class="button main" disabled=${!changes.length || isWrong}>Change ${changes.length ? counted(changes.length, "option") : "options"}…</button><button type="button" class="button" onClick=${() => setForm(null)}>Leave as it is</button></div>
    </form>
    <${Commands} request=${request} />`;
}

async function current(queue) {
  let etag = "";
  const data = await get(path`queues/${queue}`, {}, { onAnswer: (response) => { etag = response.headers.get("etag") ?? ""; } });
  return { options: data.options, etag };
}

/** Somebody was faster: what they changed, what one wants to change, and what shall hold. */
function Race({ form, changes, setForm }) {
  const { race, base, texts } = form;
  const theirs = OPTIONS.filter(({ name }) => race.options[name] !== base[name]);
  const both = theirs.filter(({ name }) => changes.some(([option]) => option.name === name));
  const merge = (keepTheirs) => setForm({
    base: race.options,
    etag: race.etag,
    texts: Object.fromEntries(Object.entries(texts).filter(([name]) => !keepTheirs || !both.some((option) => option.name === name))),
  });
  return html`<section class="card" role="alert"><h2>The options have been changed meanwhile</h2>
    <p>While this form was open, somebody changed ${counted(theirs.length, "option")}. Nothing of yours was saved.</p>
    <${Diff} base=${base} changes=${theirs.map((option) => [option, race.options[option.name]])} />
    ${both.length > 0 && html`<p>You both changed ${both.map(({ name }) => html`<code>${name}</code> `)}. Which value shall hold?</p>`}
    <div class="buttons"><button type="button" class="button main" onClick=${() => merge(false)}>${both.length ? "Mine, on top of theirs" : "Put my changes on top of theirs"}</button>${both.length > 0 && html`<button type="button" class="button" onClick=${() => merge(true)}>Theirs</button>`}<button type="button" class="button" onClick=${() => setForm(null)}>Give up my changes</button></div>
  </section>`;
}

const Diff = ({ base, changes }) => html`<div class="diff">${changes.map(([option, value]) => html`<div><del>${option.name}: ${shownValue(option, base[option.name])}</del> <ins>${option.name}: ${shownValue(option, value)}</ins></div>`)}</div>`;
