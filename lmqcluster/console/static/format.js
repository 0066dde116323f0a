// Numbers, times and names as people read them.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const PLAIN = new Intl.NumberFormat("en", { maximumFractionDigits: 3, useGrouping: false });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** A count with separators; a dash where it is not known. */
export function count(value) {
  return value === null || value === undefined ? "–" : WHOLE.format(value);
}

/** A short count for axes: 1,500 is 1.5k. */
export function short(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9)}G`;
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  if (size >= 1e4) return `${trim(value / 1e3)}k`;
  return trim(value);
}

function trim(value) {
  return PLAIN.format(Number(value.toPrecision(3)));
}

/** Events a second. */
export function rate(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return value !== 0 && Math.abs(value) < 10 ? value.toFixed(1) : WHOLE.format(value);
}

/** Bytes in binary units. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? WHOLE.format(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** A length of time given in seconds. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return "0 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** A part of a whole. */
export function percent(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(part / whole < 0.1 ? 1 : 0)} %` : "–";
}

/** The time of day. */
export function clock(date) {
  return date.toLocaleTimeString("en-GB");
}

/** "1 message", "2 messages". */
export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

/** A day and a time of day, given in seconds since 1970. */
export function day(seconds) {
  return new Date(seconds * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}
