// Tables: a caption, sorted columns that say so, a scroll region of their own, columns to choose, ticks, pages.
import { html, useEffect, useId, useRef } from "../vendor/ui.js";
import { counted } from "../pure/format.js";
import { toggled, withAll } from "../pure/ticks.js";
import { hiddenColumns, params, setParams } from "./address.js";
import { Menu } from "./dialog.js";

/** Columns: {key, label, cell(row), isNum?, isTight?, className?, sort?: name for the API, isHead?: names the row, title?}.
 *
 * `sort`: the value as in the address ("-ready"); `onSort(value)`. `ticked`: a Set of keys, with `onTick(set)`; `isOld`: others are on
 * their way, and these cannot be ticked any more.
 * `name`: under which hidden columns are kept; without it all are shown. `bar`: what stands above the table. `place`: the parameter of the address that has the cursor of the page. `isCards`: on a narrow screen each row is a card. */
export function Table({ caption, columns, rows, keyOf, sort, onSort, ticked, onTick, name, bar, empty, next, isQuiet, rowClass, hiddenAtFirst = "", isCards = false, place = "cursor", isOld }) {
  const id = useId();
  const hidden = name ? hiddenColumns(name, hiddenAtFirst).value.split(",") : [];
  const shown = columns.filter((column) => column && (column.isHead || !hidden.includes(column.key)));
  const all = ticked && rows.length > 0 && rows.every((row) => ticked.has(keyOf(row)));
  return html`<div class="table-box">
    ${(bar || name) && html`<div class="table-bar">${bar}<span class="push"></span>${name && html`<${Columns} name=${name} columns=${columns} hiddenAtFirst=${hiddenAtFirst} />`}</div>`}
    ${rows.length === 0 && empty
      ? isOld ? html`<p class="wait">Looking…</p>` : empty
      : html`<div class="table-scroll" role="region" aria-labelledby=${id} tabindex="0">
          <table class=${isCards ? "cards" : ""}>
            <caption id=${id} class=${isQuiet ? "hidden-text" : ""}>${caption}</caption>
            <thead>
              <tr>
                ${ticked && html`<th class="tight"><input type="checkbox" aria-label="Tick all rows of this page" disabled=${isOld} checked=${all} onChange=${() => onTick(withAll(ticked, rows.map(keyOf), !all))} /></th>`}
                ${shown.map((column) => html`<${Head} column=${column} sort=${sort} onSort=${onSort} />`)}
              </tr>
            </thead>
            <tbody>
              ${rows.map((row) => html`<tr key=${keyOf(row)} class=${rowClass?.(row) ?? ""}>
                ${ticked && html`<td class="tight"><input type="checkbox" aria-label=${`Tick ${keyOf(row)}`} disabled=${isOld} checked=${ticked.has(keyOf(row))} onChange=${() => onTick(toggled(ticked, keyOf(row)))} /></td>`}
                ${shown.map((column) => cellOf(column, row))}
              </tr>`)}
            </tbody>
          </table>
        </div>`}
    ${next !== undefined && html`<${Pager} rows=${rows} next=${next} place=${place} />`}
  </div>`;
}

const classOf = (column) => [column.isNum && "num", column.isTight && "tight", column.className].filter(Boolean).join(" ");

function cellOf(column, row) {
  if (column.isHead) return html`<th scope="row" class=${classOf(column)}>${column.cell(row)}</th>`;
  return html`<td class=${classOf(column)} data-label=${column.label}>${column.cell(row)}</td>`;
}

function Head({ column, sort = "", onSort }) {
  const isDown = sort === `-${column.sort}`;
  const isSorted = column.sort && (isDown || sort === column.sort);
  const order = isSorted ? (isDown ? "descending" : "ascending") : undefined;
  const label = column.title ? html`<span title=${column.title}>${column.label}</span>` : column.label;
  if (!column.sort || !onSort) return html`<th scope="col" class=${classOf(column)}>${label}</th>`;
  // Figures begin with the largest, names with the first.
  const then = isSorted ? (isDown ? column.sort : `-${column.sort}`) : column.isNum ? `-${column.sort}` : column.sort;
  return html`<th scope="col" class=${classOf(column)} aria-sort=${order}>
    <button type="button" onClick=${() => onSort(then)}>${label}<span aria-hidden="true">${isSorted ? (isDown ? "↓" : "↑") : ""}</span></button>
  </th>`;
}

function Columns({ name, columns, hiddenAtFirst }) {
  const kept = hiddenColumns(name, hiddenAtFirst);
  const hidden = new Set(kept.value.split(",").filter(Boolean));
  const choosable = columns.filter((column) => column && !column.isHead);
  return html`<${Menu} label="Columns">
    <fieldset><legend class="hidden-text">Columns that are shown</legend>
      ${choosable.map(({ key, label }) => html`<div><label class="check"><input type="checkbox" checked=${!hidden.has(key)} onChange=${() => { kept.value = [...toggled(hidden, key)].join(","); }} />${label}</label></div>`)}
    </fieldset>
  </${Menu}>`;
}

/** By then the next page is there, or is not waited for. */
const PRESSED_MS = 10_000;

/** Pages by cursors: the address has the one of this page, the browser's history those before. */
function Pager({ rows, next, place }) {
  const region = useRef(null);
  const isFirst = !params.value[place];
  const pressedAt = useRef(-Infinity);
  const go = (cursor) => {
    pressedAt.current = performance.now();
    setParams({ [place]: cursor });
  };
  useEffect(() => {
    // The button that was pressed may be none of the next page's.
    if (performance.now() - pressedAt.current > PRESSED_MS || document.activeElement !== document.body) return;
    pressedAt.current = -Infinity;
    region.current.focus({ preventScroll: true });
  });
  return html`<nav class="pager" aria-label="Pages of this list" tabindex="-1" ref=${region}>
    <span class="num">${counted(rows.length, "row")}${isFirst && !next ? "" : " on this page"}</span>
    <span class="push"></span>
    ${!isFirst && html`<button type="button" class="button slim" onClick=${() => go(null)}>First page</button>`}
    ${next && html`<button type="button" class="button slim" onClick=${() => go(next)}>Next page</button>`}
  </nav>`;
}
