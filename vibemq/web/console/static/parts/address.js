// The state of a page is in its address: filters, sort, tab, range, cursor. What a user prefers everywhere is kept by the browser.
import { signal } from "../vendor/ui.js";
import { query } from "../pure/commands.js";

/** @returns {Record<string, any>} */
function asObject() {
  const found = new URLSearchParams(location.search);
  const all = found.getAll("header");
  return { ...Object.fromEntries([...found.keys()].map((name) => [name, found.get(name)])), ...(all.length > 1 ? { header: all } : {}) };
}

/** The parameters of the address, as an object of texts. Of `header`, which may stand there several times, a list; of others the first counts. */
export const params = signal(asObject());
addEventListener("popstate", () => {
  params.value = asObject();
});

/** Change some parameters; null and "" remove one. A step of its own in the history, unless `replace`. */
export function setParams(changes, { replace = false } = {}) {
  const made = Object.fromEntries(
    Object.entries({ ...params.value, ...changes }).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  );
  const text = query(made);
  const here = location.pathname.split("/").at(-1);
  history[replace ? "replaceState" : "pushState"](null, "", `./${here}${text}`);
  params.value = made;
}

/** The address of a page, with parameters: link("queue", { queue: "orders" }). */
export const link = (page, values = {}) => `./${page}${query(values)}`;

/** The address of this page with some parameters changed. */
export const linkHere = (changes) => `./${location.pathname.split("/").at(-1)}${query({ ...params.value, ...changes })}`;

/** For links that only change parameters: a plain click stays on the page; with a modifier the browser opens it. */
export function stay(event, changes) {
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  setParams(changes);
}

// What a person has chosen, kept by the browser. Nothing secret is among it.

function kept(name, usual, allowed) {
  const key = `vibemq-${name}`;
  let first = usual;
  try {
    const found = localStorage.getItem(key);
    if (found !== null && (!allowed || allowed.includes(found))) first = found;
  } catch {
    // Without storage it is what is usual.
  }
  const made = signal(first);
  made.subscribe((value) => {
    try {
      if (value === usual) localStorage.removeItem(key);
      else localStorage.setItem(key, value);
    } catch {
      // It holds for this page then.
    }
  });
  return made;
}

export const theme = kept("theme", "system", ["system", "light", "dark"]);
export const zone = kept("zone", "local", ["local", "utc"]);
export const letterKeys = kept("keys", "on", ["on", "off"]);

theme.subscribe((value) => {
  if (value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
});

const columns = new Map();

/** A signal of the keys of the columns that a person has hidden in the table of this name: a text, by commas. */
export function hiddenColumns(table, usual = "") {
  if (!columns.has(table)) columns.set(table, kept(`columns-${table}`, usual));
  return columns.get(table);
}
