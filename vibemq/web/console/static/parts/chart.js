// Charts over time with uPlot, each with a table of the same values. Restarts are lines, gaps are gaps.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { count, duration, instant, rate, size } from "../pure/format.js";
import { theme, zone } from "./address.js";

const HEIGHT = 168;
const UNITS = { rate, count, bytes: size, ms: duration, number: (value) => (value === null ? "–" : String(Math.round(value * 100) / 100)) };
const TABLE_ROWS = 60;

/** @type {Promise<any> | null} */
let loading = null;

/** uPlot comes behind the page, whose figures need not wait for it. */
function load() {
  loading ??= import("../vendor/uplot.js").catch((error) => {
    loading = null;
    throw error;
  });
  return loading;
}

addStyle();

/** uPlot's own style sheet, by the address of this module. */
function addStyle() {
  const sheet = document.createElement("link");
  sheet.rel = "stylesheet";
  sheet.href = new URL("../vendor/uplot.css", import.meta.url).href;
  document.head.append(sheet);
}

/** `history`: an answer of GET /history. `lines`: [{name: of the series, label}], at most four. `unit`: rate, count, bytes,
 * ms. */
export function Chart({ title, history, lines, unit = "count" }) {
  const box = useRef(null);
  const show = UNITS[unit];
  const { step_ms, from_at, series = {}, restarts = [] } = history ?? {};
  const begin = from_at ? new Date(from_at).getTime() : 0;
  const columns = lines.map(({ name }) => series[name] ?? []);
  const length = Math.max(0, ...columns.map((column) => column.length));
  const times = useMemo(() => Array.from({ length }, (_, at) => (begin + at * step_ms) / 1000), [begin, step_ms, length]);
  const data = [times, ...columns.map((column) => Array.from({ length }, (_, at) => column[at] ?? null))];
  const plot = useRef(null);
  const [isMissing, setMissing] = useState(false);
  // A chart that is there is drawn with what the last answer has: a broker that is started anew is marked, too.
  const latest = useRef({ data, restarts });
  latest.current = { data, restarts };
  const key = `${lines.map(({ name }) => name)}|${unit}|${zone.value}|${theme.value}`;
  useEffect(() => {
    if (!length) return undefined;
    /** @type {any} */
    let made = null;
    let isGone = false;
    const draw = ({ uPlot }) => {
      setMissing(false);
      if (isGone || box.current === null) return;
      made = new uPlot(optionsOf({ uPlot, lines, unit, show, restartsNow: () => latest.current.restarts, width: box.current.clientWidth }), latest.current.data, box.current);
      plot.current = made;
    };
    // The broker may have gone, or be of another version by now.
    load().then(draw, () => setMissing(true));
    const resized = new ResizeObserver(() => made?.setSize({ width: Math.max(120, box.current?.clientWidth ?? 0), height: HEIGHT }));
    resized.observe(box.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => made?.redraw();
    scheme.addEventListener("change", redraw);
    return () => {
      isGone = true;
      scheme.removeEventListener("change", redraw);
      resized.disconnect();
      made?.destroy();
      plot.current = null;
    };
  }, [key, length > 0]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [history]);
  const last = columns.map((column) => column.findLast((value) => value !== null && value !== undefined) ?? null);
  return html`<figure class="chart">
    <figcaption><h3>${title}</h3><span class="legend">${lines.map(({ label }, at) => html`<span class=${`c${at + 1}`}><i></i>${label} <b>${show(last[at])}</b></span>`)}</span></figcaption>
    ${length ? html`<div class="plot" ref=${box} aria-hidden="true"></div>` : html`<p class="wait">No figures have been kept yet; the first come within seconds.</p>`}
    ${length > 0 && isMissing && html`<p class="muted" role="status">The chart could not be loaded; its figures are in the table. Load this page again to see it.</p>`}
    ${length > 0 && html`<details><summary>As a table</summary><${Twin} title=${title} lines=${lines} data=${data} show=${show} /></details>`}
  </figure>`;
}

function Twin({ title, lines, data, show }) {
  const [times, ...columns] = data;
  const every = Math.max(1, Math.ceil(times.length / TABLE_ROWS));
  const rows = times.map((_, at) => at).filter((at) => (times.length - 1 - at) % every === 0).reverse();
  return html`<div class="table-scroll" role="region" aria-label=${`${title}, as a table`} tabindex="0"><table>
    <caption class="hidden-text">${title}</caption>
    <thead><tr><th scope="col">Time</th>${lines.map(({ label }) => html`<th scope="col" class="num">${label}</th>`)}</tr></thead>
    <tbody>${rows.map((at) => html`<tr><th scope="row" class="num">${instant(times[at] * 1000, { utc: zone.value === "utc" })}</th>${columns.map((column) => html`<td class="num">${show(column[at])}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

const colour = (name) => getComputedStyle(document.body).getPropertyValue(name);

/** Canvases know no light-dark(): the browser computes the colour of an element. */
function computed(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  probe.hidden = true;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found || colour(name);
}

function optionsOf({ uPlot, lines, unit, show, restartsNow, width }) {
  const axis = { stroke: () => computed("--muted"), grid: { stroke: () => computed("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  return {
    width: Math.max(120, width),
    height: HEIGHT,
    tzDate: zone.value === "utc" ? (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : undefined,
    cursor: { y: false, points: { size: 6 } },
    legend: { show: false },
    scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high || 1) * 1.08] } },
    axes: [
      { ...axis, size: 26, values: clock },
      { ...axis, size: 62, values: (_, values) => values.map((value) => (unit === "rate" ? (value >= 1000 ? `${value / 1000}k` : String(value)) : unit === "count" ? short(value) : show(value))) },
    ],
    series: [
      {},
      ...lines.map(({ label }, at) => ({ label, width: 1.75, points: { show: false }, spanGaps: false, stroke: () => computed(`--chart-${at + 1}`) })),
    ],
    hooks: {
      draw: [(plot) => {
        for (const at of restartsNow()) mark(plot, new Date(at).getTime() / 1000);
      }],
    },
    plugins: [tip(lines, show)],
  };
}

const short = (value) => (value >= 1e9 ? `${value / 1e9}G` : value >= 1e6 ? `${value / 1e6}M` : value >= 1e3 ? `${value / 1e3}k` : String(value));

function clock(_, values, __, ___, step) {
  return values.map((seconds) => {
    const text = instant(seconds * 1000, { utc: zone.value === "utc" });
    return step >= 86400 ? text.slice(5, 10) : step < 60 ? text.slice(11) : text.slice(11, 16);
  });
}

/** A line where the broker was started anew. */
function mark(plot, seconds) {
  const x = plot.valToPos(seconds, "x", true);
  const { left, top, width, height } = plot.bbox;
  if (x < left || x > left + width) return;
  const { ctx } = plot;
  ctx.save();
  ctx.strokeStyle = computed("--warn");
  ctx.setLineDash([4, 4]);
  ctx.beginPath();
  ctx.moveTo(x, top);
  ctx.lineTo(x, top + height);
  ctx.stroke();
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  const isNearEnd = x > left + width * 0.85;
  ctx.textAlign = isNearEnd ? "right" : "left";
  // On a ground of its own, so that no line strikes it through.
  const at = x + (isNearEnd ? -4 : 4) * devicePixelRatio;
  const broad = ctx.measureText("started").width + 4 * devicePixelRatio;
  ctx.fillStyle = computed("--surface");
  ctx.fillRect(isNearEnd ? at - broad + 2 * devicePixelRatio : at - 2 * devicePixelRatio, top, broad, 14 * devicePixelRatio);
  ctx.fillStyle = computed("--warn");
  ctx.fillText("started", at, top + 11 * devicePixelRatio);
  ctx.restore();
}

/** What the values are where the pointer is. */
function tip(lines, show) {
  const box = document.createElement("div");
  box.className = "tip";
  box.hidden = true;
  return {
    hooks: {
      init: (plot) => plot.over.append(box),
      setCursor: (plot) => {
        const { idx, left } = plot.cursor;
        box.hidden = idx === null || idx === undefined || left < 0;
        if (box.hidden) return;
        const parts = lines.map(({ label }, at) => `${label} ${show(plot.data[at + 1][idx])}`);
        box.textContent = `${instant(plot.data[0][idx] * 1000, { utc: zone.value === "utc" }).slice(11)}  ${parts.join(" · ")}`;
        box.style.left = `${Math.min(left, Math.max(0, plot.over.clientWidth - box.offsetWidth))}px`;
      },
    },
  };
}
