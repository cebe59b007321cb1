// The lines that do the same without this page.
import { html, useState } from "../vendor/ui.js";
import { adminLine, curlLine } from "../pure/commands.js";
import { visible } from "../pure/symbols.js";
import { asksForLogin, urlOf } from "./api.js";
import { Icon } from "./frame.js";

/** `admin`: [verb words, {options, names, program}], or a line. `request`: {method, path, query, body, headers, data}.
 * `more`: others like these, each with a `label`. */
export function Commands({ admin, request, more = [], isOpen = false, label = "Command" }) {
  return html`<details class="command" open=${isOpen}><summary>${label}</summary>
    ${[{ admin, request }, ...more].map((one) => html`${one.label && html`<div class="command-label">${one.label}</div>`}${linesOf(one).map(([what, line]) => html`<div class="command-line"><span class="what">${what}</span><code>${visible(line, { lines: true, isName: true })}</code><${Copy} text=${line} what=${`the ${what} line`} /></div>`)}`)}
  </details>`;
}

/** `admin`: a line, or what adminLine takes. @param {{admin?: string | [string[], object?], request?: any}} command */
function linesOf({ admin, request }) {
  const lines = [];
  if (admin) lines.push(["CLI", typeof admin === "string" ? admin : adminLine(...admin)]);
  if (request) {
    const { method = "GET", path, query, ...rest } = request;
    lines.push(["curl", curlLine(method, urlOf(path, query).href, { ...rest, withToken: asksForLogin() })]);
  }
  return lines;
}

export function Copy({ text, what = "this", label }) {
  const [done, setDone] = useState("");
  const copy = async () => {
    const isCopied = await toClipboard(typeof text === "function" ? text() : text);
    setDone(isCopied ? "copied" : "could not be copied");
    setTimeout(() => setDone(""), 1600);
  };
  return html`<button type="button" class="button quiet slim" aria-label=${label ? undefined : `Copy ${what}`} title=${label ? undefined : `Copy ${what}`} onClick=${copy}><${Icon} name="copy" />${label ?? ""}<span role="status">${done}</span></button>`;
}

/** Browsers give the clipboard to secure pages alone; plain http has the old way. Answers whether it is there. */
async function toClipboard(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Refused: the old way may do.
    }
  }
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const field = document.createElement("textarea");
  field.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  before?.focus();
  return isCopied;
}
