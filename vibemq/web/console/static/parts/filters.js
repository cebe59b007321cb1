// The filter bar: fields whose values are in the address, and chips for what is set.
import { html, useEffect, useId, useRef, useState } from "../vendor/ui.js";
import { params, setParams } from "./address.js";

const TYPING_MS = 350;

/** Fields: {name, label, kind?: "text" | "select", options?: [[value, text]], placeholder?, size?, list?: suggestions}. The
 * first text field gets the focus by the key /. A change goes back to the first page. */
export function Filters({ fields, label = "Filter", children }) {
  const set = fields.filter(({ name, kind }) => params.value[name] && kind !== "select");
  return html`<form class="filters" role="search" aria-label=${label} onSubmit=${(event) => event.preventDefault()}>
    ${fields.map((field, at) => html`<${FilterField} key=${field.name} field=${field} isFirst=${at === 0} />`)}
    ${children}
    ${(set.length > 0 || fields.some(({ name }) => params.value[name])) && html`<button type="button" class="button quiet" onClick=${() => setParams(Object.fromEntries([...fields.map(({ name }) => [name, null]), ["cursor", null]]))}>Clear</button>`}
  </form>`;
}

/** Enter ends typing; `done(event)` takes the text from the event, because keys can be faster than the page. The list has the focus then, for j and k; nothing has it while the list is on its way. */
export const onEnter = (done) => (event) => {
  if (event.key !== "Enter" || done(event) === false) return;
  const list = document.querySelector("main .table-scroll");
  if (list) list.focus({ preventScroll: true });
  else event.target.blur();
};

function FilterField({ field, isFirst }) {
  const id = useId();
  const value = params.value[field.name] ?? "";
  const [typed, setTyped] = useState(value);
  const timer = useRef(0);
  const sent = useRef(value);
  useEffect(() => {
    // Back, forward and links change the address; what one types meanwhile stays.
    if (value !== sent.current) {
      sent.current = value;
      setTyped(value);
    }
  }, [value]);
  const send = (next) => {
    clearTimeout(timer.current);
    if (next === sent.current) return;
    sent.current = next;
    setParams({ [field.name]: next, cursor: null }, { replace: field.kind !== "select" });
  };
  const finish = (event) => send(event.target.value.trim());
  if (field.kind === "select") {
    return html`<div class="field"><label for=${id}>${field.label}</label>
      <select id=${id} value=${value} onChange=${(event) => send(event.target.value)}>${field.options.map(([option, text]) => html`<option value=${option} selected=${option === value}>${text}</option>`)}</select></div>`;
  }
  const onInput = (event) => {
    const next = event.target.value;
    setTyped(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => send(next.trim()), TYPING_MS);
  };
  return html`<div class="field"><label for=${id}>${field.label}</label>
    <input id=${id} type="search" value=${typed} size=${field.size ?? 18} placeholder=${field.placeholder ?? ""} autocomplete="off" spellcheck=${false}
      list=${field.list ? `${id}-list` : undefined} data-filter=${isFirst ? "" : undefined} onInput=${onInput}
      onChange=${finish} onKeyDown=${onEnter(finish)} />
    ${field.list && html`<datalist id=${`${id}-list`}>${field.list.map((one) => html`<option value=${one} />`)}</datalist>`}</div>`;
}

/** A few choices of which one holds, as buttons side by side: options [[value, text]]. */
export function Segments({ label, value, options, onChange }) {
  return html`<span class="segments" role="group" aria-label=${label}>${options.map(([option, text]) =>
    html`<button type="button" aria-pressed=${String(option === value)} onClick=${() => onChange(option)}>${text}</button>`)}</span>`;
}

/** Tabs are links, so that each has an address: tabs [[key, text]], kept in the parameter `name`; the first is what holds
 * without it. `children`: links to other pages. */
export function Tabs({ label, tabs, name = "tab", children }) {
  const here = params.value[name] ?? tabs[0][0];
  const go = (event, key) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const others = Object.fromEntries(Object.keys(params.value).filter((one) => !["queue", "id"].includes(one)).map((one) => [one, null]));
    setParams({ ...others, [name]: key === tabs[0][0] ? null : key });
  };
  const addressOf = (key) => `?${new URLSearchParams({ ...(params.value.queue ? { queue: params.value.queue } : {}), ...(key === tabs[0][0] ? {} : { [name]: key }) })}`;
  return html`<nav class="tabs" aria-label=${label}>${tabs.map(([key, text]) =>
    html`<a href=${addressOf(key)} aria-current=${key === here ? "page" : undefined} onClick=${(event) => go(event, key)}>${text}</a>`)}${children}</nav>`;
}

/** An input whose text is the user's until it is finished. `finish(text)` comes with the end of a change; what it does not
 * take is shown as `value` again, and what the pattern forbids stays until it is corrected, or is for `refuse(text)` to keep as the
 * value. @param {any} props */
export function DraftInput({ value, finish, refuse = undefined, ...rest }) {
  const [draft, setDraft] = useState(null);
  const end = (event) => (refuse || event.target.validity.valid) && setDraft(null);
  const onChange = (event) => {
    if (event.target.validity.valid) finish(event.target.value.trim());
    else refuse?.(event.target.value);
    end(event);
  };
  return html`<input ...${rest} value=${draft ?? value} onInput=${(event) => setDraft(event.target.value)} onChange=${onChange} onBlur=${end} />`;
}

/** A labelled field of a form. `children`: one control as a function of its id. */
export function Field({ label, hint, wrong, children }) {
  const id = useId();
  return html`<div class="field"><label for=${id}>${label}</label>${children(id, hint || wrong ? `${id}-hint` : undefined)}
    ${(hint || wrong) && html`<div id=${`${id}-hint`}>${hint && html`<div class="hint">${hint}</div>`}${wrong && html`<div class="wrong" role="alert">${wrong}</div>`}</div>`}</div>`;
}
