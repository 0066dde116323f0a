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

// What a shell takes as it stands; zsh takes a leading = for something else.
const PLAIN_WORD = /^[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*$/;
// Control characters, which a terminal obeys when they are pasted, and characters that are not seen or turn the text around.
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/u;

/** A word of a command line, quoted for bash, zsh and ksh where it has to be. */
export function quoted(word) {
  if (PLAIN_WORD.test(word)) return word;
  if (UNPRINTABLE.test(word)) return escaped(new TextEncoder().encode(word));
  return `'${word.replaceAll("'", "'\\''")}'`;
}

/** The queue's name as a word of a command line. */
export function queueWord(segment) {
  try {
    return quoted(decodeURIComponent(segment));
  } catch {
    const bytes = segment.matchAll(/%([0-9A-F]{2})|[^]/gi);
    return escaped([...bytes].map(([character, code]) => (code ? parseInt(code, 16) : character.charCodeAt(0))));
  }
}

/** Bytes as a word: printable ASCII as it is, all else, quotes and backslashes as escapes. */
function escaped(bytes) {
  const characters = [...bytes].map((byte) => {
    const isPlain = byte >= 0x20 && byte < 0x7f && byte !== 0x27 && byte !== 0x5c;
    return isPlain ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`;
  });
  return `$'${characters.join("")}'`;
}

/** Command, operands and options as one line. All words but the command's are quoted already. */
export function joined(command, operands, options) {
  // An operand that begins with a dash must not be taken for an option.
  const dashed = operands.some((word) => /^(\$?')?-/.test(word));
  const words = dashed ? [...options, "--", ...operands] : [...operands, ...options];
  return [...command, ...words].join(" ");
}
