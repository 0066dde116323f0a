// Decoder for MessagePack, which clients of MessagePack-RPC store.

const UTF8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Return the value in `bytes`: strings, numbers, lists, objects; bin and strings that are not UTF-8 as Uint8Array.
 * If `cut` is true, an incomplete string or bin yields its beginning.
 * Throws RangeError if the bytes are not exactly one value.
 */
export function decode(bytes, { cut = false } = {}) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;

  function take(size) {
    const start = at;
    if (at + size > bytes.length && !cut) throw new RangeError("it ends too early");
    at += size;
    return start;
  }

  function raw(size) {
    const start = take(size);
    return bytes.subarray(start, start + size);
  }

  function text(size) {
    const part = raw(size);
    try {
      return UTF8.decode(part);
    } catch {
      return part;
    }
  }

  function length(width) {
    const start = take(width);
    return width === 1 ? view.getUint8(start) : width === 2 ? view.getUint16(start) : view.getUint32(start);
  }

  function list(size) {
    return Array.from({ length: size }, value);
  }

  function map(size) {
    const entries = [];
    for (let place = 0; place < size; place += 1) entries.push([keyText(value()), value()]);
    return Object.fromEntries(entries);
  }

  function value() {
    const tag = view.getUint8(take(1));
    if (tag < 0x80) return tag;
    if (tag < 0x90) return map(tag & 0x0f);
    if (tag < 0xa0) return list(tag & 0x0f);
    if (tag < 0xc0) return text(tag & 0x1f);
    if (tag >= 0xe0) return tag - 0x100;
    return LONGER[tag]();
  }

  const LONGER = {
    0xc0: () => null,
    0xc2: () => false,
    0xc3: () => true,
    0xc4: () => raw(length(1)),
    0xc5: () => raw(length(2)),
    0xc6: () => raw(length(4)),
    0xca: () => view.getFloat32(take(4)),
    0xcb: () => view.getFloat64(take(8)),
    0xcc: () => view.getUint8(take(1)),
    0xcd: () => view.getUint16(take(2)),
    0xce: () => view.getUint32(take(4)),
    0xcf: () => whole(view.getBigUint64(take(8))),
    0xd0: () => view.getInt8(take(1)),
    0xd1: () => view.getInt16(take(2)),
    0xd2: () => view.getInt32(take(4)),
    0xd3: () => whole(view.getBigInt64(take(8))),
    0xd9: () => text(length(1)),
    0xda: () => text(length(2)),
    0xdb: () => text(length(4)),
    0xdc: () => list(length(2)),
    0xdd: () => list(length(4)),
    0xde: () => map(length(2)),
    0xdf: () => map(length(4)),
  };

  try {
    const found = value();
    if (at < bytes.length || (at > bytes.length && typeof found === "object" && !(found instanceof Uint8Array))) throw new RangeError("it is not one value");
    return found;
  } catch (error) {
    // Extension types (ext) have no entry above.
    throw error instanceof TypeError ? new RangeError("it contains an extension type") : error;
  }
}

/** Return a number, or its text if a number cannot represent it exactly. */
function whole(value) {
  return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
}

function keyText(key) {
  return typeof key === "string" ? key : JSON.stringify(key);
}
