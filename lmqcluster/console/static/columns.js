// Visible columns of a table, stored in the browser.

import { h } from "./dom.js";

const KEY = "lmqcluster.columns.";

/** Return the numbers of the hidden columns of a table; the first column is always visible. */
function stored(name, columns) {
  const labels = (localStorage.getItem(KEY + name) ?? "").split("|");
  return new Set(columns.map((column, place) => (place > 0 && labels.includes(column.label) ? place : -1)).filter((place) => place > 0));
}

/**
 * Create check boxes that show and hide the columns of a table.
 * `name` is the key of the table in the browser's storage.
 */
export function columnChoice(name, columns, grid) {
  const hidden = stored(name, columns);
  const element = grid.element.querySelector("table");

  function apply() {
    columns.forEach((_column, place) => element.classList.toggle(`without-${place + 1}`, hidden.has(place)));
  }

  function choose(place, shows) {
    if (shows) hidden.delete(place);
    else hidden.add(place);
    localStorage.setItem(KEY + name, [...hidden].map((one) => columns[one].label).join("|"));
    apply();
  }

  const boxes = columns.slice(1).map(({ label }, index) => {
    const place = index + 1;
    const box = h("input", { type: "checkbox", checked: !hidden.has(place), onchange: () => choose(place, box.checked) });
    return h("label", {}, box, ` ${label}`);
  });
  apply();
  const summary = h("summary", {}, "Columns");
  const list = h("details", { class: "columns" }, summary, h("div", { class: "boxes" }, boxes));
  list.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !list.open) return;
    list.open = false;
    summary.focus();
  });
  return { element: list };
}
