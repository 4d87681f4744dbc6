// Small tables that are completely on the page: sort them by their column heads, search them and export them.
// The server sorts, searches and exports long lists, whose heads are links.
(() => {
  "use strict";
  const MANY = 10, FORMULA = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/, NUMBER = /^[-–]?[\d,]*\.?\d+/;
  const states = new Map(); // sort order and search text by caption, to apply again after a refresh

  const textOf = (element) => {
    const clone = element.cloneNode(true);
    for (const gone of clone.querySelectorAll("button:not(.sorter), form, .arrow, a.button")) gone.remove();
    for (const time of clone.querySelectorAll("time[datetime]")) time.textContent = time.dateTime;
    for (const sub of clone.querySelectorAll(".sub, div, li")) sub.prepend(" ");
    return clone.textContent.replace(/\s+/g, " ").trim();
  };
  const nameOf = (table) => table.caption?.textContent.trim() || table.getAttribute("aria-label") || "table";

  /** Group each row that has a cell for every head with the shorter rows below it. */
  function groups(table, columns) {
    const groupList = [];
    for (const row of table.tBodies[0].rows) {
      if (row.cells.length === columns || !groupList.length) groupList.push([row]);
      else groupList.at(-1).push(row);
    }
    return groupList;
  }

  function weight(row, column) {
    const cell = row.cells[column], time = cell?.querySelector("time[datetime]");
    if (time) return [1, Date.parse(time.dateTime)];
    const text = textOf(cell ?? row), number = NUMBER.exec(text);
    if (text === "" || text === "–") return [0, 0];
    if (text.startsWith("∞")) return [1, Infinity];
    return number ? [1, Number(number[0].replaceAll(",", "").replace("–", "-"))] : [2, text.toLowerCase()];
  }

  function arrange(table, heads) {
    const state = states.get(nameOf(table)) ?? {}, body = table.tBodies[0];
    const rows = groups(table, heads.length);
    if (state.column !== undefined) {
      const sorted = rows.map((group) => [weight(group[0], state.column), group]);
      sorted.sort(([a], [b]) => (a[0] - b[0] || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0)) * (state.down ? -1 : 1));
      body.append(...sorted.flatMap(([, group]) => group));
    }
    const words = (state.search ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    for (const group of rows) {
      const text = group.map(textOf).join(" ").toLowerCase(), out = !words.every((word) => text.includes(word));
      for (const row of group) row.hidden = out;
    }
    heads.forEach((head, column) => {
      if (column === state.column) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  const quoted = (text) => {
    const plain = FORMULA.test(text) && !/^-?[\d,]*\.?\d+$/.test(text) ? `'${text}` : text;
    return /[",\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };

  function download(table) {
    const rows = [...table.tHead.rows, ...[...table.tBodies].flatMap((body) => [...body.rows])].filter((row) => !row.hidden && !row.classList.contains("bars"));
    const text = rows.map((row) => [...row.cells].map((cell) => quoted(textOf(cell))).join(",")).join("\r\n");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([`${text}\r\n`], { type: "text/csv;charset=utf-8" }));
    link.download = `${nameOf(table).toLowerCase().replace(/[^a-z0-9]+/g, "-")}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  function tools(table, heads, plain) {
    const place = document.createElement("div"), file = document.createElement("button");
    place.className = "table-foot";
    file.type = "button";
    file.className = "icon-button small csv";
    const sprite = document.querySelector("svg use[href*='icons.svg#']")?.getAttribute("href").replace(/#.*/, "#download");
    if (sprite) file.innerHTML = `<svg aria-hidden="true" focusable="false" width="16" height="16"><use href="${sprite}"></use></svg>`;
    file.setAttribute("aria-label", `Download ${nameOf(table)} as CSV`);
    file.title = "Download CSV";
    file.addEventListener("click", () => download(table));
    const card = table.closest(".card"), filters = card?.querySelector("form.filters"); // filters search on the server
    if (plain && !table.hasAttribute("data-few-rows") && table.tBodies[0].rows.length > MANY && !filters?.querySelector("input[type=search]")) {
      const search = document.createElement("input");
      search.type = "search";
      search.placeholder = "Search";
      search.setAttribute("aria-label", `Search ${nameOf(table)}`);
      search.value = states.get(nameOf(table))?.search ?? "";
      search.addEventListener("input", () => {
        states.set(nameOf(table), { ...states.get(nameOf(table)), search: search.value });
        arrange(table, heads);
      });
      const folded = table.closest("details"); // a collapsed table, such as a chart's numbers, has its search field inside
      if (folded) folded.querySelector("summary").after(search);
      else place.append(search);
    }
    place.append(file);
    const head = card?.querySelector(":scope > .card-head");
    const bar = filters?.querySelector("[data-table-tools]"); // a list without a head offers a place beside its filters
    if (head && !head.querySelector("a[download]") && card.querySelectorAll("table").length === 1) head.append(place);
    else if (bar) bar.replaceChildren(place);
    else (table.closest(".table-wrap") ?? table).after(place);
  }

  function begin(table) {
    if (table.dataset.small !== undefined || table.role === "grid" || table.classList.contains("draft") || table.closest(".impact")) return;
    if (!table.tHead || !table.tBodies[0] || table.querySelector("thead a, input, textarea") || table.tBodies[0].rows.length < 2) return;
    table.dataset.small = "";
    const heads = [...table.tHead.rows].at(-1).cells, plain = !table.querySelector("tr.group, [rowspan]");
    tools(table, [...heads], plain);
    if (!plain) return;
    [...heads].forEach((head, column) => {
      if (!textOf(head) || head.querySelector(".visually-hidden")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sorter";
      button.append(...head.childNodes);
      button.addEventListener("click", () => {
        const state = states.get(nameOf(table)) ?? {};
        states.set(nameOf(table), { ...state, column, down: state.column === column && !state.down });
        arrange(table, [...heads]);
      });
      head.append(button);
    });
    if (states.has(nameOf(table))) arrange(table, [...heads]);
  }

  /** Allow keyboard scrolling of a table that scrolls sideways. */
  function reach(wrap) {
    if (wrap.scrollWidth <= wrap.clientWidth || wrap.querySelector("a[href], button, input, [tabindex]")) return;
    wrap.tabIndex = 0;
    wrap.setAttribute("role", "region");
    wrap.setAttribute("aria-label", nameOf(wrap.querySelector("table")));
  }

  /** Mark long lists that need not scroll sideways, so that their heads stay in view. */
  function fit() {
    for (const wrap of document.querySelectorAll(".table-wrap:has(> .workload-rows)")) wrap.classList.toggle("fits", wrap.scrollWidth <= wrap.clientWidth);
  }
  addEventListener("resize", fit);

  function all(scope) {
    fit();
    for (const table of scope.querySelectorAll("table")) begin(table);
    for (const wrap of scope.querySelectorAll(".table-wrap")) reach(wrap);
  }
  all(document);
  document.addEventListener("htmx:load", (event) => all(event.target));
  // Live parts are sorted and searched again before they are shown.
  document.addEventListener("htmx:afterSwap", (event) => event.target instanceof Element && all(event.target));
})();
