// Readouts of charts: the time or step, and the numbers under the pointer.
(() => {
  "use strict";
  const number = new Intl.NumberFormat(undefined, { maximumFractionDigits: 2 });
  const precise = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 6 });

  function box(chart) {
    let readout = chart.querySelector(".readout");
    if (!readout) {
      readout = document.createElement("div");
      readout.className = "readout";
      readout.setAttribute("aria-hidden", "true"); // the table beside the chart has the same numbers
      const marker = document.createElement("div"); // a line at the pointer, visible with the readout
      marker.className = "readout-marker";
      chart.append(readout, marker);
    }
    return readout;
  }

  /** Return the last point at or before a time. */
  function pointAt(points, time) {
    let low = 0, high = points.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] <= time) low = middle + 1; else high = middle;
    }
    return points[low - 1];
  }

  /** Return the time under the pointer, or the period of a point that is an average. */
  function moment(svg, point, time) {
    const { short, clock } = window.berthTimes, period = Number(svg.dataset.periodS);
    if (!period) return short.format(new Date(time * 1000));
    return `${short.format(new Date(point[0] * 1000))}–${clock.format(new Date((point[0] + period) * 1000))}`;
  }

  function show(event) {
    const svg = event.target.closest?.("svg[data-points]"), chart = svg?.closest("[data-readout]");
    for (const other of document.querySelectorAll(".readout.on")) if (other.parentElement !== chart && !other.parentElement.matches(".maps, .periods")) other.classList.remove("on");
    if (!chart) return;
    svg.readouts ??= JSON.parse(svg.dataset.points);
    const frame = svg.getBoundingClientRect(), begin = Number(svg.dataset.begin), end = Number(svg.dataset.end);
    const share = Math.min(1, Math.max(0, (event.clientX - frame.left) / frame.width));
    // All columns have the same width, even if months or days differ in length, and are named by their period.
    const columns = svg.dataset.columns?.split("|"), column = Math.min(Math.floor(share * columns?.length), columns?.length - 1);
    const time = begin + share * (end - begin), point = columns ? svg.readouts[column] : pointAt(svg.readouts, time), readout = box(chart);
    readout.classList.toggle("on", point !== undefined);
    if (!point) return;
    const factor = svg.dataset.thousandths === undefined ? 1 : 1000, bySteps = svg.dataset.steps !== undefined;
    const [, used, allocated] = point, isShare = svg.dataset.percent !== undefined && used !== null && allocated > 0;
    const lines = isShare ? [`${Math.round(100 * used / allocated)}%`, `${number.format(used / factor)} of ${number.format(allocated / factor)} GPUs`] : svg.dataset.names.split("|").map((name, place) => {
      const value = point[place + 1];
      if (name && !place && value === null && !columns) return bySteps ? "not finite" : "not measured";
      return name && value !== null && value !== undefined ? `${name} ${(bySteps ? precise : number).format(value / factor)}` : "";
    });
    if (svg.dataset.total !== undefined && lines.filter(Boolean).length > 1) lines.push(`total ${number.format(point.slice(1).reduce((sum, value) => sum + (value ?? 0), 0) / factor)}`);
    readout.textContent = [columns ? columns[column] : bySteps ? `step ${point[0]}` : moment(svg, point, time), ...lines.filter(Boolean)].join("\n");
    const around = chart.getBoundingClientRect(), left = frame.left - around.left + share * frame.width, marker = readout.nextElementSibling;
    const isBefore = share > 0.6, edge = columns ? (column + (isBefore ? 0 : 1)) / columns.length : share; // beside the column
    readout.classList.toggle("before", isBefore);
    readout.style.left = `${frame.left - around.left + edge * frame.width}px`;
    for (const [side, value] of [["left", left], ["top", frame.top - around.top], ["height", frame.height]]) marker.style[side] = `${value}px`;
  }
  for (const type of ["pointermove", "pointerdown"]) document.addEventListener(type, show); // a tap has no moves
  document.addEventListener("pointerleave", (event) => { // a finger leaves at the end of each tap
    if (event.pointerType !== "touch") document.querySelector(".readout.on")?.classList.remove("on");
  });
})();
