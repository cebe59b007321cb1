// The frame of every page: navigation, header, banners, dialogs. A page calls `start(View)`.
import { html, signal, useEffect, useState } from "../vendor/ui.js";
import { asksForLogin, loadSession, logOut, lookWhoIsHere, lostSince, mayDo, session, sessionProblem } from "./api.js";
import { letterKeys, theme, zone } from "./address.js";
import { live, streaming, useData } from "./data.js";
import { Menu, Modal, Notices, Question, say } from "./dialog.js";
import { At, Outside, Trouble, Waiting, draw } from "./text.js";
import { duration } from "../pure/format.js";

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
  draw(html`<${Frame} View=${View} />`);
  loadSession();
  // Also of a page to which Back has brought one, as it was.
  for (const when of ["focus", "pageshow"]) addEventListener(when, lookWhoIsHere);
  document.addEventListener("visibilitychange", lookWhoIsHere);
}

function Frame({ View }) {
  const here = location.pathname.split("/").at(-1);
  return html`<div class="frame">
    <a class="skip" href="#main">Skip to the content</a>
    <${Top} here=${here} />
    <main class="main" id="main" tabindex="-1">
      <${Banners} />
      ${session.value ? html`<${Drawn} View=${View} />` : sessionProblem.value ? html`<h1>${document.title}</h1><${Trouble} problem=${sessionProblem.value} retry=${loadSession} />` : html`<${Waiting} />`}
    </main>
    <${Notices} /><${Question} />${helpOpen.value && html`<${Help} />`}
  </div>`;
}

/** A page that cannot be drawn, whatever an answer has, says so. @this {any} */
function Drawn({ View }) {
  const [problem, setProblem] = useState(null);
  this.componentDidCatch = (error) => {
    console.error(error);
    setProblem(error);
  };
  if (problem === null) return html`<${View} />`;
  return html`<h1>${document.title}</h1><div class="problem" role="alert"><strong>This page could not be drawn.</strong><span class="small"><${Outside} text=${String(problem)} /></span>
    <span><button type="button" class="button slim" onClick=${() => setProblem(null)}>Try again</button></span></div>`;
}

function Top({ here }) {
  const [isOpen, setOpen] = useState(false);
  const found = session.value;
  return html`
    <header class="top">
      <button type="button" class="tool menu-button" aria-expanded=${String(isOpen)} aria-controls="nav" onClick=${() => setOpen(!isOpen)}><${Icon} name="menu" /><span class="word">Menu</span></button>
      <a class="brand" href="./"><img src=${new URL("../icon.svg", import.meta.url).href} alt="" /><span><span class="broker">${found?.broker_name ? html`<${Outside} text=${found.broker_name} isName />` : "VibeMQ"}</span><span class="version">${found ? `VibeMQ ${found.version}` : " "}</span></span></a>
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

/** Whoever is not logged out must not believe it. */
const leave = (how) => logOut(how).catch(({ message }) => say(html`You may still be logged in. <${Outside} text=${message} />`));

function Who({ found }) {
  if (!asksForLogin()) return html`<span class="tool" title="This broker asks nobody for a password: setting auth"><${Icon} name="access" /><span class="word">no authentication</span></span>`;
  return html`<${Menu} tool label=${html`<${Icon} name="access" /><span class="word"><${Outside} text=${found.user ?? "token"} isName /></span>`}>
    <p class="small muted">${found.superuser ? "Superuser" : "Limited user"} <${Outside} text=${found.user ?? ""} isName /></p>
    <a class="button slim" href="./access">My rights</a>
    <button type="button" class="button slim" onClick=${() => leave()}>Log out</button>
    <button type="button" class="button slim" onClick=${() => leave({ everywhere: true })}>Log out everywhere</button>
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
    ${since > 0 && html`<div class="banner bad"><strong><span role="alert">The broker has not answered</span> for ${duration(Math.round((Date.now() - since) / 1000) * 1000)}.</strong><span>What this page shows is from before <${At} at=${since} />. It tries again by itself.</span></div>`}
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

// Icons as elements, in the colour of the text beside them. None says anything that the text does not.

const PATHS = {
  overview: "M3 13a9 9 0 0 1 18 0M12 13l4-4M3 19h18",
  queues: "M4 6h16M4 12h16M4 18h10",
  dead: "M12 3l9 16H3zM12 9v5M12 16.5v.5",
  jobs: "M4 12a8 8 0 0 1 14-5l2 2M20 4v5h-5M20 12a8 8 0 0 1-14 5l-2-2M4 20v-5h5",
  connections: "M9 7V3M15 7V3M6 7h12v4a6 6 0 0 1-12 0zM12 17v4",
  cursors: "M5 4v16M5 12h10M11 8l4 4-4 4M19 4v16",
  broker: "M4 4h16v7H4zM4 13h16v7H4zM8 7.5h.5M8 16.5h.5",
  access: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21a8 8 0 0 1 16 0",
  audit: "M6 3h9l4 4v14H6zM9 11h7M9 15h7M9 7h3",
  api: "M8 6l-6 6 6 6M16 6l6 6-6 6",
  menu: "M4 6h16M4 12h16M4 18h16",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7z",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  moon: "M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5z",
  auto: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 3v18M12 8h6.5M12 13h7.5M12 17h5",
  help: "M9 9a3 3 0 1 1 4 2.8c-.7.3-1 .8-1 1.7M12 17v.5M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
};

export const Icon = ({ name }) => html`<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;

// Keys: / filters, g and a letter goes to a page, j and k move by rows, ? helps. They can be switched off.

const PAGE_OF_KEY = { o: "", q: "queues", d: "dead-letters", j: "jobs", c: "connections", u: "cursors", b: "broker", a: "access", t: "audit", i: "api" };
const WAIT_MS = 1500;

export const helpOpen = signal(false);
let isGoing = 0;

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || letterKeys.value === "off" || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (isGoing && event.timeStamp - isGoing < WAIT_MS) {
    isGoing = 0;
    if (event.key in PAGE_OF_KEY) {
      event.preventDefault();
      location.assign(`./${PAGE_OF_KEY[event.key]}`);
    }
    return;
  }
  isGoing = 0;
  if (event.key === "g") isGoing = event.timeStamp;
  else if (event.key === "?") helpOpen.value = true;
  else if (event.key === "/") focusFilter(event);
  else if (event.key === "j" || event.key === "k") moveByRow(event);
});

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName));
}

function focusFilter(event) {
  const field = document.querySelector("[data-filter]");
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select?.();
}

/** To the link or button that opens the next row; the first one when no row has the focus. */
function moveByRow(event) {
  const rows = [...document.querySelectorAll("tbody [data-open]")];
  if (rows.length === 0) return;
  event.preventDefault();
  const here = document.activeElement?.closest("tr")?.querySelector("[data-open]");
  const at = here ? rows.indexOf(here) + (event.key === "j" ? 1 : -1) : 0;
  rows[Math.max(0, Math.min(rows.length - 1, at))].focus();
}
