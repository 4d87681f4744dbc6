// People can be faster than the deferred scripts: keep their last click on a button that needs scripts, or their
// last Ctrl-K, and repeat it when the scripts have run. Links, forms and fields work without scripts.
(() => {
  "use strict";
  const needsScripts = "button[type=button]:not([popovertarget])";
  let repeat = null;

  function keepClick(event) {
    const control = event.button === 0 && event.target.closest?.(needsScripts);
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
