// Tables with data-open-rows: with a mouse, a click on a row opens its first link.
(() => {
  "use strict";
  const MOUSE = matchMedia("(hover: hover) and (min-width: 48.01rem)");
  const CONTROLS = "a, button, input, label, select, summary, textarea, dialog, [popover]";
  let isDeselecting = false;

  const hasSelection = () => getSelection()?.isCollapsed === false;

  // A click that only clears a selection of text opens nothing.
  document.addEventListener("mousedown", () => { isDeselecting = hasSelection(); });

  document.addEventListener("click", (event) => {
    const place = event.target;
    if (!MOUSE.matches || event.defaultPrevented || event.shiftKey || event.altKey || isDeselecting || hasSelection()) return;
    const row = place instanceof Element && !place.closest(CONTROLS) && place.closest("table[data-open-rows] > tbody > tr");
    if (!row) return;
    const box = place.closest("td.pick")?.querySelector("input"), link = row.querySelector("a.plain-link[href]");
    if (box) box.click(); // the click missed the box
    else if (event.ctrlKey || event.metaKey) window.open(link.href, "_blank", "noopener");
    else link?.click();
  });
})();
