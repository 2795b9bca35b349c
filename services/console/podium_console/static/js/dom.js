// Elements made by hand. Everything that a model says is hostile text: it only ever becomes a text
// node, and no function here takes markup.

/** An element: `on…` are listeners, `class`, `dataset` and `style` as their names say. */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

/** What a narrow window scrolls, by keys too; with links and buttons in it, keys reach it anyway. */
export function scrolled(label, properties, ...children) {
  return h("div", { class: "panel scroll", tabindex: "0", role: "region", "aria-label": label, ...properties }, ...children);
}

/** Replaces what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

function nodes(children) {
  return children.flat(Infinity).filter((each) => each !== undefined && each !== null && each !== false)
    .map((each) => (each instanceof Node ? each : document.createTextNode(String(each))));
}

/** A short word to whoever looks, and for screen readers. */
export function toast(words, kind = "bad") {
  const note = h("p", { class: `toast ${kind}` }, words);
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), 8000);
}

/**
 * Disables buttons while something is asked for. What it returns ends that, but for those that are
 * not `allowed`, and gives the focus back: a browser takes it from a button that is disabled.
 */
export function hold(...buttons) {
  const had = buttons.find((each) => each === document.activeElement);
  for (const each of buttons) each.disabled = true;
  return (allowed = () => true) => {
    for (const each of buttons) each.disabled = !allowed(each);
    if (had && document.activeElement === document.body) (had.disabled ? buttons.find((each) => !each.disabled) : had)?.focus();
  };
}

/** What a page shows in place of what it could not get. */
export function problem(error, again) {
  return h("div", { class: "problem", role: "alert" },
    h("p", {}, error.message),
    error.violations?.length
      ? h("ul", {}, error.violations.map((each) => h("li", {}, violation(each)))) : null,
    error.errorId ? h("p", { class: "soft" }, `Its log has the id ${error.errorId}.`) : null,
    again ? h("button", { onclick: again }, "Try again") : null);
}

/** `line 3: training.steps: …` */
export function violation(each) {
  return [each.line ? `line ${each.line}` : "", each.field, each.description]
    .filter(Boolean).join(": ");
}

/** Asks for a short text; null where somebody thinks better of it. */
export function asked(question, label, word, properties = {}) {
  return new Promise((resolve) => {
    const input = h("input", { id: "asked", required: true, spellcheck: "false", autocomplete: "off", ...properties });
    const form = h("form", { method: "dialog", onsubmit: () => dialog.close("yes") },
      h("p", {}, question), h("label", { for: "asked" }, label), input,
      h("div", { class: "row end" },
        h("button", { class: "quiet", type: "button", onclick: () => dialog.close("no") }, "Back"), h("button", {}, word)));
    const dialog = h("dialog", { "aria-label": question }, form);
    dialog.addEventListener("close", () => { resolve(dialog.returnValue === "yes" ? input.value.trim() : null); dialog.remove(); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Asks before something that cannot be undone. */
export function confirmed(question, word) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": question },
      h("p", {}, question),
      h("div", { class: "row end" },
        h("button", { class: "quiet", onclick: () => dialog.close("no") }, "Back"),
        h("button", { class: "danger", onclick: () => dialog.close("yes") }, word)));
    dialog.addEventListener("close", () => { resolve(dialog.returnValue === "yes"); dialog.remove(); });
    document.body.append(dialog);
    dialog.showModal();
  });
}
