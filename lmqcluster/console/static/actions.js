// What changes something: each action says first what it will do, to what, and with which command lmq-admin does the same.

import { ApiError, access, may } from "./api.js";
import { announce, h, setText } from "./dom.js";
import { joined, quoted } from "./names.js";

/** The lmq-admin line that does the same through the same node. `operands` and `options` are quoted already. */
export function commandLine(command, operands = [], options = []) {
  const node = location.host === "127.0.0.1:9980" ? [] : ["--node", quoted(location.host)];
  const authority = location.protocol === "https:" ? ["--ca-file", "ca.crt"] : [];
  return joined(["lmq-admin", ...authority, ...node, ...command.split(" ")], operands, options);
}

/** A command line with a button that copies it. */
export function commandBox(line) {
  const copy = h("button", { type: "button", class: "quiet small" }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(box.querySelector("code").textContent);
    announce("Copied.");
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  const box = h("div", { class: "command" }, h("code", {}, line), copy);
  return box;
}

/** A button that needs a role; where the token does not give it the button is off and says why. */
export function actionButton(label, role, onclick, { kind = "" } = {}) {
  const allowed = may(role);
  return h(
    "button",
    { type: "button", class: kind, disabled: !allowed, title: allowed ? undefined : refusal(role), onclick },
    label,
  );
}

/** Why an action that needs `role` is off. */
export function refusal(role) {
  return `This needs the role ${role}; the token has the role ${access.role}.`;
}

/** A line that says that a page is read-only, or nothing. */
export function readOnlyNote(role) {
  return may(role) ? null : h("p", { class: "note" }, `Read-only: ${refusal(role)}`);
}

/**
 * Ask before doing something.
 *
 * @param {object} what
 *   title: a heading; text: what will happen, as texts or elements; fields: form controls, as made by `field`;
 *   command(values): the line of lmq-admin; run(values): does it and returns what is said of it afterwards;
 *   verb: label of the button; danger: whether it destroys something; typed: a text that must be typed in first.
 * @returns a promise of whether it was done.
 */
export function ask({ title, text = [], fields = [], command, run, verb, danger = false, typed = "" }) {
  return new Promise((resolve) => {
    const line = commandBox("");
    const complaint = h("p", { class: "complaint", role: "alert" });
    const go = h("button", { type: "submit", class: danger ? "danger" : "main" }, verb);
    const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
    const proof = typed ? field("proof", `Type ${typed} to go on`, h("input", { autocomplete: "off", spellcheck: "false" })) : null;
    const form = h(
      "form",
      {},
      h("h2", { id: "dialog-title" }, title),
      text.map((one) => (typeof one === "string" ? h("p", {}, one) : one)),
      fields.map((one) => one.element),
      proof?.element,
      command ? h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), line) : null,
      complaint,
      h("div", { class: "buttons" }, cancel, go),
    );
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    const values = () => Object.fromEntries(fields.map((one) => [one.name, one.read()]));
    let done = false;

    function refresh() {
      go.disabled = proof !== null && proof.read() !== typed;
      if (command) setText(line.querySelector("code"), command(values()));
    }

    /** While somebody types a value may be unfinished: the command stays as it was, and it is said why. */
    function check() {
      try {
        refresh();
        complaint.textContent = "";
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        complaint.textContent = error.message;
      }
    }

    async function submit(event) {
      event.preventDefault();
      if (go.disabled) return;
      go.disabled = true;
      complaint.textContent = "";
      try {
        announce((await run(values())) ?? "Done.");
        done = true;
        dialog.close();
      } catch (error) {
        if (!(error instanceof ApiError || error instanceof RangeError)) throw error;
        complaint.textContent = error.message;
      } finally {
        go.disabled = false;
      }
    }

    form.addEventListener("input", check);
    form.addEventListener("submit", submit);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(done);
    });
    refresh();
    document.body.append(dialog);
    dialog.showModal();
    (form.querySelector("input, textarea, select") ?? (danger ? cancel : go)).focus();
  });
}

let fieldCount = 0;

/** A labelled control; `read` returns its text, or whether a box is ticked. */
export function field(name, label, control, hint = "") {
  const id = `field-${(fieldCount += 1)}`;
  control.id = id;
  control.name = name;
  const box = control.type === "checkbox";
  const note = hint ? h("span", { class: "hint", id: `${id}-hint` }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  const caption = h("label", { for: id }, label);
  const element = box ? h("div", { class: "field box" }, control, caption, note) : h("div", { class: "field" }, caption, control, note);
  return { name, element, control, read: () => (box ? control.checked : control.value) };
}
