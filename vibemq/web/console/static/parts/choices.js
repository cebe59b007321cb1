// What a person has chosen, kept by the browser. Nothing secret is among it.
import { signal } from "../vendor/ui.js";

function kept(name, usual, allowed) {
  const key = `vibemq-${name}`;
  let first = usual;
  try {
    const found = localStorage.getItem(key);
    if (found !== null && (!allowed || allowed.includes(found))) first = found;
  } catch {
    // Without storage every page begins with what is usual.
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
