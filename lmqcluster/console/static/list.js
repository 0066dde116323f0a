// A list of a page: a heading, a table, and a note if the table is cut.

import { h, setText, syncRows, table } from "./dom.js";
import { count } from "./format.js";

/** Create a list; an empty one shows `none`. Without the answer of the node it says so. */
export function list(title, columns, none) {
  const grid = table(title, columns);
  const note = h("p", { class: "muted", "aria-live": "polite" }, "Asking the node …");
  grid.element.hidden = true;
  return {
    element: h("section", {}, h("h2", {}, title), note, grid.element),
    /** Show why the list cannot be shown. */
    explain: (why) => setText(note, why),
    show(items, total, keyOf, make) {
      grid.element.hidden = items.length === 0;
      setText(note, total === 0 ? none : items.length < total ? `The first ${count(items.length)} of ${count(total)}.` : "");
      note.hidden = note.textContent === "";
      syncRows(grid.body, items, keyOf, make);
    },
  };
}
