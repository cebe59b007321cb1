// Command lines, quoted for a POSIX shell.
import { exactJson } from "./format.js";

const PLAIN = /^[A-Za-z0-9_@%+=:,./-]+$/;

export function quote(value) {
  const text = String(value);
  return PLAIN.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** `verb`: its words. `options`: by name; null, undefined and false are left out, true is a switch. `names` stand behind
 * `--`, so that a queue may be called --yes.
 * @param {string[]} verb
 * @param {{options?: object, names?: any[], program?: string}} [rest] */
export function adminLine(verb, { options = {}, names = [], program = "vibemq-admin" } = {}) {
  const words = [program, ...verb];
  for (const [name, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) {
      words.push(one === true ? `--${name}` : `--${name}=${one}`);
    }
  }
  const quoted = words.map(quote);
  return names.length ? [...quoted, "--", ...names.map(quote)].join(" ") : quoted.join(" ");
}

/** `name=value` of each, for options; null when a name has a "=" and the command line could not tell where it ends. */
export function assigned(entries) {
  return entries.some(([name]) => name.includes("=")) ? null : entries.map((entry) => entry.join("="));
}

/** The request as a line for curl. Of a secret it only has the name of the variable that holds it. */
export function curlLine(method, url, { body = undefined, headers = {}, withToken = false, data = undefined, stream = false } = {}) {
  const words = ["curl", stream ? "-sSN" : "-sS"];
  if (method !== "GET") words.push("-X", method);
  if (withToken) words.push("-H", '"Authorization: Bearer $VIBEMQ_ACCESS_TOKEN"');
  const all = body === undefined ? headers : { "content-type": "application/json", ...headers };
  for (const [name, value] of Object.entries(all)) words.push("-H", quote(`${name}: ${value}`));
  if (body !== undefined) words.push("--data", quote(exactJson(body)));
  if (data !== undefined) words.push("--data-binary", quote(data));
  words.push(quote(url));
  return words.join(" ");
}

/** Keys of what one form sends: the same request has the same key however often it is sent, so that it is carried out once. */
export function keysOf(newKey) {
  const keys = new Map();
  return (request) => {
    const text = exactJson(request);
    if (!keys.has(text)) keys.set(text, newKey());
    return keys.get(text);
  };
}

/** A name as one segment of a path. URL parsers remove segments of dots, so those get a mark, as do those that would be taken for that. */
export function segment(name) {
  return /^~*\.+$/.test(name) ? `~${name}` : encodeURIComponent(name);
}

/** `a/${name}` with names as segments: path`queues/${name}/purge`. */
export function path(parts, ...names) {
  return parts.reduce((made, part, at) => made + segment(String(names[at - 1])) + part);
}

/** "?a=1&b=2", without what is empty. */
export function query(values) {
  const made = new URLSearchParams();
  for (const [name, value] of Object.entries(values ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "" && one !== false) made.append(name, String(one));
    }
  }
  const text = made.toString();
  return text ? `?${text}` : "";
}
