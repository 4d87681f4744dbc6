// People can be faster than the deferred scripts: keep their last press of a control that needs scripts,
// and repeat it when the scripts have run.
(() => {
  "use strict";
  const needsScripts = "button[type=button]:not([popovertarget]), [hx-get], [hx-post], [data-search]";
  let repeat = null;

  function keepClick(event) {
    const control = event.target.closest?.(needsScripts);
    if (!control) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    repeat = () => control.click();
  }

  function keepKey(event) {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    event.stopImmediatePropagation();
    repeat = () => document.dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true, bubbles: true, cancelable: true }));
  }

  addEventListener("click", keepClick, true);
  addEventListener("keydown", keepKey, true);
  addEventListener("DOMContentLoaded", () => {
    removeEventListener("click", keepClick, true);
    removeEventListener("keydown", keepKey, true);
    if (repeat) setTimeout(repeat);
  });
})();
