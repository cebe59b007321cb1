// One option of a queue as a field.
import { html } from "../../vendor/ui.js";
import { Field } from "../../parts/filters.js";

export function OptionField({ option, value, onChange, wrong, isFixed, hint }) {
  if (option.kind === "switch") {
    return html`<div class="field"><label class="check"><input type="checkbox" checked=${Boolean(value)} disabled=${isFixed} onChange=${(event) => onChange(event.target.checked)} /><span>${option.label} <code>${option.name}</code></span></label><div class="hint">${option.meaning} ${hint}</div></div>`;
  }
  return html`<${Field} label=${html`${option.label} <code>${option.name}</code>`} hint=${html`${option.meaning} ${option.none && option.kind !== "choice" ? `0: ${option.none}. ` : ""}${hint}`} wrong=${wrong}>${(id, about) =>
    option.kind === "choice"
      ? html`<select id=${id} aria-describedby=${about} disabled=${isFixed} value=${value} onChange=${(event) => onChange(event.target.value)}>${option.choices.map(([choice, text]) => html`<option value=${choice} selected=${choice === value}>${text}</option>`)}</select>`
      : html`<input id=${id} aria-describedby=${about} aria-invalid=${wrong ? "true" : undefined} disabled=${isFixed} value=${value} placeholder=${option.none ?? ""} autocomplete="off" onInput=${(event) => onChange(event.target.value)} />`}</${Field}>`;
}
