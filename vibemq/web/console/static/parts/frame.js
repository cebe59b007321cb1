// The frame of every page: navigation, header, banners, dialogs. A page calls `start(View)`.
import { html, render, useEffect, useState } from "../vendor/ui.js";
import { duration } from "../pure/format.js";
import { lostSince } from "./api.js";
import { theme, zone, letterKeys } from "./choices.js";
import { live, useData } from "./data.js";
import { Menu, Modal, Notices, Question } from "./dialog.js";
import { Icon } from "./icons.js";
import { streaming } from "./events.js";
import { helpOpen } from "./frame/keyboard.js";
import { loadSession, logOut, mayDo, session, sessionProblem } from "./session.js";
import { Trouble, Waiting } from "./states.js";
import { At, Outside } from "./text.js";

/** Page, name, icon; `of`: pages that belong to it; `needs`: an operation without which the page would be empty. */
export const PLACES = [
  { page: "", text: "Overview", icon: "overview" },
  { page: "queues", text: "Queues", icon: "queues", of: ["queue", "message"] },
  { page: "dead-letters", text: "Dead letters", icon: "dead", of: ["letter"] },
  { page: "jobs", text: "Jobs", icon: "jobs", of: ["job"] },
  { page: "connections", text: "Connections", icon: "connections" },
  { page: "cursors", text: "Cursors", icon: "cursors" },
  { page: "broker", text: "Broker", icon: "broker", apart: true, needs: "broker.settings" },
  { page: "access", text: "Access", icon: "access" },
  { page: "audit", text: "Audit", icon: "audit", needs: "audit.list" },
  { page: "api", text: "API", icon: "api" },
];
const HEALTH = { ok: ["good", "Healthy"], warning: ["warn", "Warning"], alarm: ["bad", "Alarm"] };

/** Show a page. `View` is rendered when it is known who is here. `title` is a function of the parameters, or left out. */
export function start(View) {
  render(html`<${Frame} View=${View} />`, document.getElementById("console"));
  loadSession();
}

function Frame({ View }) {
  const here = location.pathname.split("/").at(-1);
  return html`<div class="frame">
    <a class="skip" href="#main">Skip to the content</a>
    <${Top} here=${here} />
    <main class="main" id="main" tabindex="-1">
      <${Banners} />
      ${session.value ? html`<${View} />` : sessionProblem.value ? html`<${Trouble} problem=${sessionProblem.value} retry=${loadSession} />` : html`<${Waiting} />`}
    </main>
    <${Notices} /><${Question} />${helpOpen.value && html`<${Help} />`}
  </div>`;
}

function Top({ here }) {
  const [isOpen, setOpen] = useState(false);
  const found = session.value;
  return html`
    <header class="top">
      <button type="button" class="tool menu-button" aria-expanded=${String(isOpen)} aria-controls="nav" onClick=${() => setOpen(!isOpen)}><${Icon} name="menu" /><span class="word">Menu</span></button>
      <a class="brand" href="./"><img src=${new URL("../icon.svg", import.meta.url).href} alt="" /><span><span class="broker">${found?.broker_name ? html`<${Outside} text=${found.broker_name} />` : "VibeMQ"}</span><span class="version">${found ? `VibeMQ ${found.version}` : " "}</span></span></a>
      ${found && html`<${Health} />`}
      <span class="push"></span>
      <div class="tools">
        <button type="button" class="tool" aria-pressed=${String(!live.value)} title=${live.value ? `Figures move (${streaming.value ? "once a second" : "every 5 seconds"}); press to keep them as they are` : "Figures are kept as they are; press to go on"} onClick=${() => { live.value = !live.value; }}><${Icon} name=${live.value ? "pause" : "play"} /><span class="word">${live.value ? "Live" : "Paused"}</span></button>
        <button type="button" class="tool" aria-label=${`Times are ${zone.value === "utc" ? "UTC" : "local"}; press to change`} onClick=${() => { zone.value = zone.value === "utc" ? "local" : "utc"; }}><${Icon} name="clock" /><span class="word always">${zone.value === "utc" ? "UTC" : "Local"}</span></button>
        <${Theme} />
        <button type="button" class="tool" aria-label="Keys and help" onClick=${() => { helpOpen.value = true; }}><${Icon} name="help" /></button>
        ${found && html`<${Who} found=${found} />`}
      </div>
    </header>
    <nav class=${`nav ${isOpen ? "open" : ""}`} id="nav" aria-label="Pages"><ul>
      ${PLACES.filter(({ needs }) => !needs || !found || mayDo(needs)).map(({ page, text, icon, of = [], apart }) => {
        const isHere = page === here || of.includes(here);
        return html`<li class=${apart ? "apart" : ""}><a href=${`./${page}`} aria-current=${isHere ? (page === here ? "page" : "true") : undefined}><${Icon} name=${icon} />${text}</a></li>`;
      })}
    </ul></nav>`;
}

function Health() {
  const { data } = useData("overview", { topic: "overview" });
  if (lostSince.value) return html`<span class="pill bad">Not reached</span>`;
  if (!data) return null;
  const [tone, word] = HEALTH[data.state] ?? ["", data.state];
  return html`<a class=${`pill ${tone}`} href="./">${word}</a>`;
}

const THEMES = { system: ["light", "auto", "Theme of the system"], light: ["dark", "sun", "Light"], dark: ["system", "moon", "Dark"] };

function Theme() {
  const [next, icon, word] = THEMES[theme.value];
  return html`<button type="button" class="tool" aria-label=${`${word} theme; press to change`} title=${word} onClick=${() => { theme.value = next; }}><${Icon} name=${icon} /></button>`;
}

function Who({ found }) {
  if (!found.auth_enabled) return html`<span class="tool" title="This broker asks nobody for a password: setting auth"><${Icon} name="access" /><span class="word">no authentication</span></span>`;
  return html`<${Menu} tool=${true} label=${html`<${Icon} name="access" /><span class="word"><${Outside} text=${found.user ?? "token"} /></span>`}>
    <p class="small muted">${found.superuser ? "Superuser" : "Limited user"} <${Outside} text=${found.user ?? ""} /></p>
    <a class="button slim" href="./access">My rights</a>
    <button type="button" class="button slim" onClick=${() => logOut()}>Log out</button>
    <button type="button" class="button slim" onClick=${() => logOut({ everywhere: true })}>Log out everywhere</button>
  </${Menu}>`;
}

function Banners() {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const since = lostSince.value;
  return html`
    ${since > 0 && html`<div class="banner bad" role="alert"><strong>The broker has not answered for ${duration(Math.round((Date.now() - since) / 1000) * 1000)}.</strong><span>What this page shows is from before <${At} at=${since} />. It tries again by itself.</span></div>`}
    ${!live.value && html`<div class="banner"><strong>Paused.</strong><span>Figures stay as they are.</span><button type="button" class="button slim" onClick=${() => { live.value = true; }}>Go on</button></div>`}`;
}

const KEYS = [
  ["/", "to the filter"],
  ["j k", "next and previous row"],
  ["Enter", "open the row"],
  ["g o", "Overview"],
  ["g q", "Queues"],
  ["g d", "Dead letters"],
  ["g j", "Jobs"],
  ["g c", "Connections"],
  ["g u", "Cursors"],
  ["g b", "Broker"],
  ["g a", "Access"],
  ["g t", "Audit"],
  ["g i", "API"],
  ["Esc", "close a dialog"],
  ["?", "this help"],
];

function Help() {
  const close = () => { helpOpen.value = false; };
  return html`<${Modal} title="Keys" onClose=${close} footer=${html`<button type="button" class="button" onClick=${close}>Close</button>`}>
    <dl class="facts">${KEYS.map(([keys, text]) => html`<dt>${keys.split(" ").map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${text}</dd>`)}</dl>
    <label class="check"><input type="checkbox" checked=${letterKeys.value === "on"} onChange=${() => { letterKeys.value = letterKeys.value === "on" ? "off" : "on"; }} />Keys of single letters are on</label>
    <p class="muted">Everything that the console does, <code>vibemq-admin</code> and the HTTP API do too: see <em>Command</em> beside each list and action.</p>
  </${Modal}>`;
}
