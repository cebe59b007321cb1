// Durations: as a person reads them, as the command line writes them, and back.

const UNITS = [
  ["w", 604_800_000],
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1_000],
  ["ms", 1],
];
const WORDS = { d: "d", h: "h", m: "min", s: "s", ms: "ms" };

/** Exactly, for the command line: 5400000 → "1h30m". @param {number} ms */
export function durationArgument(ms) {
  let left = Math.round(ms);
  if (left <= 0) return "0";
  let text = "";
  for (const [unit, size] of UNITS.slice(1)) {
    const count = Math.floor(left / size);
    if (count) text += `${count}${unit}`;
    left -= count * size;
  }
  return text;
}

/** "1h30m", "90 min", "2 days" → ms; null when it is no duration with a unit. @param {string} text */
export function durationOf(text) {
  const plain = text
    .trim()
    .toLowerCase()
    .replace(/\bdays?\b/g, "d")
    .replace(/\bhours?\b/g, "h")
    .replace(/\bmin(utes?)?\b|(?<=\d)min\b/g, "m")
    .replace(/\bsec(onds?)?\b/g, "s")
    .replace(/\bweeks?\b/g, "w")
    .replace(/\s+/g, "");
  if (plain === "0") return 0;
  if (!/^(\d+(\.\d+)?(ms|[wdhms]))+$/.test(plain)) return null;
  let total = 0;
  for (const [, number, , unit] of plain.matchAll(/(\d+(\.\d+)?)(ms|[wdhms])/g)) {
    total += Number(number) * UNITS.find(([name]) => name === unit)[1];
  }
  return Math.round(total);
}

/** For people, two units at most: 5400000 → "1 h 30 min", 90061000 → "1 d 1 h". @param {number | null | undefined} ms */
export function durationText(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  if (ms < 1) return "0 s";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const units = UNITS.slice(1, 5);
  const at = units.findIndex(([, size]) => ms >= size);
  if (at === 3) return ms < 10_000 && ms % 1_000 ? `${(ms / 1_000).toFixed(1)} s` : `${Math.floor(ms / 1_000)} s`;
  const [small, smallSize] = units[at + 1];
  const whole = Math.round(ms / smallSize) * smallSize;
  if (at > 0 && whole >= units[at - 1][1]) return durationText(whole);
  const [unit, size] = units[at];
  const second = Math.round((whole % size) / smallSize);
  const first = `${Math.floor(whole / size)} ${WORDS[unit]}`;
  return second ? `${first} ${second} ${WORDS[small]}` : first;
}
