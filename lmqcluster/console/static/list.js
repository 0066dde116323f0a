// A list of a page: a heading, a table, and a note if the table is cut.

import { answered, asking } from "./asking.js";
import { h, syncRows, table } from "./dom.js";
import { count } from "./format.js";

/** Create a list; an empty one shows `none`. */
export function list(title, columns, none) {
  const grid = table(title, columns);
  const note = asking();
  grid.element.hidden = true;
  return {
    element: h("section", {}, h("h2", {}, title), note, grid.element),
    /** Show why the list cannot be shown. */
    explain: (why) => answered(note, why),
    show(items, total, keyOf, make) {
      grid.element.hidden = items.length === 0;
      answered(note, total === 0 ? none : items.length < total ? `The first ${count(items.length)} of ${count(total)}.` : "");
      note.hidden = note.textContent === "";
      syncRows(grid.body, items, keyOf, make);
    },
  };
}
