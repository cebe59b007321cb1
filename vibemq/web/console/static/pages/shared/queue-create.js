// The form that makes a queue.
import { html, useState } from "../../vendor/ui.js";
import { link } from "../../parts/address.js";
import { put } from "../../parts/api.js";
import { Form } from "../../parts/dialog.js";
import { Field } from "../../parts/filters.js";
import { path } from "../../pure/commands.js";
import { digits } from "../../pure/format.js";
import { NAME_RULE, nameProblem } from "../../pure/names.js";
import { OptionField, OPTIONS, fieldValue, readValue, usual } from "./options.js";

const FIRST = ["mode", "durability", "max_attempts", "ack_timeout_ms"];

/** `first`: the name that the form begins with. */
export function CreateQueue({ onClose, first = "" }) {
  const [name, setName] = useState(first);
  const [texts, setTexts] = useState({});
  const read = OPTIONS.filter((option) => option.name in texts).map((option) => [option, ...readValue(option, texts[option.name])]);
  // What was chosen, also where it is the default: that may be another one by then.
  const options = Object.fromEntries(read.filter(([, , wrong]) => !wrong).map(([option, value]) => [option.name, value]));
  const wrongName = nameProblem(name);
  const isWrong = wrongName !== "" || read.some(([, , wrong]) => wrong);
  const request = { method: "PUT", path: path`queues/${name || "NAME"}`, body: options };
  const act = async () => {
    await put(path`queues/${name}`, options);
    location.assign(link("queue", { queue: name }));
  };
  const field = (option) => html`<${OptionField} key=${option.name} option=${option} value=${texts[option.name] ?? fieldValue(option, usual(option))} wrong=${read.find(([one]) => one === option)?.[2]}
    onChange=${(value) => setTexts({ ...texts, [option.name]: value })} />`;
  return html`<${Form} title="Create a queue" button="Create queue" isReady=${name && !isWrong} onClose=${onClose} act=${act}
    commands=${{ admin: [["queue", "create"], { names: [name || "NAME"], options: Object.fromEntries(Object.entries(options).map(flag)) }], request }}>
    <div class="form">
      <${Field} label="Name" hint=${NAME_RULE} wrong=${wrongName}>${(id, about) => html`<input id=${id} aria-describedby=${about} aria-invalid=${wrongName ? "true" : undefined} value=${name} autofocus autocomplete="off" spellcheck=${false} onInput=${(event) => setName(event.target.value.trim())} />`}</${Field}>
      ${OPTIONS.filter((option) => FIRST.includes(option.name)).map(field)}
      <details><summary>All options</summary><div class="form">${OPTIONS.filter((option) => !FIRST.includes(option.name) && option.name !== "exclusive").map(field)}</div></details>
    </div>
  </${Form}>`;
}

/** An option as a flag of the command line. */
export const flag = ([name, value]) => [name.replace(/_ms$/, "").replaceAll("_", "-"), typeof value === "number" && name.endsWith("_ms") ? `${value}ms` : digits(value).replaceAll("_", "-")];
