// For a broker without queues: three ways to publish the first message and to consume it.
import { html } from "../../vendor/ui.js";
import { Copy } from "../../parts/command.js";
import { session } from "../../parts/session.js";
import { Empty } from "../../parts/states.js";
import { BASE } from "../../parts/api.js";
import { segment } from "../../pure/commands.js";

export function linesFor(queue) {
  const host = location.hostname || "localhost";
  const port = session.value?.native_port ?? 2925;
  const url = `vibemq://${host}:${port}`;
  const token = session.value?.auth_enabled ? ` -H "Authorization: Bearer $VIBEMQ_ACCESS_TOKEN"` : "";
  return [
    ["Python", `import vibemq.sync\n\nwith vibemq.sync.connect("${url}") as mq:\n    mq.create_queue("${queue}")\n    mq.publish("${queue}", {"number": 1})\n    for message in mq.subscribe("${queue}"):\n        print(message.payload)\n        message.ack()`],
    ["CLI", `vibemq-admin --url ${url} queue create ${queue}\nvibemq pub --url ${url} ${queue} '{"number": 1}'\nvibemq sub --url ${url} ${queue}`],
    ["curl", `curl -sS -X PUT${token} -H 'content-type: application/json' --data '{}' ${new URL(`queues/${segment(queue)}`, BASE).href}\ncurl -sS${token} -H 'content-type: application/octet-stream' --data-binary '{"number": 1}' ${new URL(`queues/${segment(queue)}/messages`, BASE).href}`],
  ];
}

export function FirstMessages({ onCreate }) {
  return html`<${Empty} title="This broker has no queues yet">
    <p>A queue keeps messages until a consumer has acknowledged them. Make one here, or publish and consume by one of these:</p>
    ${linesFor("orders").map(([what, lines]) => html`<div><h3>${what}</h3><div class="with-copy"><pre class="code wrapped">${lines}</pre><${Copy} text=${lines} what=${`the lines for ${what}`} /></div></div>`)}
    ${onCreate && html`<p><button type="button" class="button main" onClick=${onCreate}>Create a queue</button></p>`}
  </${Empty}>`;
}
