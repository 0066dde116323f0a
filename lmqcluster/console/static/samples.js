// The sums of the last ten minutes: what the node remembers, and what has been seen since.

import { Rates } from "./rates.js";

const KEPT_S = 600;
const COUNTERS = ["pushed_total", "pulled_total", "acked_total", "nacked_total", "redelivered_total", "dropped_total"];

export class Samples {
  constructor() {
    this.all = [];
    this.rates = new Rates(COUNTERS);
    this.version = 0;
  }

  /** Take an overview, with or without history. */
  take({ totals, history }) {
    if (history || (this.all.length && totals.at_s < this.all.at(-1).at)) this.begin(history ?? []);
    this.add(totals);
  }

  begin(history) {
    const known = this.all;
    this.all = [];
    this.rates = new Rates(COUNTERS);
    this.version += 1;
    const first = known[0]?.sums.at_s ?? Infinity;
    const restarted = history.length > 0 && known.length > 0 && history.at(-1).at_s < known.at(-1).at - 6;
    history.filter((sums) => restarted || sums.at_s < first).forEach((sums) => this.add(sums));
    if (!restarted) known.forEach(({ sums }) => this.add(sums));
    const last = this.all.at(-1)?.at ?? -Infinity;
    history.filter((sums) => sums.at_s > last).forEach((sums) => this.add(sums));
  }

  add(sums) {
    const last = this.all.at(-1);
    if (last && sums.at_s <= last.at) return;
    this.all.push({ at: sums.at_s, sums, rates: this.rates.add(sums.at_s, sums) });
    while (this.all[0].at < sums.at_s - KEPT_S) this.all.shift();
  }
}
