// Command lines for a POSIX shell: nothing in a name can become a word, an option, a variable or another command.

const PLAIN = /^[A-Za-z0-9_@%+=:,./-]+$/;

/** One word of a command line. @param {string} text */
export function quoted(text) {
  if (PLAIN.test(text) && !text.startsWith("=")) return text;
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** An option with its value, safe also for a value that begins with a dash. @param {string} name @param {string} value */
export function optionOf(name, value) {
  return value.startsWith("-") ? [`${name}=${quoted(value)}`] : [name, quoted(value)];
}

/** Words in which a variable stands for a secret or an address stay in double quotes. @param {string} text */
export function inDoubleQuotes(text) {
  return `"${text.replaceAll(/[\\"`$]/g, "\\$&")}"`;
}

/** A command of `vibemq-admin`: options, then `--` before names.
 * @param {string[]} words quoted already @param {string[]} names as they are */
export function adminCommand(words, names = []) {
  const tail = names.length ? ["--", ...names.map(quoted)] : [];
  return ["vibemq-admin", ...words, ...tail].join(" ");
}
