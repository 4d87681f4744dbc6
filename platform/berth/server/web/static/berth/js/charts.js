// Readouts of charts: the time or step, and the numbers under the pointer.
(() => {
  "use strict";
  const number = new Intl.NumberFormat(undefined, { maximumFractionDigits: 2 });
  const precise = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 6 });
  const SVG = "http://www.w3.org/2000/svg", GAP = 8; // GAP is the distance between a column and its readout in pixels

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

  function element(tag, text, ...classes) {
    const made = document.createElement(tag);
    made.textContent = text;
    made.classList.add(...classes);
    return made;
  }

  /** Return one row per series, with its colour and its value, and their total. */
  function rows(svg, point, columns) {
    const factor = svg.dataset.thousandths === undefined ? 1 : 1000, bySteps = svg.dataset.steps !== undefined;
    const kinds = svg.dataset.kinds?.split("|") ?? [], format = bySteps ? precise : number;
    const made = svg.dataset.names.split("|").flatMap((name, place) => {
      const value = point[place + 1];
      if (name && !place && value === null && !columns) return [row("", bySteps ? "not finite" : "not measured", "")];
      return name && value !== null && value !== undefined ? [row(kinds[place], name, format.format(value / factor))] : [];
    });
    if (svg.dataset.total !== undefined && made.length > 1) made.push(row("", "total", number.format(point.slice(1).reduce((sum, value) => sum + (value ?? 0), 0) / factor)));
    if (kinds.length && svg.dataset.total !== undefined) made.at(-1).classList.add("total");
    return made;
  }

  function row(kind, name, value) {
    const made = element("div", "");
    if (kind) {
      const swatch = document.createElementNS(SVG, "svg"), rect = document.createElementNS(SVG, "rect");
      swatch.setAttribute("viewBox", "0 0 10 10");
      swatch.setAttribute("class", "swatch");
      for (const [key, each] of [["class", kind], ["width", 10], ["height", 10]]) rect.setAttribute(key, each);
      swatch.append(rect);
      made.append(swatch);
    }
    made.append(" ", element("span", name), " ", element("span", value));
    return made;
  }

  /** Return the numbers of a small chart on one line, such as "42%, 3.38 of 8 GPUs". */
  function summary(svg, [, used, allocated]) {
    if (used === null) return "not measured";
    const amount = allocated ? `${number.format(used / 1000)} of ${number.format(allocated / 1000)}` : number.format(used / 1000);
    return `${svg.dataset.percent !== undefined && allocated ? `${Math.round(100 * used / allocated)}%, ` : ""}${amount} ${svg.dataset.unit}`;
  }

  let pointed = null; // the latest pointer event, if it was in a chart
  function show(event) {
    const svg = event.target.closest?.("svg[data-points]"), chart = svg?.closest("[data-readout]");
    const strip = chart?.closest(".strip"); // its charts have the same period, so they show the same moment
    const charts = strip ? [...strip.querySelectorAll("[data-readout]")] : [chart];
    for (const other of document.querySelectorAll(".readout.on")) if (!charts.includes(other.parentElement) && !other.parentElement.matches(".maps, .periods")) other.classList.remove("on");
    pointed = chart ? { target: event.target, clientX: event.clientX, clientY: event.clientY } : null;
    if (!chart) return;
    const frame = svg.getBoundingClientRect(), share = Math.min(1, Math.max(0, (event.clientX - frame.left) / frame.width));
    for (const each of charts) read(each, each.querySelector("svg[data-points]"), share);
  }

  /** Show the numbers of a chart at a share of its width. */
  function read(chart, svg, share) {
    svg.readouts ??= JSON.parse(svg.dataset.points);
    const frame = svg.getBoundingClientRect(), begin = Number(svg.dataset.begin), end = Number(svg.dataset.end);
    // All columns have the same width, even if months or days differ in length, and are named by their period.
    const columns = svg.dataset.columns?.split("|"), column = Math.min(Math.floor(share * columns?.length), columns?.length - 1);
    const time = begin + share * (end - begin), point = columns ? svg.readouts[column] : pointAt(svg.readouts, time), readout = box(chart);
    readout.classList.toggle("on", point !== undefined);
    if (!point) return;
    const isStrip = chart.classList.contains("spark"), period = Number(svg.dataset.periodS);
    const at = columns ? columns[column] : svg.dataset.steps !== undefined ? `step ${point[0]}` : isStrip ? window.berthTimes.clock.format(new Date(time * 1000)) : moment(svg, point, time);
    readout.replaceChildren(element("strong", at), ...(isStrip ? [" ", element("span", summary(svg, point))] : rows(svg, point, columns)));
    // The marker is a line at the pointer, or a band over the column.
    const width = columns ? frame.width / columns.length : period ? frame.width * period / (end - begin) : 0;
    const left = columns ? column * width : period ? frame.width * (point[0] - begin) / (end - begin) : share * frame.width;
    const around = chart.getBoundingClientRect(), inset = frame.left - around.left, marker = readout.nextElementSibling;
    marker.classList.toggle("band", width > 0);
    for (const [side, value] of [["left", inset + left], ["top", frame.top - around.top], ["height", frame.height], ["width", width || 1]]) marker.style[side] = `${value}px`;
    if (isStrip) return; // the readout takes the place of the axis
    const fits = inset + left + width + GAP + readout.offsetWidth <= around.width, before = inset + left - GAP - readout.offsetWidth;
    readout.style.left = `${fits ? inset + left + width + GAP : Math.max(0, before)}px`;
  }
  for (const type of ["pointermove", "pointerdown"]) document.addEventListener(type, show); // a tap has no moves
  document.addEventListener("htmx:afterSwap", () => { // keep the readout if a live update replaced the chart
    if (!pointed || pointed.target.isConnected) return;
    const target = document.elementFromPoint(pointed.clientX, pointed.clientY);
    if (target) show({ ...pointed, target });
  });
  document.addEventListener("pointerleave", (event) => { // a finger leaves at the end of each tap
    if (event.pointerType === "touch") return;
    pointed = null;
    for (const readout of document.querySelectorAll(".readout.on")) readout.classList.remove("on");
  });
})();
