// A line that names the node that is asked, and since when, until its answer is shown in its place.

import { connection } from "./api.js";
import { h, setText } from "./dom.js";
import { clock } from "./format.js";

/** Create the line. */
export function asking() {
  const element = h("p", { class: "muted", "aria-live": "polite", dataset: { since: clock(new Date()) } });
  describe(element);
  return element;
}

/** Show a text instead. */
export function answered(element, text) {
  delete element.dataset.since;
  setText(element, text);
}

/** Update the lines of the page, after the node's name or its quorum has become known. */
export function updateAsking() {
  document.querySelectorAll("[data-since]").forEach(describe);
}

function describe(element) {
  const slow = connection.quorum ? "" : " Without a quorum this takes some seconds, and the answer is this node's own copy.";
  setText(element, `Asking ${connection.node} since ${element.dataset.since} …${slow}`);
}
