// Readable forms of numbers and times.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const PLAIN = new Intl.NumberFormat("en", { maximumFractionDigits: 3, useGrouping: false });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Return a count with separators; a dash if it is unknown. */
export function count(value) {
  return value === null || value === undefined ? "–" : WHOLE.format(value);
}

/** Return a short count for an axis up to `most`, which has one unit: 15,000 is 15k. */
export function short(value, most = value) {
  if (value === 0) return "0";
  const size = Math.abs(most);
  if (size >= 1e9) return `${trim(value / 1e9)}G`;
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  if (size >= 1e4) return `${trim(value / 1e3)}k`;
  return trim(value);
}

function trim(value) {
  return PLAIN.format(Number(value.toPrecision(3)));
}

/** Return a rate in events per second. Without a quorum it is unknown. */
export function rate(value, stale = false) {
  if (stale || value === null || value === undefined || Number.isNaN(value)) return "–";
  return value !== 0 && Math.abs(value) < 10 ? value.toFixed(1) : WHOLE.format(value);
}

/** Return a size in binary units. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? WHOLE.format(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** Return a duration given in seconds. */
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

/** Return the age of a message. Without a quorum the cluster's clock stops, so the age is a lower bound. */
export function age(seconds, stale) {
  return stale && seconds > 0 ? `≥ ${duration(seconds)}` : duration(seconds);
}

/** Return a part of a whole as a percentage. */
export function percent(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(part / whole < 0.1 ? 1 : 0)} %` : "–";
}

/** Return the time of day. */
export function clock(date) {
  return date.toLocaleTimeString("en-GB");
}

/** Return a count with its noun: "1 message", "2 messages". */
export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

/** Return the date and the time of seconds since 1970, to the minute. */
export function day(seconds) {
  return new Date(seconds * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** Return the date and the time of seconds since 1970, to the second. */
export function instant(seconds) {
  return new Date(seconds * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}
