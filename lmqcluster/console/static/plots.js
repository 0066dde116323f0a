// The two plots of a page with figures: messages a second, and messages that wait.

import { Chart, chartsTogether } from "./chart.js";
import { count, rate } from "./format.js";

const FLOW = [
  { key: "pushed_total", label: "pushed", format: rate },
  { key: "pulled_total", label: "delivered", format: rate },
  { key: "acked_total", label: "acknowledged", format: rate },
  { key: "redelivered_total", label: "timed out", format: rate },
];
const STOCK = [
  { key: "ready", label: "ready", format: count },
  { key: "leased", label: "leased", format: count },
  { key: "delayed", label: "delayed", format: count },
];

/** Create the plots; `show(samples, current)` draws them. Without a quorum they are not current: the last rates are unknown. */
export function plots() {
  const flow = new Chart("Messages a second", FLOW);
  const stock = new Chart("Messages waiting", STOCK);
  return {
    element: chartsTogether(flow, stock),
    show(samples, current) {
      const all = samples.all();
      flow.show(all.map(({ at, rates }) => ({ at, values: (current || at < samples.tip.at ? rates : null) ?? {} })), current);
      stock.show(all.map(({ at, sums: values }) => ({ at, values })), current);
    },
  };
}
