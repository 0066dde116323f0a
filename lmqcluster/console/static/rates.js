// Rates a second from counters that only grow.

/** Differences of the fields of samples that come in one after the other. */
export class Rates {
  constructor(fields) {
    this.fields = fields;
    this.last = null;
  }

  /** Take a sample as of `at` seconds; the rates since the last one, or null. */
  add(at, sample) {
    const last = this.last;
    this.last = { at, sample };
    // The clock starts anew with the node, and the counters with a queue that was deleted and made again.
    if (last === null || at <= last.at || at - last.at > 60) return null;
    const rates = {};
    for (const field of this.fields) {
      const grown = (sample[field] ?? 0) - (last.sample[field] ?? 0);
      if (grown < 0) return null;
      rates[field] = grown / (at - last.at);
    }
    return rates;
  }
}

/** The seconds that this page counts, for what carries no time of its own. */
export function now() {
  return performance.now() / 1000;
}
