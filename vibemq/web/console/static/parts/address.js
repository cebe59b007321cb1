// The state of a page is in its address: filters, sort, tab, range, cursor.
import { signal } from "../vendor/ui.js";
import { query } from "../pure/commands.js";

/** @returns {Record<string, any>} */
function asObject() {
  const found = new URLSearchParams(location.search);
  const all = found.getAll("header");
  return { ...Object.fromEntries([...found.keys()].map((name) => [name, found.get(name)])), ...(all.length > 1 ? { header: all } : {}) };
}

/** The parameters of the address, as an object of texts. Of \`header\`, which may stand there several times, a list; of others the first counts. */
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
