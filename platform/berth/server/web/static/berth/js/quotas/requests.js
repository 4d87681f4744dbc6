// Form of the quota grid: the preview, the question before a draft is applied, and the error of its expiry.
(() => {
  "use strict";
  const { make } = window.berthQuotas;

  /** Show the preview below the form, and scroll until the form and the preview are in view. */
  function showPreview(form, place, html) {
    place.innerHTML = html;
    htmx.trigger(place, "htmx:load");
    place.querySelector("#impact-title").focus({ preventScroll: true });
    form.scrollIntoView({ block: "start" });
  }

  /** Ask in the page's dialog whether to apply a draft that evicts workloads or deletes quotas. */
  function ask(html, apply) {
    const dialog = document.getElementById("dialog");
    dialog.innerHTML = html;
    htmx.trigger(dialog, "htmx:load");
    dialog.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      dialog.close();
      apply();
    });
    dialog.showModal();
    dialog.scrollTop = 0;
  }

  /** Show an error below the field of the expiry until its value is edited. */
  function rejectExpiry(input, message) {
    const field = input.closest(".field"), error = make("span", message, "error");
    field.querySelector(".error")?.remove();
    error.id = "draft-until-error";
    field.append(error);
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", error.id);
    input.addEventListener("input", () => acceptExpiry(input), { once: true });
    input.focus();
  }

  function acceptExpiry(input) {
    document.getElementById("draft-until-error")?.remove();
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  }

  /** Undo and redo edits while the focus is on a button of the form. */
  function onUndoKey(form, undo, redo) {
    form.addEventListener("keydown", (event) => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || event.target.matches("input")) return;
      event.preventDefault();
      (event.shiftKey ? redo : undo)();
    });
  }

  window.berthQuotaAnswers = { showPreview, ask, rejectExpiry, acceptExpiry, onUndoKey };
})();
