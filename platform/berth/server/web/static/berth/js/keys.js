// Keyboard shortcuts for lists and pages: ? shows them all.
(() => {
  "use strict";
  const dialog = document.getElementById("keys-dialog");
  if (!dialog) return;
  const PAGES = { o: "/", w: "/workloads", q: "/queue", s: "/submit" }, PATIENCE = 1500;
  let awaitsPage = 0; // time until which the key that follows g opens a page

  const links = () => [...document.querySelectorAll("main tbody tr:not(.queue-rows .group) > * > a.plain-link[href]")].filter(
    (link, place, all) => link.offsetParent && all.findIndex((other) => other.closest("tr") === link.closest("tr")) === place,
  );
  const currentRow = () => document.activeElement?.closest?.("main tbody tr");

  /** Move the focus to the link of the next or previous row of the page's lists. */
  function move(step) {
    const stops = links(), row = currentRow();
    const here = stops.findIndex((link) => link.closest("tr") === row);
    const next = stops[here < 0 ? (step > 0 ? 0 : stops.length - 1) : Math.min(Math.max(here + step, 0), stops.length - 1)];
    next?.focus();
    next?.closest("tr").scrollIntoView({ block: "nearest" });
    return Boolean(next);
  }

  const ACTIONS = {
    "?": () => { dialog.showModal(); return true; },
    j: () => move(1),
    k: () => move(-1),
    x: ({ shiftKey }) => {
      const box = currentRow()?.querySelector("input[type=checkbox]");
      box?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, shiftKey }));
      return Boolean(box);
    },
    g: () => { awaitsPage = Date.now() + PATIENCE; return true; },
  };

  document.addEventListener("click", (event) => event.target.closest?.("[data-keys]") && dialog.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
    const place = event.target instanceof Element ? event.target : document.body;
    const isBox = place.matches("input[type=checkbox]");
    if (place.closest("input, textarea, select, dialog, [contenteditable], [role=grid], .xterm") && !isBox) return;
    const page = Date.now() < awaitsPage ? PAGES[event.key.toLowerCase()] : undefined;
    awaitsPage = 0;
    if (page) {
      event.preventDefault();
      location.assign(page);
    } else if (ACTIONS[event.key.toLowerCase()]?.(event)) event.preventDefault();
  });
})();
