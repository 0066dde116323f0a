// Line charts of the last hour, drawn as SVG.

import { h, setText, svg } from "./dom.js";
import { duration, short } from "./format.js";

const WIDTH_BEFORE_SHOWN = 600;
const HEIGHT = 160;
const LEFT = 44;
const RIGHT = 6;
const TOP = 8;
const BOTTOM = 20;
const GAP_S = 30;
// The shown span grows with the data, up to the selected span.
const SPANS = [60, 120, 300, 600, 1800, 3600];
const CHOICES = [[600, "10 minutes"], [3600, "1 hour"]];
const CHOICE_KEY = "lmqcluster.span";
// A short burst is cut if it exceeds the usual values by this factor, because it would flatten all others.
const BURST_FACTOR = 4;
const USUAL_SHARE = 0.9;
const FEW_POINTS = 20;

/** A chart of several series over time. `series` is [{key, label, format}], at most four. */
export class Chart {
  constructor(title, series, { format = short } = {}) {
    this.title = title;
    this.series = series;
    this.span = chosenSpan();
    this.together = [this];
    this.format = format;
    this.known = [];
    this.current = true;
    this.points = [];
    this.pointer = null;
    this.lines = series.map((_, place) => svg("path", { class: `line line-${place}` }));
    this.grid = svg("g", { class: "grid" });
    this.cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    this.cut = svg("text", { class: "cut", y: TOP + 4, "text-anchor": "end" });
    this.missing = svg("text", { class: "missing", y: (HEIGHT - BOTTOM) / 2, "text-anchor": "middle" });
    this.picture = svg("svg", { role: "img", "aria-label": title }, this.grid, ...this.lines, this.cut, this.missing, this.cursor);
    this.values = series.map(() => h("b", {}, "–"));
    this.when = h("span", { class: "muted when" }, "now");
    const legend = h(
      "ul",
      { class: "legend" },
      series.map(({ label }, place) => h("li", {}, swatch(place), ` ${label} `, this.values[place])),
    );
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, h("span", {}, title), this.when), this.picture, legend);
    this.resize(WIDTH_BEFORE_SHOWN);
    new ResizeObserver(([{ contentRect }]) => contentRect.width > 0 && this.resize(contentRect.width)).observe(this.picture);
    this.picture.addEventListener("pointermove", (event) => this.point(event));
    this.picture.addEventListener("pointerleave", () => this.point(null));
  }

  /** Fit the drawing to its width, so that its text keeps its size. */
  resize(width) {
    this.width = Math.round(width);
    this.picture.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.draw();
  }

  /** Show points: `at` in seconds, `values` by key; the oldest first. `current` is false if the last one may be old. */
  show(points, current = true) {
    this.known = points;
    this.current = current;
    this.draw();
  }

  draw() {
    const last = this.known.at(-1);
    if (last === undefined) return;
    this.points = this.known.filter(({ at }) => at >= last.at - this.span);
    const largest = this.points.map(({ values }) => Math.max(0, ...this.series.map(({ key }) => values[key] ?? 0)));
    const most = Math.max(1, ...largest);
    const { top, step } = scale(usualMost(largest) ?? most);
    this.shown = SPANS.find((span) => span >= Math.min(this.span, last.at - this.points[0].at));
    this.x = (at) => LEFT + ((at - last.at + this.shown) / this.shown) * (this.width - LEFT - RIGHT);
    this.y = (value) => HEIGHT - BOTTOM - Math.min(value / top, 1) * (HEIGHT - TOP - BOTTOM);
    this.cut.setAttribute("x", this.width - RIGHT);
    setText(this.cut, most > top ? `cut off; up to ${this.format(most)}` : "");
    this.missing.setAttribute("x", (LEFT + this.width - RIGHT) / 2);
    setText(this.missing, this.whyEmpty());
    this.drawGrid(top, step);
    this.series.forEach(({ key }, place) => this.lines[place].setAttribute("d", this.path(key)));
    this.showValues();
  }

  /** Return why there is no line yet, or "": a line needs two points. */
  whyEmpty() {
    const isKnown = ({ values }) => this.series.some(({ key }) => (values[key] ?? null) !== null);
    if (this.points.filter(isKnown).length > 1) return "";
    return this.current || isKnown(this.points.at(-1)) ? "Data is being collected." : "Unknown without a quorum.";
  }

  drawGrid(top, step) {
    const marks = `${top} ${step} ${this.shown} ${this.width}`;
    if (this.marks === marks) return;
    this.marks = marks;
    const parts = [];
    for (let value = 0; value <= top + step / 2; value += step) {
      const y = this.y(value);
      parts.push(svg("line", { x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }));
      parts.push(svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, this.format(value, top)));
    }
    for (const share of this.shown === 300 ? [1, 0.6, 0.2, 0] : [1, 0.5, 0]) {
      const anchor = share === 1 ? "start" : share === 0 ? "end" : "middle";
      const label = share === 0 ? "now" : `${duration(this.shown * share)} ago`;
      parts.push(svg("text", { x: LEFT + (1 - share) * (this.width - LEFT - RIGHT), y: HEIGHT - 4, "text-anchor": anchor }, label));
    }
    this.grid.replaceChildren(...parts);
  }

  path(key) {
    let path = "";
    let before = null;
    for (const { at, values } of this.points) {
      const value = values[key];
      if (value === null || value === undefined) continue;
      const moves = before === null || at - before > GAP_S;
      path += `${moves ? "M" : "L"}${this.x(at).toFixed(1)} ${this.y(value).toFixed(1)}`;
      before = at;
    }
    return path;
  }

  /** Show the values at the pointer, in all linked charts. */
  point(event) {
    let pointer = null;
    if (event !== null) {
      const box = this.picture.getBoundingClientRect();
      pointer = 1 - (event.clientX - box.left - LEFT) / (this.width - LEFT - RIGHT);
    }
    for (const chart of this.together) {
      chart.pointer = pointer;
      if (chart.points.length) chart.showValues();
    }
  }

  showValues() {
    const last = this.points.at(-1);
    let shown = last;
    if (this.pointer !== null) {
      const wanted = last.at - this.pointer * this.shown;
      shown = this.points.reduce((best, point) => (Math.abs(point.at - wanted) < Math.abs(best.at - wanted) ? point : best));
      this.cursor.setAttribute("x1", this.x(shown.at));
      this.cursor.setAttribute("x2", this.x(shown.at));
    }
    this.cursor.setAttribute("visibility", this.pointer === null ? "hidden" : "visible");
    const ago = last.at - shown.at;
    setText(this.when, ago < 0.5 ? (this.current ? "now" : "last known") : `${duration(ago)} ago`);
    const spoken = this.series.map(({ key, label, format = this.format }, place) => {
      const value = shown.values[key];
      const text = value === null || value === undefined ? "–" : format(value);
      setText(this.values[place], text);
      return `${label} ${text}`;
    });
    if (this.pointer === null) this.picture.setAttribute("aria-label", `${this.title}: ${[this.whyEmpty(), ...spoken].filter(Boolean).join(", ")}`);
  }
}

/** Link charts of the same time: one pointer for all, and a choice of the span. */
export function chartsTogether(...charts) {
  const options = CHOICES.map(([span, text]) => h("option", { value: String(span), selected: span === charts[0].span }, text));
  const select = h("select", { class: "small", id: "span" }, options);
  select.addEventListener("change", () => {
    localStorage.setItem(CHOICE_KEY, select.value);
    for (const chart of charts) {
      chart.span = chosenSpan();
      chart.draw();
    }
  });
  for (const chart of charts) chart.together = charts;
  return h(
    "section",
    { "aria-label": "Plots" },
    h("div", { class: "bar plots" }, h("div", { class: "spring" }), h("label", { for: "span", class: "muted" }, "Plots show at most"), select),
    h("div", { class: "pair" }, charts.map((chart) => chart.element)),
  );
}

function chosenSpan() {
  const stored = Number(localStorage.getItem(CHOICE_KEY));
  return CHOICES.some(([span]) => span === stored) ? stored : CHOICES.at(-1)[0];
}

function swatch(place) {
  return svg("svg", { class: "swatch", viewBox: "0 0 18 6", "aria-hidden": "true" }, svg("path", { class: `line line-${place}`, d: "M0 3H18" }));
}

/** Return the largest of the usual values if some earlier ones exceed it by far; else null. */
function usualMost(values) {
  if (values.length < FEW_POINTS) return null;
  const sorted = [...values].sort((one, other) => one - other);
  // What happens now is always shown.
  const usual = Math.max(sorted[Math.floor(USUAL_SHARE * (sorted.length - 1))], values.at(-1));
  return usual >= 1 && sorted.at(-1) > BURST_FACTOR * usual ? 1.5 * usual : null;
}

/** Return a round number at or above `most`, and the distance of the grid lines. */
function scale(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  for (const [factor, lines] of [[1, 4], [1.5, 3], [2, 4], [3, 3], [4, 4], [5, 5], [6, 3], [8, 4], [10, 4]]) {
    if (power * factor >= most) return { top: power * factor, step: (power * factor) / lines };
  }
  return { top: power * 10, step: power * 2.5 };
}
