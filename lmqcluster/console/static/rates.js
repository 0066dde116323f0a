// Rates a second from counters that only grow.

const WINDOW_S = 5.5;
const GAP_S = 60;

/** Differences of the fields of samples that come in one after the other. */
export class Rates {
  constructor(fields) {
    this.fields = fields;
    this.samples = [];
  }

  /** Take a sample as of `at` seconds; the rates since the last one, or null. */
  add(at, sample) {
    const last = this.samples.at(-1);
    const rates = last === undefined ? null : this.between(last, { at, sample });
    // The clock starts again with the node, and the counters with a queue that was deleted and made again.
    if (rates === null) this.samples = [];
    this.samples.push({ at, sample });
    while (this.samples[0].at < at - WINDOW_S) this.samples.shift();
    return rates;
  }

  /** The rates over about the last five seconds, which are calmer; null before there are two samples. */
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

/** The seconds that this page counts, for what carries no time of its own. */
export function now() {
  return performance.now() / 1000;
}
