// Edges of the quota grid: a shadow where columns are hidden, and a note of how many pools are in view.
(() => {
  "use strict";
  const SLACK = 2; // tolerance in pixels

  function update() {
    const wrap = document.querySelector(".grid-wrap"), note = document.querySelector("[data-pools-in-view]");
    if (!wrap) return;
    const left = wrap.getBoundingClientRect().left + (wrap.querySelector(".corner")?.offsetWidth ?? 0);
    const right = wrap.getBoundingClientRect().left + wrap.clientWidth;
    const heads = [...wrap.querySelectorAll("[data-pool-head]")].map((head) => head.getBoundingClientRect());
    const visible = Math.max(1, heads.filter((head) => head.left >= left - SLACK && head.right <= right + SLACK).length);
    wrap.parentElement.classList.toggle("continues", wrap.scrollLeft + wrap.clientWidth < wrap.scrollWidth - SLACK);
    if (note) note.textContent = visible < heads.length ? `${visible} of ${heads.length} pools in view` : "";
  }

  const sizes = new ResizeObserver(update);
  function watch() {
    const wrap = document.querySelector(".grid-wrap");
    if (!wrap || wrap.dataset.watched !== undefined) return update();
    wrap.dataset.watched = "";
    wrap.addEventListener("scroll", update, { passive: true });
    sizes.disconnect();
    sizes.observe(wrap);
    update();
  }
  watch();
  document.addEventListener("htmx:load", watch);
})();
