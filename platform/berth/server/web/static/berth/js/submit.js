// A form and a document side by side: both are sent after each edit, and the server keeps them in sync.
(() => {
  "use strict";
  const PAUSE = 350, PAUSE_IN_DOCUMENT = 800, RETRY = 2000; // a line that is being typed is often invalid
  const form = document.getElementById("submit-form"), look = document.getElementById("look");
  const lines = document.querySelector(".editor-lines");
  if (!form || !look) return;
  const text = () => document.getElementById("document");
  let edits = 0, answered = 0, retried = 0, timer = 0, sending = false;

  function number() {
    const box = text(), faulty = new Set(box.dataset.faults.split(" "));
    const count = box.value.split("\n").length;
    lines.replaceChildren(...Array.from({ length: count }, (_, index) => {
      const line = document.createElement("span");
      line.textContent = index + 1;
      if (faulty.has(String(index + 1))) line.className = "fault";
      return line;
    }));
    lines.scrollTop = box.scrollTop;
    box.dispatchEvent(new CustomEvent("berth:text"));
  }

  function showLine(lineNumber) {
    const box = text(), all = box.value.split("\n");
    const start = all.slice(0, lineNumber - 1).join("\n").length + (lineNumber > 1 ? 1 : 0);
    box.focus();
    box.setSelectionRange(start, start + (all[lineNumber - 1] ?? "").length);
    box.scrollTop = Math.max(0, (lineNumber - 4) * parseFloat(getComputedStyle(box).lineHeight));
  }

  // Boxes stay in place while one of them has the focus, but the order of the selected values is updated.
  function relabel(old, fresh) {
    for (const box of fresh.querySelectorAll("input[type=checkbox]")) {
      const here = old.querySelector(`input[type=checkbox][value="${CSS.escape(box.value)}"]`);
      if (!here) return old.replaceWith(fresh);
      here.checked = box.checked;
    }
    const ranking = old.querySelector(".ranking");
    if (!ranking) return;
    const moved = ranking.contains(document.activeElement) && document.activeElement;
    ranking.replaceWith(fresh.querySelector(".ranking"));
    if (!moved) return;
    const buttons = [...old.querySelectorAll(".ranking [data-move]")].filter((one) => one.dataset.move === moved.dataset.move);
    (buttons.find((one) => one.title === moved.title) ?? buttons[0])?.focus();
  }

  // Do not disturb typing: in the field that has the focus, replace only errors and hints.
  function renew(old, fresh) {
    if (!old.contains(document.activeElement)) return old.replaceWith(fresh);
    if (old.querySelector("fieldset.boxes")) return relabel(old, fresh);
    const buttons = old.querySelector(".picks"), picked = buttons?.contains(document.activeElement) && document.activeElement.dataset.value;
    buttons?.replaceWith(fresh.querySelector(".picks"));
    if (picked) old.querySelector(`[data-value="${CSS.escape(picked)}"]`)?.focus();
    const here = old.querySelector("input:not([type=hidden]), select, textarea");
    const there = fresh.querySelector("input:not([type=hidden]), select, textarea");
    if (!here || !there) return old.replaceWith(fresh);
    for (const name of ["aria-invalid", "aria-describedby"]) {
      if (there?.hasAttribute(name)) here.setAttribute(name, there.getAttribute(name));
      else here.removeAttribute(name);
    }
    for (const note of old.querySelectorAll(":scope > :is(.hint, .warning, .error)")) note.remove();
    old.append(...fresh.querySelectorAll(":scope > :is(.hint, .warning, .error)"));
  }

  function merge(target, fresh) {
    const now = [...target.querySelectorAll("[data-field]")], then = [...fresh.querySelectorAll("[data-field]")];
    const same = target.dataset.shape === fresh.dataset.shape && now.length === then.length
      && now.every((field, index) => field.id === then[index].id);
    if (!same) return false;
    now.forEach((field, index) => renew(field, then[index]));
    for (const folded of target.querySelectorAll("details:not([open]):has([aria-invalid=true])")) folded.open = true;
    for (const part of target.querySelectorAll("details.card")) { // one that gets its first value opens
      const isFilled = fresh.querySelector(`[id="${CSS.escape(part.id)}"]`)?.hasAttribute("data-filled") ?? false;
      if (isFilled && !part.hasAttribute("data-filled")) part.open = true;
      part.toggleAttribute("data-filled", isFilled);
    }
    return true;
  }

  function keepUnfolded(target, fresh) {
    for (const field of target.querySelectorAll("details[open] [data-field]")) {
      fresh.querySelector(`[id="${CSS.escape(field.id)}"]`)?.closest("details")?.setAttribute("open", "");
    }
  }

  // A button that adds a part moves the focus to the part's first field, and one that removes a part to the button that adds one.
  let editedPart = null;
  function focusEditedPart(fields) {
    const [verb, path] = editedPart?.value.split(":") ?? [], list = path?.replace(/\[\d+\]$/, "");
    const { activeElement } = document, hasMoved = activeElement && activeElement !== document.body && activeElement !== editedPart;
    editedPart = null;
    if (!["add", "remove", "rename"].includes(verb) || hasMoved) return; // hasMoved: the user continued elsewhere
    const added = [...fields.querySelectorAll(`[aria-labelledby^="p-${list}-"]`)].at(-1);
    if (verb === "add") added?.querySelector(".field :is(input:not([type=hidden]), select, textarea)")?.focus();
    if (verb === "rename") document.getElementById("document").focus(); // the button is gone
    if (verb === "remove") fields.querySelector(`[value="add:${list}"], #p-${list} > summary`)?.focus();
  }

  function take(box, fresh) {
    box.dataset.faults = fresh.dataset.faults;
    box.toggleAttribute("aria-invalid", fresh.hasAttribute("aria-invalid"));
    if (fresh.hasAttribute("aria-invalid")) box.setAttribute("aria-invalid", "true");
    if (box.value !== fresh.value) {
      const [start, end, top] = [box.selectionStart, box.selectionEnd, box.scrollTop];
      box.value = fresh.value;
      if (document.activeElement === box) box.setSelectionRange(start, end);
      box.scrollTop = top;
    }
    number();
  }

  // The response does not include code that was chosen but not uploaded yet.
  let isCodeChosen = false;
  function enableSave(isUnchanged) {
    const save = form.querySelector("[name=step][value=save]");
    if (save) save.disabled = isUnchanged && !isCodeChosen;
    const note = document.getElementById("no-changes");
    if (note) note.hidden = !save?.disabled;
    const discard = document.getElementById("discard");
    if (discard) discard.textContent = isUnchanged && !isCodeChosen ? discard.dataset.unchangedLabel : discard.dataset.changedLabel;
  }
  const isUnchanged = () => document.querySelector("#answer [data-unchanged]") !== null;

  form.addEventListener("input", (event) => {
    isCodeChosen ||= event.target.type === "file" || event.target.name === "code-source";
    enableSave(false);
    if (event.target.type === "file" || event.target.name === "code-source") return; // these fields are not in the document
    edits += 1;
    number();
    sendAfter(event.target === text() ? PAUSE_IN_DOCUMENT : PAUSE);
  });
  function sendAfter(pause) {
    clearTimeout(timer);
    timer = setTimeout(() => htmx.trigger(look, "berth:look"), pause);
  }
  look.addEventListener("htmx:sendError", () => { // for example, the computer changes networks
    if (retried === edits) return;
    retried = edits;
    sendAfter(RETRY);
  });
  form.addEventListener("submit", () => clearTimeout(timer));
  document.addEventListener("htmx:beforeRequest", (event) => {
    event.detail.xhr.edits = edits;
    const submitter = event.detail.requestConfig.triggeringEvent?.submitter;
    const source = event.detail.elt;
    if (source.closest("#prediction")) { // a part that was replaced meanwhile sends its events nowhere else
      source.addEventListener("htmx:beforeSwap", (swap) => { if (!source.isConnected) swap.detail.shouldSwap = false; });
    }
    if (event.detail.elt !== form) return;
    sending = !submitter?.value.includes(":"); // values with a colon, such as add:roles, edit the form
    editedPart = sending ? null : submitter;
  });
  document.addEventListener("htmx:beforeSwap", (event) => { // drop responses that are older than the input
    const source = event.detail.requestConfig.elt;
    if (source !== look && !source.closest("#prediction")) return;
    if (!source.isConnected || event.detail.xhr.edits !== edits) event.detail.shouldSwap = false;
    const verdict = document.querySelector("#answer .verdict"); // the verdict keeps its height until the next one arrives
    if (verdict) document.getElementById("answer").style.setProperty("--verdict-height", `${verdict.offsetHeight}px`);
  });
  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    const { target, fragment } = event.detail;
    const fresh = fragment.id ? fragment : fragment.firstElementChild;
    if (target.id === "fields" && nameField()?.value === suggested && document.activeElement === document.getElementById("f-kind")) suggested = fresh.querySelector("#f-name")?.value;
    if (target.id === "document") {
      take(target, fresh);
      event.detail.shouldSwap = false;
    } else if (target.id === "fields" && merge(target, fresh)) event.detail.shouldSwap = false;
    else if (target.id === "fields") keepUnfolded(target, fresh);
    else if (target.matches("[data-field]") && target.contains(document.activeElement)) {
      renew(target, fresh);
      event.detail.shouldSwap = false;
    }
  });
  document.addEventListener("htmx:afterSwap", ({ target }) => {
    if (target.id === "fields") focusEditedPart(target);
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.elt.id === "answer") {
      if (editedPart) focusEditedPart(document.getElementById("fields"));
      enableSave(isUnchanged());
      answered = event.detail.xhr?.edits ?? answered;
    }
    if (event.detail.elt.id === "dialog") sending = false;
    if (!sending || event.detail.elt.id !== "answer") return;
    sending = false;
    showFirstError();
  });
  function showFirstError() {
    const isExpanded = expandButton?.closest(".expanded"), first = isExpanded ? null : document.querySelector("#fields [aria-invalid=true]");
    if (!first) {
      if (text().matches("[aria-invalid=true]")) showLine(Number(text().dataset.faults.split(" ")[0]) || 1);
      return;
    }
    first.closest("details")?.setAttribute("open", "");
    const source = document.getElementById(`code-source-${first.closest("[data-source]")?.dataset.source}`);
    if (source) source.checked = true;
    first.focus({ preventScroll: true });
    first.closest("[data-field]").scrollIntoView({ block: "center" });
  }
  // While the document has errors, the main button shows the first one instead of sending the form.
  form.addEventListener("click", (event) => {
    if (!event.target.closest(".primary")?.querySelector(".faulty")) return;
    event.preventDefault();
    if (edits === answered) return showFirstError();
    sending = true; // shows the first error of the response
    sendAfter(0);
  });
  document.addEventListener("click", (event) => { // fill in the value that an error suggests
    const button = event.target.closest?.("[data-fill]"), field = button && document.getElementById(button.dataset.fill);
    if (!field) return;
    field.value = button.dataset.value;
    field.focus();
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
  // Buttons that add a secret to a field, and remove it again. In a text area, each line uses one secret.
  const nameIn = (line) => line.trim().split("=")[0].trim();
  const linesOf = (field) => field.value.split("\n").filter((line) => line.trim());
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-pick]"), field = button && document.getElementById(button.dataset.pick);
    if (!field) return;
    const { value } = button.dataset, before = linesOf(field), rest = before.filter((line) => nameIn(line) !== nameIn(value));
    const isSelected = rest.length < before.length;
    if (field.matches("textarea")) field.value = (isSelected ? rest : [...rest, value]).join("\n");
    else field.value = isSelected ? "" : value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
  form.addEventListener("input", (event) => {
    const names = new Set(event.target.id ? linesOf(event.target).map(nameIn) : []);
    for (const button of document.querySelectorAll(`[data-pick="${event.target.id}"]`)) button.setAttribute("aria-pressed", names.has(nameIn(button.dataset.value)));
  });
  let isAwaited = false; // true after a link to a page in another tab, on which a choice can be added
  document.addEventListener("click", (event) => { isAwaited ||= event.target.closest?.("[data-adds-choice]") != null; });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || !isAwaited) return;
    isAwaited = false;
    sendAfter(0);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-line]");
    if (!link) return;
    event.preventDefault();
    showLine(Number(link.dataset.line));
  });
  // The document takes the place of the form and of the prediction's details, until the button is used again.
  const expandButton = document.getElementById("expand");
  expandButton?.addEventListener("click", () => {
    const isExpanded = expandButton.closest(".stack").classList.toggle("expanded");
    const label = expandButton.querySelector("span");
    expandButton.dataset.label ??= label.textContent;
    label.textContent = isExpanded ? expandButton.dataset.expandedLabel : expandButton.dataset.label;
    expandButton.setAttribute("aria-expanded", isExpanded);
    if (!isExpanded) return;
    document.getElementById("document-place").getBoundingClientRect(); // shows a document that was hidden for lack of room
    text().focus();
  });
  expandButton?.closest(".stack").addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !expandButton.closest(".expanded")) return;
    expandButton.click();
    expandButton.focus();
  });
  document.addEventListener("click", (event) => { // a link to a field shows the form again
    const target = event.target.closest?.("a[href^='#']")?.hash;
    if (target && expandButton?.closest(".expanded") && document.querySelector("#fields").querySelector(target)) expandButton.click();
  }, true);
  // A column that is taller than the window sticks to the bottom of the window, so that its end can be scrolled to.
  const column = document.querySelector(".submit > .stack:not(#fields)");
  new ResizeObserver(() => column.style.setProperty("--column-height", `${column.offsetHeight}px`)).observe(column);
  const head = form.querySelector(".page-head"); // has a further line if its text wraps
  new ResizeObserver(() => column.style.setProperty("--head", `${head.offsetHeight + 4}px`)).observe(head);
  // Ask before input is lost, unless a response redirects, such as the one to a submission, or the user discards changes.
  let isLeaving = false;
  const hasInput = () => isCodeChosen || edits !== answered || text().value !== text().defaultValue;
  addEventListener("beforeunload", (event) => {
    if (!isLeaving && document.documentElement.dataset.leaving === undefined && hasInput()) event.preventDefault();
  });
  document.getElementById("discard")?.addEventListener("click", (event) => { isLeaving ||= !(event.ctrlKey || event.metaKey || event.shiftKey); });
  addEventListener("pageshow", () => { isLeaving = false; });
  document.addEventListener("htmx:beforeOnLoad", (event) => { isLeaving ||= event.detail.xhr.getResponseHeader("HX-Redirect") !== null; });
  // A starting point replaces everything but a name that the user has typed and, for built-in ones, the project.
  const nameField = () => document.getElementById("f-name"), query = new URLSearchParams(location.search);
  let suggested = query.has("name") ? "" : nameField()?.defaultValue; // choosing a kind replaces it by another one
  const otherLines = (value) => value.split("\n").filter((line) => !/^(name|project):/.test(line)).join("\n");
  document.getElementById("starts")?.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='?']"), name = nameField()?.value.trim(), project = document.getElementById("f-project")?.value;
    if (!link) return;
    const url = new URL(link.href);
    if (name && name !== suggested) url.searchParams.set("name", name);
    if (project && link.hasAttribute("data-keeps-project")) url.searchParams.set("project", project);
    link.href = url;
    isLeaving ||= !isCodeChosen && otherLines(text().value) === otherLines(text().defaultValue);
  });
  text().addEventListener("scroll", () => { lines.scrollTop = text().scrollTop; }, { passive: true });
  number();
  enableSave(isUnchanged());
  // Fields may have been edited before this script ran.
  function isEdited(field) {
    if (field.matches("[type=checkbox], [type=radio]")) return field.checked !== field.defaultChecked;
    const options = [...field.options ?? []];
    if (options.some((option) => option.defaultSelected)) return options.some((option) => option.selected !== option.defaultSelected);
    return field.matches("input, textarea") && field.value !== field.defaultValue;
  }
  for (const field of [...form.elements].filter(isEdited)) field.dispatchEvent(new Event("input", { bubbles: true }));
})();
