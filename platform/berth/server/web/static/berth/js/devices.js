// Map of devices: names what is on the device under the pointer, and outlines the other devices of the same workload.
(() => {
  "use strict";

  function nameBox(map) {
    let box = map.querySelector(".readout");
    if (!box) {
      box = document.createElement("div");
      box.className = "readout";
      box.setAttribute("aria-hidden", "true"); // devices have the same text as their label
      map.append(box);
    }
    return box;
  }

  function show(event) {
    const target = event.target.closest?.(".maps .device");
    const device = event.type === "focusin" && !target?.matches(":focus-visible") ? null : target;
    const keys = device?.dataset.lit?.split(" ") ?? [];
    for (const each of document.querySelectorAll(".maps .device")) {
      each.classList.toggle("lit", keys.some((key) => each.dataset.lit?.split(" ").includes(key)));
    }
    for (const other of document.querySelectorAll(".maps > .readout.on")) other.classList.remove("on");
    if (!device) return;
    const map = device.closest(".maps"), box = nameBox(map);
    const around = map.getBoundingClientRect(), frame = device.getBoundingClientRect();
    box.textContent = device.getAttribute("aria-label");
    box.classList.add("on");
    // A name ends at the edge of the map, or begins at the edge of the window if it is even longer.
    const left = Math.max(8, Math.min(frame.left, around.right - box.offsetWidth));
    box.style.left = `${left - around.left}px`;
    box.style.top = `${frame.top - around.top}px`;
  }

  for (const type of ["pointerover", "focusin"]) document.addEventListener(type, show);
})();
