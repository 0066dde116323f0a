// Creation and update of elements. Text is always set as text, so data of clients cannot become markup.

/** Create an element; `attributes` may contain listeners (onclick), `class`, `dataset` and properties such as `value`. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** Create an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Set the text of an element if it has changed. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Update the rows of a table body to `items`. Rows are kept by key, so that focus and selection survive.
 * `make(item)` returns {element, update(item)}.
 */
export function syncRows(body, items, keyOf, make) {
  const rows = (body.rowsByKey ??= new Map());
  const wanted = new Set(items.map(keyOf));
  for (const [key, row] of rows) {
    if (!wanted.has(key)) {
      row.element.remove();
      rows.delete(key);
    }
  }
  items.forEach((item, place) => {
    const key = keyOf(item);
    let row = rows.get(key);
    if (row === undefined) {
      row = make(item);
      rows.set(key, row);
    }
    row.update(item);
    const there = body.children[place];
    if (there !== row.element) body.insertBefore(row.element, there ?? null);
  });
}

/** Create a row whose texts are `cells(item)`; columns are {numeric}, {word} for cells without wrapping, {prose} for sentences, or {}. */
export function textRow(columns, cells, first) {
  const elements = columns.map((column, place) =>
    h(place === 0 ? "th" : "td", { class: column.numeric ? "number" : column.word ? "word" : column.prose ? "prose" : undefined, scope: place === 0 ? "row" : undefined }),
  );
  if (first) elements[0].append(first);
  return {
    element: h("tr", {}, elements),
    update(item) {
      cells(item).forEach((text, place) => {
        if (place === 0 && first) return;
        setText(elements[place], text);
      });
    },
  };
}

/** Create a table with a caption for screen readers, in a box that scrolls separately on narrow screens. */
export function table(caption, columns) {
  const body = h("tbody");
  const head = h(
    "tr",
    {},
    columns.map((column) => h("th", { scope: "col", class: column.numeric ? "number" : undefined, title: column.title }, column.head ?? column.label)),
  );
  const element = h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, head), body));
  return { element, body, head };
}

const NAME_CHARACTERS_MAX = 60;
const NAME_START = 30;
const NAME_END = 22;

/**
 * Return the name of a queue that wraps after separators instead of within words. A long name is shortened in the middle,
 * because names differ most at both ends; a pointer shows all of it.
 */
export function wrapping(name) {
  if (name.length > NAME_CHARACTERS_MAX) return [h("span", { title: name }, wrapping(`${name.slice(0, NAME_START)}…${name.slice(-NAME_END)}`))];
  return name.split(/(?<=[/._:-])/).flatMap((part, place) => (place ? [h("wbr"), part] : part));
}

/** Announce a text to screen readers. */
export function announce(text) {
  const announcer = document.getElementById("announcer");
  announcer.textContent = "";
  announcer.textContent = text;
}

/** Return a function that calls `action` after `delay` milliseconds without further calls. */
export function debounce(action, delay) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), delay);
  };
}
