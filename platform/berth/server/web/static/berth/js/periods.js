// Bar of a workload's periods: names the segment under the pointer or in focus, and lights up its entry in the list.
(() => {
  "use strict";
  let pointer; // last position over a bar, whose tooltip outlasts updates of the page
  const NEAR_PX = { mouse: 4, pen: 6, touch: 12 }; // how far from the pointer a narrower segment may be

  function tooltip(chart) {
    let box = chart.querySelector(".readout");
    if (!box) {
      box = document.createElement("div");
      box.className = "readout";
      box.setAttribute("aria-hidden", "true"); // segments have the same text as their label
      chart.append(box);
    }
    return box;
  }

  /** Return the segment under the pointer, or a narrow one next to it, so that short periods can be pointed at. */
  function segmentAt(event) {
    const bar = event.target.closest?.(".period-bar");
    if (!bar) return undefined;
    const near = NEAR_PX[event.pointerType] ?? 0;
    const distances = [...bar.querySelectorAll(".segment")].map((each) => {
      const { left, right } = each.querySelector("rect").getBoundingClientRect(), at = event.clientX;
      if (right - left <= 2 * near) return [each, Math.abs(at - (left + right) / 2)];
      return [each, at >= left && at <= right ? near : Infinity, right - left];
    });
    const close = distances.filter(([, distance]) => distance <= near);
    return close.sort(([, one, a = 0], [, other, b = 0]) => one - other || a - b)[0]?.[0];
  }

  function light(key) {
    for (const each of document.querySelectorAll("[data-period]")) each.classList.toggle("lit", each.dataset.period === key);
  }

  function show(segment) {
    for (const other of document.querySelectorAll(".periods > .readout.on")) other.classList.remove("on");
    if (!segment) return;
    const chart = segment.closest(".periods"), box = tooltip(chart);
    const around = chart.getBoundingClientRect(), frame = segment.querySelector("rect").getBoundingClientRect();
    box.replaceChildren(...segment.getAttribute("aria-label").split(/(\n)/).map((line) => {
      if (line === "\n") return line;
      const part = document.createElement("span");
      part.textContent = line;
      return part;
    }));
    box.classList.add("on");
    const middle = (frame.left + frame.right) / 2 - around.left - box.offsetWidth / 2;
    box.style.left = `${Math.max(0, Math.min(middle, around.width - box.offsetWidth))}px`;
    box.style.top = `${frame.bottom - around.top}px`;
  }

  function point(event) {
    const segment = segmentAt(event);
    if (!segment && document.activeElement?.matches(".period-bar .segment:focus-visible")) return;
    pointer = segment && { clientX: event.clientX, clientY: event.clientY, pointerType: event.pointerType };
    light(segment?.dataset.period ?? event.target.closest?.("[data-period]")?.dataset.period);
    show(segment);
  }

  for (const type of ["pointermove", "click"]) document.addEventListener(type, point);
  document.addEventListener("htmx:afterSettle", () => { // only now, the bar is back in its place
    const target = pointer && document.elementFromPoint(pointer.clientX, pointer.clientY);
    if (target && !document.querySelector(".periods > .readout")) point({ ...pointer, target });
  });
  document.addEventListener("focusin", (event) => {
    const segment = event.target.closest?.(".period-bar .segment:focus-visible");
    if (!segment) return;
    light(segment.dataset.period);
    show(segment);
  });
  document.addEventListener("focusout", (event) => {
    if (!event.target.matches?.(".period-bar .segment")) return;
    light(undefined);
    show(undefined);
  });
  document.addEventListener("keydown", (event) => {
    const segment = event.target.closest?.(".period-bar .segment");
    if (!segment) return;
    const all = [...segment.parentElement.querySelectorAll(".segment")], place = all.indexOf(segment);
    const to = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Escape") show(undefined);
    if (!all[to]) return;
    event.preventDefault();
    segment.tabIndex = -1;
    all[to].tabIndex = 0;
    all[to].focus({ focusVisible: true });
  });
})();
