// A list of a page: a heading, a table, and a line that says how much of it is shown.

import { h, setText, syncRows, table } from "./dom.js";
import { count } from "./format.js";

/** `none` is shown in place of an empty table. */
export function list(title, columns, none) {
  const grid = table(title, columns);
  const note = h("p", { class: "muted", "aria-live": "polite" });
  grid.element.hidden = true;
  return {
    element: h("section", {}, h("h2", {}, title), note, grid.element),
    show(items, total, keyOf, make) {
      grid.element.hidden = items.length === 0;
      setText(note, total === 0 ? none : items.length < total ? `The first ${count(items.length)} of ${count(total)}.` : "");
      note.hidden = note.textContent === "";
      syncRows(grid.body, items, keyOf, make);
    },
  };
}
