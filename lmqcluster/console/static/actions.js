// Actions that change something. Each first shows its effect and the equivalent lmq-admin command.

import { ApiError, access, connection, may } from "./api.js";
import { announce, h, setText } from "./dom.js";
import { joined, quoted } from "./names.js";

/** Return the equivalent lmq-admin command for the same node. `operands` and `options` are already quoted. */
export function commandLine(command, operands = [], options = []) {
  const node = location.host === "127.0.0.1:9980" ? [] : ["--node", quoted(location.host)];
  const authority = location.protocol === "https:" ? ["--ca-file", "ca.crt"] : [];
  return joined(["lmq-admin", ...authority, ...node, ...command.split(" ")], operands, options);
}

/** Create a box with a command line and a button that copies it. */
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

/**
 * Create a button for an action that needs a role and, unless it is `local`, a quorum. `unless()` returns another reason
 * why it is impossible now, or "". While the action is impossible, the button is disabled and its title states the
 * reason; otherwise the title is `hint`.
 */
export function actionButton(label, role, onclick, { kind = "", local = false, hint = "", unless = () => "" } = {}) {
  const button = h("button", { type: "button", class: kind, dataset: { role, scope: local ? "node" : "cluster", hint }, onclick }, label);
  button.unless = unless;
  permit(button);
  return button;
}

/** Enable and disable the buttons of the page after the state of the cluster has changed. */
export function permitActions() {
  document.querySelectorAll("button[data-role]").forEach(permit);
}

function permit(button) {
  const reason = obstacle(button.dataset) || button.unless();
  if (button.dataset.obstacle === reason) return;
  button.dataset.obstacle = reason;
  button.disabled = reason !== "";
  button.title = reason || button.dataset.hint;
}

function obstacle({ role, scope }) {
  if (!may(role)) return refusal(role);
  return scope === "node" || connection.quorum ? "" : "The cluster has no quorum and stores no changes until more nodes are started or reconnected.";
}

/** Return the reason why an action that needs `role` is disabled. */
export function refusal(role) {
  return `This needs the role ${role}; the token has the role ${access.role}.`;
}

/** Return a note that the page is read-only, or null. */
export function readOnlyNote(role) {
  return may(role) ? null : h("p", { class: "note" }, `Read-only: ${refusal(role)}`);
}

/**
 * Ask for confirmation of an action.
 *
 * @param {object} what
 *   title: heading; text: effect, as texts or elements; fields: form controls made by `field`;
 *   command(values): the lmq-admin line; run(values): executes the action and returns a message about its result;
 *   verb: label of the button; danger: true for destructive actions; typed: a text to type in for confirmation.
 * @returns a promise of true if the action was executed.
 */
export function ask({ title, text = [], fields = [], command, run, verb, danger = false, typed = "" }) {
  return new Promise((resolve) => {
    const line = commandBox("");
    const complaint = h("p", { class: "complaint", role: "alert" });
    const go = h("button", { type: "submit", class: danger ? "danger" : "main" }, verb);
    const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
    const proof = typed ? field("proof", `Type ${typed} to confirm`, h("input", { autocomplete: "off", spellcheck: "false" })) : null;
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

    /** Check the values; if one is invalid, keep the last command and show the reason. */
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

/** Create a labelled control; `read` returns its text, or the state of a check box. */
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
