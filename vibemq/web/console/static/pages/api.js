// The API: its operations as its own description has them, each with a line for curl.
import { html } from "../vendor/ui.js";
import { params } from "../parts/address.js";
import { urlOf } from "../parts/api.js";
import { Commands } from "../parts/command.js";
import { useData } from "../parts/data.js";
import { Filters } from "../parts/filters.js";
import { start } from "../parts/frame.js";
import { Empty, Loaded, Prose } from "../parts/text.js";
import { byTag, exampleOf, operationsOf } from "../pure/openapi.js";

function Api() {
  const found = useData("openapi.json", { every: 0 });
  const { search = "" } = params.value;
  return html`
    <div class="title"><h1>API</h1></div>
    <p class="lead">Everything that this console shows and does goes through the HTTP API, which is open to your own programs. This list is made from its description, <a href=${urlOf("openapi.json").href}>openapi.json</a> (OpenAPI 3.1).</p>
    <section class="card" aria-labelledby="begin"><h2 id="begin">Before the first request</h2>
      <p>Make an access token on the page <a href="./access">Access</a>, or with <code>vibemq-admin token create</code>, and keep it in a variable. The lines below read it from there.</p>
      <pre class="code">export VIBEMQ_ACCESS_TOKEN=…</pre>
    </section>
    <${Filters} label="Find operations" fields=${[{ name: "search", label: "Path or words", placeholder: "dead-letters", size: 30 }]} />
    <${Loaded} found=${found} what="Loading the description">${(description) => html`<${Operations} description=${description} search=${search} />`}</${Loaded}>`;
}

function Operations({ description, search }) {
  const wanted = search.toLowerCase().split(/\s+/).filter(Boolean);
  const all = operationsOf(description);
  const fitting = all.filter(({ method, path, summary }) => wanted.every((word) => `${method} ${path} ${summary}`.toLowerCase().includes(word)));
  if (fitting.length === 0) return html`<${Empty} title="No operation fits"><p>Try one word of its path, such as <code>queues</code>.</p></${Empty}>`;
  return html`${byTag(fitting).map(([tag, operations]) => html`<section class="card" aria-label=${tag}><h2>${tag}</h2>
    <ul class="operations">${operations.map((operation) => html`<li key=${`${operation.method} ${operation.path}`}><${Operation} operation=${operation} description=${description} /></li>`)}</ul>
  </section>`)}`;
}

function Operation({ operation, description }) {
  const { method, path, summary, text, parameters } = operation;
  const example = exampleOf(operation, description);
  return html`<details class="operation">
    <summary><b class=${`method ${method.toLowerCase()}`}>${method}</b> <code>${path}</code> <span class="muted">${summary}</span></summary>
    <div class="inside">
      ${text && html`<p><${Prose} text=${text} /></p>`}
      ${parameters.length > 0 && html`<dl class="facts">${parameters.map(({ name, where, required, meaning }) => html`<dt><code>${name}</code> <span class="small">${where}${required ? ", required" : ""}</span></dt><dd><${Prose} text=${meaning} /></dd>`)}</dl>`}
      <${Commands} isOpen request=${{ method, path: example.path, query: example.query, body: example.body, headers: example.headers }} />
    </div>
  </details>`;
}

start(Api);
