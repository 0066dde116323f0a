// Queue names are bytes. The node gives a string where they are UTF-8, else {base64}; in addresses they are one percent-encoded
// segment, which is what the console calls a queue by everywhere.

/** The segment of an address for a name as the node gives it. */
export function segmentOf(name) {
  if (typeof name === "string") return encodeURIComponent(name);
  return [...atob(name.base64)].map((byte) => `%${byte.charCodeAt(0).toString(16).padStart(2, "0").toUpperCase()}`).join("");
}

/** What people see of a segment; bytes that are not UTF-8 as \xNN. */
export function textOf(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment.replace(/%([0-9A-F]{2})/gi, (escape, code) => (PRINTABLE.test(code) ? String.fromCharCode(parseInt(code, 16)) : `\\x${code}`));
  }
}

// The codes of printable ASCII.
const PRINTABLE = /^([2-6][0-9A-F]|7[0-9A-E])$/i;

/** A word of a command line, quoted for a POSIX shell where it has to be. */
export function quoted(word) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The queue's name as a word of a command line. */
export function queueWord(segment) {
  const text = textOf(segment);
  if (encodeURIComponent(text) === segment) return quoted(text);
  return `$'${text.replaceAll("'", "\\'")}'`;
}
