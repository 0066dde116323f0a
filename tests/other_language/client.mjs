// A client for one connection, written from docs/messagepack-rpc*.md alone. Strings in answers are Buffers, maps are Maps.

import net from "node:net";

const CODES = {
  undef: "unknown_method",
  function_clause: "bad_arguments",
  "throw:invalid": "bad_property",
  "throw:invalid_regexp": "bad_pattern",
  "throw:not_found": "not_found",
  "throw:queue_not_found": "queue_not_found",
};

/** A request that failed. */
export class LmqError extends Error {
  constructor(text) {
    super(text);
    this.code = CODES[text] ?? text.split(": ", 1)[0];
  }
}

function encode(value) {
  if (value === null) return Buffer.from([0xc0]);
  if (typeof value === "boolean") return Buffer.from([value ? 0xc3 : 0xc2]);
  if (typeof value === "number") return encodeNumber(value);
  if (typeof value === "string") return encode(Buffer.from(value));
  if (Buffer.isBuffer(value)) return Buffer.concat([head(value.length, 0xa0, 31, 0xda), value]);
  if (Array.isArray(value)) return Buffer.concat([head(value.length, 0x90, 15, 0xdc), ...value.map(encode)]);
  const entries = Object.entries(value);
  return Buffer.concat([head(entries.length, 0x80, 15, 0xde), ...entries.flat().map(encode)]);
}

function encodeNumber(value) {
  if (value >= 0 && value < 128 && Number.isInteger(value)) return Buffer.from([value]);
  const data = Buffer.alloc(9);
  data[0] = Number.isSafeInteger(value) ? 0xd3 : 0xcb;
  if (data[0] === 0xd3) data.writeBigInt64BE(BigInt(value), 1);
  else data.writeDoubleBE(value, 1);
  return data;
}

function head(size, short, shortMax, long) {
  if (size <= shortMax) return Buffer.from([short | size]);
  const data = Buffer.from([size < 0x10000 ? long : long + 1, 0, 0, 0, 0]);
  data.writeUIntBE(size, 1, size < 0x10000 ? 2 : 4);
  return data.subarray(0, size < 0x10000 ? 3 : 5);
}

/** The value at the start of the data and the bytes behind it, or null if it is not complete. */
function decode(data) {
  let at = 0;
  const incomplete = new Error("incomplete");
  const take = (size) => {
    if (at + size > data.length) throw incomplete;
    at += size;
    return data.subarray(at - size, at);
  };
  const wide = (value) => (Number.isSafeInteger(Number(value)) ? Number(value) : value);
  const unsigned = (size) => (size < 8 ? take(size).readUIntBE(0, size) : wide(take(8).readBigUInt64BE()));
  const signed = (size) => (size < 8 ? take(size).readIntBE(0, size) : wide(take(8).readBigInt64BE()));
  const array = (size) => Array.from({ length: size }, () => read());
  const map = (size) => new Map(Array.from({ length: size }, () => [String(read()), read()]));
  const read = () => {
    const first = take(1)[0];
    if (first < 0x80) return first;
    if (first < 0x90) return map(first & 15);
    if (first < 0xa0) return array(first & 15);
    if (first < 0xc0) return take(first & 31);
    if (first >= 0xe0) return first - 256;
    if (first === 0xc0) return null;
    if (first === 0xc2 || first === 0xc3) return first === 0xc3;
    if (first === 0xcb) return take(8).readDoubleBE();
    if (first >= 0xcc && first <= 0xcf) return unsigned(1 << (first - 0xcc));
    if (first >= 0xd0 && first <= 0xd3) return signed(1 << (first - 0xd0));
    if (first === 0xda || first === 0xdb) return take(unsigned(first === 0xda ? 2 : 4));
    if (first === 0xdc || first === 0xdd) return array(unsigned(first === 0xdc ? 2 : 4));
    if (first === 0xde || first === 0xdf) return map(unsigned(first === 0xde ? 2 : 4));
    throw new Error(`the node sent a value of type ${first}`);
  };
  try {
    return [read(), data.subarray(at)];
  } catch (error) {
    if (error === incomplete) return null;
    throw error;
  }
}

export class Client {
  #socket;
  #received = Buffer.alloc(0);
  #waiting = new Map();
  #msgid = 0;

  constructor(host, port) {
    this.#socket = net.connect(port, host).setNoDelay();
    this.#socket.on("data", (data) => this.#receive(data));
    this.#socket.on("error", () => {}); // "close" follows.
    this.#socket.on("close", () => this.#lost());
  }

  /** Send a request; resolves to the result. `cancel` takes the `msgid` of what is returned. */
  call(method, ...args) {
    const msgid = ++this.#msgid;
    const answer = new Promise((resolve, reject) => this.#waiting.set(msgid, { resolve, reject }));
    this.#socket.write(encode([0, msgid, method, args]));
    return Object.assign(answer, { msgid });
  }

  notify(method, ...args) {
    this.#socket.write(encode([2, method, args]));
  }

  close() {
    this.#socket.end();
  }

  #receive(data) {
    this.#received = Buffer.concat([this.#received, data]);
    try {
      for (let found; (found = decode(this.#received)); this.#received = found[1]) this.#answered(found[0]);
    } catch (error) {
      this.#socket.destroy(error);
    }
  }

  #answered([, msgid, error, result]) {
    const { resolve, reject } = this.#waiting.get(msgid);
    this.#waiting.delete(msgid);
    if (error === null) resolve(result);
    else reject(new LmqError(error.toString()));
  }

  #lost() {
    for (const { reject } of this.#waiting.values()) reject(new LmqError("unknown_outcome: the connection was lost"));
    this.#waiting.clear();
  }
}
