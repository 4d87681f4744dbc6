// The bar of actions on the selected rows of a list, such as workloads or nodes, and the columns and views of the list.
(() => {
  "use strict";
  // Selected workloads stay selected when the list is fetched again.
  let picked = new Set();
  function pick() {
    const boxes = [...document.querySelectorAll("input[form=bulk]")];
    const chosen = boxes.filter((box) => box.checked), count = chosen.length;
    const denied = chosen.filter((box) => "denied" in box.dataset).length; // rows that the user may not change
    const counter = document.querySelector("[data-picked]");
    document.getElementById("bulk")?.classList.toggle("on", count > 0);
    offer(chosen);
    if (counter) counter.textContent = !count ? "None selected" : denied && denied < count ? `${count} selected, ${denied} read-only` : `${count} selected`;
    for (const all of document.querySelectorAll("[data-pick-all]")) {
      all.checked = count > 0 && count === boxes.length;
      all.indeterminate = count > 0 && count < boxes.length;
    }
    picked = new Set(chosen.map((box) => box.value));
  }

  /** Offer the actions that apply to selected rows, with the number of rows, or say that none applies. */
  function offer(chosen) {
    let offered = 0;
    for (const button of document.querySelectorAll("#bulk [data-action]")) {
      const suitable = chosen.filter((box) => box.dataset.actions.split(" ").includes(button.dataset.action)).length;
      button.hidden = !suitable;
      const [one, several] = button.dataset.rows?.split(";") ?? []; // the rows to which the action applies, if not all do
      const share = one ? ` of ${suitable} ${suitable === 1 ? one : several}` : suitable < chosen.length ? ` ${suitable} of ${chosen.length}` : ` ${suitable}`;
      button.querySelector("[data-share]").textContent = chosen.length > 1 ? share : "";
      offered += suitable;
    }
    const copy = document.querySelector("[data-copy-selected]"), none = document.querySelector("[data-no-action]");
    if (copy) {
      copy.hidden = chosen.length !== 1 || !("copyable" in chosen[0].dataset);
      if (!copy.hidden) copy.href = copy.dataset.copySelected + chosen[0].value;
    }
    const edit = document.querySelector("[data-edit-selected]");
    if (edit) {
      edit.hidden = chosen.length !== 1 || !("editable" in chosen[0].dataset);
      if (!edit.hidden) edit.href = `${edit.dataset.editSelected}${chosen[0].value}/edit`;
    }
    if (!none) return;
    none.hidden = Boolean(offered) || (copy && !copy.hidden);
    const mayAct = chosen.some((box) => !("denied" in box.dataset)), rows = none.dataset.noAction;
    none.textContent = mayAct ? `No action applies to the selected ${rows}.` : `Your role does not allow you to change the selected ${rows}.`;
  }

  function clear() {
    for (const box of document.querySelectorAll("input[form=bulk]")) box.checked = false;
    pick();
  }

  function resetColumns() {
    const menu = document.querySelector("[data-usual-columns]"), usual = menu.dataset.usualColumns.split(",");
    for (const box of menu.querySelectorAll("[name=columns]")) box.checked = usual.includes(box.value);
    menu.querySelector("[name=columns]").dispatchEvent(new Event("change", { bubbles: true }));
  }

  let last = ""; // value of the box that was clicked last
  /** If Shift is pressed, set all boxes between the last click and this one to this box's state. */
  document.addEventListener("click", (event) => {
    const box = event.target;
    if (box.closest?.("[data-clear-selection]")) clear();
    if (box.closest?.("[data-reset-columns]")) resetColumns();
    if (!box.matches?.("input[form=bulk]")) return;
    const boxes = [...document.querySelectorAll("input[form=bulk]")];
    const from = boxes.findIndex((each) => each.value === last), to = boxes.indexOf(box);
    last = box.value;
    if (!event.shiftKey || from < 0) return;
    for (const each of boxes.slice(Math.min(from, to), Math.max(from, to) + 1)) each.checked = box.checked;
    getSelection().removeAllRanges(); // Shift-click also selects text
  });
  document.addEventListener("keydown", (event) => {
    const isBusy = document.querySelector("dialog[open], details.chooser[open]") || event.target.matches?.("input:not([form=bulk]), textarea, select");
    if (event.key === "Escape" && !isBusy && picked.size) clear();
  }, { capture: true });
  document.addEventListener("berth:done", (event) => {
    if (event.target.closest?.("[data-clears-selection]")) clear();
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches?.("[data-pick-all]")) {
      for (const box of document.querySelectorAll("input[form=bulk]")) box.checked = event.target.checked;
    }
    if (event.target.matches?.("[data-pick-all], input[form=bulk]")) pick();
  });
  document.addEventListener("htmx:configRequest", (event) => { // URLs contain columns only if the user has chosen some
    const usual = document.querySelector("[data-usual-columns]")?.dataset.usualColumns, { formData, verb } = event.detail;
    if (verb === "get" && usual && formData.getAll("columns").join() === usual) formData.delete("columns");
  });
  document.addEventListener("htmx:pushedIntoHistory", () => { // the list has changed, so another view or none is shown
    const queryOf = (search) => { const query = new URLSearchParams(search); query.delete("cursor"); return query.toString(); };
    for (const view of document.querySelectorAll(".views .menu-line > a:not(.button)")) {
      if (queryOf(view.search) === queryOf(location.search)) view.setAttribute("aria-current", "true");
      else view.removeAttribute("aria-current");
    }
  });
  document.addEventListener("htmx:load", () => {
    for (const box of document.querySelectorAll("input[form=bulk]")) if (picked.has(box.value)) box.checked = true;
    if (document.getElementById("bulk")) pick();
  });
})();
