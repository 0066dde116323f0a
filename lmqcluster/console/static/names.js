// Queue names are bytes. The node returns a string for UTF-8, else {base64}. In URLs, a name is one percent-encoded
// segment, which the console uses as the key of a queue.

/** Return the URL segment for a name of the node. */
export function segmentOf(name) {
  if (typeof name === "string") return encodeURIComponent(name);
  return [...atob(name.base64)].map((byte) => `%${byte.charCodeAt(0).toString(16).padStart(2, "0").toUpperCase()}`).join("");
}

/** Return the readable form of a segment; bytes that are not UTF-8 become \xNN. */
export function textOf(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment.replace(/%([0-9A-F]{2})/gi, (escape, code) => (PRINTABLE.test(code) ? String.fromCharCode(parseInt(code, 16)) : `\\x${code}`));
  }
}

// Codes of printable ASCII.
const PRINTABLE = /^([2-6][0-9A-F]|7[0-9A-E])$/i;

// Words that need no quotes in a shell; zsh expands a leading =.
const PLAIN_WORD = /^[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*$/;
// Control characters, which a terminal executes when pasted, and characters that are invisible or reverse the text.
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/u;

/** Return a word of a command line, quoted for bash, zsh and ksh if necessary. */
export function quoted(word) {
  if (PLAIN_WORD.test(word)) return word;
  if (UNPRINTABLE.test(word)) return escaped(new TextEncoder().encode(word));
  return `'${word.replaceAll("'", "'\\''")}'`;
}

/** Return the name of a queue as a word of a command line. */
export function queueWord(segment) {
  try {
    return quoted(decodeURIComponent(segment));
  } catch {
    const bytes = segment.matchAll(/%([0-9A-F]{2})|[^]/gi);
    return escaped([...bytes].map(([character, code]) => (code ? parseInt(code, 16) : character.charCodeAt(0))));
  }
}

/** Return bytes as a word: printable ASCII unchanged; other bytes, quotes and backslashes escaped. */
function escaped(bytes) {
  const characters = [...bytes].map((byte) => {
    const isPlain = byte >= 0x20 && byte < 0x7f && byte !== 0x27 && byte !== 0x5c;
    return isPlain ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`;
  });
  return `$'${characters.join("")}'`;
}

/** Return command, operands and options as one line. Operands and options are already quoted. */
export function joined(command, operands, options) {
  // After "--", an operand that begins with a dash is not an option.
  const dashed = operands.some((word) => /^(\$?')?-/.test(word));
  const words = dashed ? [...options, "--", ...operands] : [...operands, ...options];
  return [...command, ...words].join(" ");
}
