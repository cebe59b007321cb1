// For a broker without queues: three ways to publish the first message and to consume it.
import { html } from "../../vendor/ui.js";
import { Copy } from "../../parts/command.js";
import { BASE, asksForLogin, mayAnywhere } from "../../parts/api.js";
import { Empty } from "../../parts/text.js";
import { segment } from "../../pure/commands.js";
import { useNativeUrl } from "./state.js";

function linesFor(queue, url) {
  const token = asksForLogin() ? ` -H "Authorization: Bearer $VIBEMQ_ACCESS_TOKEN"` : "";
  return [
    ["Python", `import vibemq.sync\n\nwith vibemq.sync.connect("${url}") as mq:\n    mq.create_queue("${queue}")\n    mq.publish("${queue}", {"number": 1})\n    with mq.subscribe("${queue}") as messages:\n        for message in messages:\n            print(message.payload)\n            message.ack()`],
    ["CLI", `vibemq-admin queue create --url ${url} ${queue}\nvibemq pub --url ${url} ${queue} '{"number": 1}'\nvibemq sub --url ${url} ${queue}`],
    ["curl", `curl -sS -X PUT${token} -H 'content-type: application/json' --data '{}' ${new URL(`queues/${segment(queue)}`, BASE).href}\ncurl -sS${token} -H 'content-type: application/octet-stream' --data-binary '{"number": 1}' ${new URL(`queues/${segment(queue)}/messages`, BASE).href}`],
  ];
}

export function FirstMessages({ onCreate }) {
  const url = useNativeUrl();
  if (!mayAnywhere("create")) {
    return html`<${Empty} title="There is no queue that you may inspect"><p>A superuser grants <code>inspect</code>.</p></${Empty}>`;
  }
  return html`<${Empty} title="This broker has no queues yet">
    <p>A queue keeps messages until a consumer has acknowledged them. Make one here, or publish and consume by one of these:</p>
    ${linesFor("orders", url).map(([what, lines]) => html`<div><h3>${what}</h3><div class="with-copy"><pre class="code wrapped">${lines}</pre><${Copy} text=${lines} what=${`the lines for ${what}`} /></div></div>`)}
    ${onCreate && html`<p><button type="button" class="button main" onClick=${onCreate}>Create a queue</button></p>`}
  </${Empty}>`;
}
