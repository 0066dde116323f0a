// Counts and counters of the last hour: the history of the node, and the samples since.

import { Rates } from "./rates.js";

const KEPT_S = 3600;
// The node keeps a sample every ten seconds. Samples in between only move the last point.
const APART_S = 9.5;

export class Samples {
  constructor(counters) {
    this.counters = counters;
    this.begin([]);
  }

  /** Start over with the history of the node, the oldest first. */
  begin(history) {
    this.rates = new Rates(this.counters);
    this.settled = [];
    this.tip = null;
    history.forEach((sums) => this.add(sums));
  }

  /**
   * Add the counts and counters of time `at_s`. `current` is false while the node may miss changes, as without a quorum;
   * it learns of them later, all at once. So there is no rate since such a sample, nor until it.
   */
  add(sums, current = true) {
    const at = sums.at_s;
    if (this.tip !== null && at <= this.tip.at) return;
    if (!current || this.tip?.current === false) this.rates = new Rates(this.counters);
    this.rates.add(at, sums);
    const last = this.settled.at(-1);
    const rates = last === undefined || !current || !last.current ? null : this.rates.between({ at: last.at, sample: last.sums }, { at, sample: sums });
    this.tip = { at, sums, rates: this.rates.recent() ?? rates, current };
    if (last !== undefined && at - last.at < APART_S) return;
    this.settled.push({ at, sums, rates, current });
    while (this.settled[0].at < at - KEPT_S) this.settled.shift();
  }

  /** Return all samples, the oldest first. */
  all() {
    if (this.tip === null) return [];
    // The last sample has the rates of the last seconds, as shown in the tiles.
    const before = this.settled.at(-1).at === this.tip.at ? this.settled.slice(0, -1) : this.settled;
    return [...before, this.tip];
  }

  /** Return by how much a counter has grown in the last `seconds`, or since the oldest sample. */
  grown(counter, seconds) {
    return this.tip.sums[counter] - this.settled.find(({ at }) => at >= this.tip.at - seconds).sums[counter];
  }
}
