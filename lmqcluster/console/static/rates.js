// Rates per second of counters.

const WINDOW_S = 5.5;
const GAP_S = 60;

/** Rates of the fields of successive samples. */
export class Rates {
  constructor(fields) {
    this.fields = fields;
    this.samples = [];
  }

  /** Add a sample of time `at` in seconds; return the rates since the last sample, or null. */
  add(at, sample) {
    const last = this.samples.at(-1);
    const rates = last === undefined ? null : this.between(last, { at, sample });
    // The clock restarts with the node, and the counters with a queue that is deleted and created again.
    if (rates === null) this.samples = [];
    this.samples.push({ at, sample });
    while (this.samples[0].at < at - WINDOW_S) this.samples.shift();
    return rates;
  }

  /** Return the rates over about the last five seconds, which vary less; null before there are two samples. */
  recent() {
    return this.samples.length < 2 ? null : this.between(this.samples[0], this.samples.at(-1));
  }

  between(one, other) {
    const seconds = other.at - one.at;
    if (seconds <= 0 || seconds > GAP_S) return null;
    const rates = {};
    for (const field of this.fields) {
      const grown = (other.sample[field] ?? 0) - (one.sample[field] ?? 0);
      if (grown < 0) return null;
      rates[field] = grown / seconds;
    }
    return rates;
  }
}

/** Return the clock of this page in seconds, for samples without a time. */
export function now() {
  return performance.now() / 1000;
}
