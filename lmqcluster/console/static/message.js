// One message: everything that the node knows about it, and its actions. Its URL can be kept and passed on.

import { commandBox, commandLine, readOnlyNote } from "./actions.js";
import { get } from "./api.js";
import { answered, asking } from "./asking.js";
import { h, setText, table } from "./dom.js";
import { age, bytes, clock, count, instant } from "./format.js";
import { CONTENT_BYTES_MAX, failureOf, messageContents, stateText } from "./messages.js";
import { queueWord, segmentOf, textOf } from "./names.js";

const NUMBER = /^[1-9]\d{0,17}$/;

export function open({ argument }) {
  const [segment, , number = ""] = argument.split("/");
  const name = textOf(segment);
  const page = { segment, api: `/v1/queues/${segment}`, name };
  const isNumber = NUMBER.test(number);
  const before = isNumber ? String(BigInt(number) - 1n) : "0";
  const status = asking();
  const complaint = h("p", { class: "complaint", role: "alert" });
  const facts = table("Message", [{ label: "What" }, { label: "Value" }]);
  const contents = h("div");
  const reloading = h("button", { type: "button", onclick: load }, "Reload");
  facts.element.hidden = true;

  async function load() {
    try {
      const { messages: [found], stale } = await get(`${page.api}/messages?limit=1&after=${before}&bytes=${CONTENT_BYTES_MAX}`);
      setText(complaint, "");
      show(String(found?.sequence) === number ? { ...found, stale } : null, stale);
    } catch (error) {
      if (error.status === undefined) throw error;
      if (error.status === 404) show(null, false);
      else setText(complaint, error.message);
    }
  }

  function show(message, stale) {
    const copy = stale ? "In this node's own copy, " : "";
    facts.element.hidden = message === null;
    answered(status, message === null ? `${copy}${name} holds no message ${number} now. It was acknowledged, deleted, moved or expired, or it never existed. A moved message has another number.` : `${copy}${copy ? "a" : "A"}s of ${clock(new Date())}.`);
    facts.body.replaceChildren(...(message === null ? [] : factsOf(message).map(factRow)));
    contents.replaceChildren(...(message === null ? [] : messageContents(page, message, load)));
  }

  return {
    title: `Message ${number} of ${name}`,
    element: [
      h("p", { class: "crumbs" }, h("a", { href: "#/queues" }, "Queues"), " / ", h("a", { href: `#/queue/${segment}` }, name), " /"),
      h("h1", { class: "name" }, `Message ${number}`),
      readOnlyNote("write"),
      complaint,
      h("div", { class: "bar" }, isNumber && reloading, status),
      contents,
      facts.element,
      isNumber && h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), commandBox(commandLine("message peek", [queueWord(segment)], ["--after", before, "--max", "1"]))),
    ].filter(Boolean),
    opened: () => (isNumber ? load() : answered(status, `${number || "Nothing"} is not the number of a message.`)),
  };
}

function factRow([what, value]) {
  return h("tr", {}, h("th", { scope: "row" }, what), h("td", { class: "prose" }, value));
}

/** Return names and values, those that the message has. */
function factsOf(message) {
  const { origin, group, label } = message;
  return [
    ["State", stateText(message)],
    ["Pushed", instant(message.pushed_at)],
    ["Due for", ["ready", "leased"].includes(message.state) && age(message.age_s, message.stale)],
    ["Deliveries so far", count(message.deliveries)],
    ["Deliveries left", count(message.deliveries_left)],
    ["Id of its delivery", message.id],
    ["Failure", failureOf(message)],
    ["Came from", origin && [h("a", { href: `#/queue/${segmentOf(origin.queue)}` }, textOf(segmentOf(origin.queue))), `, as message ${origin.sequence}`]],
    ["Priority", message.priority && String(message.priority)],
    ["Group", group && textOf(segmentOf(group))],
    ["Label", label && textOf(segmentOf(label))],
    ["Content type", message.content_type],
    ["Size", bytes(message.size)],
  ].filter(([, value]) => value);
}
