// Draft of the quota grid: edits, the stored values, and concurrent changes by other users.
(() => {
  "use strict";
  const form = document.getElementById("quota-changes-form");
  const { NONE, read, make, many, conflictBox, faultBox, token } = window.berthQuotas, answers = window.berthQuotaAnswers;
  const NO_QUOTA = "No quota";
  const draft = new Map(); // maps "owner/pool" to {top, name, cells: Map(field -> {seen, typed, theirs})}
  // A quota to be deleted has a single cell with the value NONE, which also determines its other cells.
  const versions = new Map(), rows = new Map(); // versions received since the rows were drawn, and rows by owner
  let past = [], future = [], table = null, grid = null, columns = [], latest = 0, loading = null, applying = false;

  const part = (name) => form.querySelector(`[data-${name}]`);
  const say = (text) => { document.getElementById("grid-status").textContent = text; };

  // -- cells

  const headText = (th) => {
    const unit = th.querySelector(".unit")?.textContent.trim() ?? "", text = th.textContent.replace(/[↑↓]/g, "").trim();
    return unit ? `${text.slice(0, text.lastIndexOf(unit)).trim()} (${unit})` : text;
  };
  const columnOf = (td) => columns[td.cellIndex - 1];
  const rowOf = (td) => td.parentElement;
  const placeOf = (td) => `${rowOf(td).dataset.owner}/${columnOf(td).pool}`;
  const entryOf = (td) => draft.get(placeOf(td))?.cells.get(columnOf(td).field);
  const stored = (td) => td.dataset.stored ?? (td.dataset.stored = (td.firstChild?.data ?? "").trim());
  const label = (td) => `${columnOf(td).head} of ${rowOf(td).dataset.name} in ${columnOf(td).place}`;
  const rowNamed = (owner) => rows.get(owner) ?? null;

  function cellNamed(place, field) {
    const [owner, pool] = place.split("/");
    const at = columns.findIndex((column) => column.pool === pool && column.field === field);
    return at < 0 ? null : rowNamed(owner)?.cells[at + 1] ?? null;
  }

  const cellsOf = (place) => columns.filter((column) => column.pool === place.split("/")[1]).map((column) => cellNamed(place, column.field)).filter(Boolean);
  const removed = (place) => [...draft.get(place)?.cells ?? []].find(([, entry]) => entry.typed === NONE)?.[0];

  /** Return the cell's text with the draft applied. */
  function textOf(td) {
    const place = placeOf(td), now = stored(td);
    if (!draft.has(place)) return now;
    return removed(place) ? NONE : entryOf(td)?.typed ?? (now === NONE ? columnOf(td).default : now);
  }

  const sheet = {
    draft, rowOf, columnOf, placeOf, entryOf, stored, textOf, versionOf, label, say, made,
    table: () => table, columns: () => columns,
    storedAt(place, field) { const td = cellNamed(place, field); return td ? stored(td) : null; },
    leftOut(text) { part("faults").replaceChildren(make("p", text, "notice warn")); },
  };
  const sums = window.berthQuotaSums(sheet), { write, clear, revertCells, pasted, dropped } = window.berthQuotaTyping(sheet);

  function versionOf(place) {
    if (versions.has(place)) return versions.get(place);
    const [owner, pool] = place.split("/"), pools = [...new Set(columns.map((column) => column.pool))];
    return rowNamed(owner)?.dataset.v.split(" ")[pools.indexOf(pool)] ?? draft.get(place)?.version ?? "";
  }

  // -- changes, undo and redo

  function set(place, field, typed, about) {
    const edited = draft.get(place) ?? { ...about, cells: new Map() };
    if (typed === null) edited.cells.delete(field);
    else edited.cells.set(field, { typed, seen: edited.cells.get(field)?.seen ?? about.seen, theirs: null });
    if (edited.cells.size) draft.set(place, edited);
    else draft.delete(place);
    for (const td of cellsOf(place)) paint(td);
  }

  function made(step) {
    if (!step.length) return;
    past.push(step);
    future = [];
    take(step, "after");
  }

  function take(step, side) {
    for (const { place, field, about, ...sides } of step) set(place, field, sides[side], about);
    settle(step.map(({ place, field, about }) => [about.top, place, field]));
  }

  function back(from, to, side, verb) {
    if (grid.cancel()) return;
    const step = from.pop();
    if (!step) return say(`There is nothing to ${verb}.`);
    to.push(step);
    take(step, side);
    const td = cellNamed(step[0].place, step[0].field);
    if (td) { grid.go(td); say(`${label(td)} is ${textOf(td)} again.`); }
  }

  const undo = () => back(past, future, "before", "undo"), redo = () => back(future, past, "after", "redo");

  // -- effects of a change

  function settle(touched) {
    const inner = touched.filter(([top, place]) => !place.startsWith(`${top}/`));
    for (const above of new Set(inner.map(([top, place]) => `${top}/${place.split("/")[1]}`))) {
      for (const td of cellsOf(above)) {
        if (td.dataset.sum === undefined) continue;
        const was = td.querySelector(".warn") !== null;
        paint(td);
        if (!was && td.querySelector(".warn")) say(`${rowOf(td).dataset.name} is oversubscribed in ${columnOf(td).place}: ${td.querySelector(".sub").textContent}, quota ${textOf(td)}.`);
      }
    }
    for (const pool of new Set(touched.map(([, place]) => place.split("/")[1]))) sums.paintHead(pool);
    document.getElementById("grid-answer").replaceChildren();
    part("faults").replaceChildren();
    for (const td of table.querySelectorAll("td[aria-invalid]")) td.removeAttribute("aria-invalid");
    summary();
  }

  // -- drawing

  function paint(td) {
    if (td.classList.contains("editing")) return; // it is drawn when its editor closes
    const was = stored(td), entry = entryOf(td), now = textOf(td), gone = removed(placeOf(td)) !== undefined;
    td.classList.toggle("changed", Boolean(entry) || gone);
    td.classList.toggle("removed", gone);
    td.classList.toggle("conflict", Boolean(entry?.theirs));
    td.classList.toggle("none", now === NONE || (was === NONE && !entry)); // these are the defaults of a new quota
    if (now === NONE) td.title = NO_QUOTA;
    else if (td.title === NO_QUOTA) td.removeAttribute("title");
    if (entry || gone) {
      const old = make("del", "");
      old.append(make("span", entry?.theirs ? `${entry.theirs.by} set ` : "stored ", entry?.theirs ? "" : "visually-hidden"), was);
      if (gone && !entry?.theirs) paintRemoved(td, Boolean(entry), was, old);
      else if (entry?.theirs) td.replaceChildren(make("ins", now), " ", old);
      else td.replaceChildren(old, " → ", make("ins", now));
    } else td.replaceChildren(now);
    if (td.dataset.sum !== undefined) td.append(sums.sumOf(td));
    if (td.dataset.held !== undefined) sums.markOver(td);
  }

  /** Draw a cell of a quota to be deleted: only the cell with the edit names the deletion. */
  function paintRemoved(td, names, was, old) {
    if (!names) return td.replaceChildren(make("span", "deleted", "visually-hidden"));
    old.lastChild.data = `was ${was}`;
    td.replaceChildren(make("ins", "deleted"), " (", old, ")");
  }

  const undecided = () => [...draft].flatMap(([place, edited]) => [...edited.cells].filter(([, entry]) => entry.theirs).map(([field, entry]) => ({ place, field, entry, edited })));

  function summary() {
    const deleted = [...draft.keys()].filter(removed).length, changed = draft.size - deleted, open = undecided();
    const cells = [...draft.values()].reduce((sum, edited) => sum + edited.cells.size, 0);
    const counts = [changed ? `${many(cells - deleted, "cell")} of ${many(changed, "quota")} changed` : "", deleted ? `${many(deleted, "quota")} deleted` : ""];
    form.hidden = !cells && !past.length && !future.length;
    form.classList.toggle("idle", !cells);
    part("summary").textContent = [...(cells ? counts : ["No unsaved edits"]), open.length ? `${many(open.length, "conflict")}` : ""].filter(Boolean).join(", ");
    for (const [name, off] of [["undo", !past.length], ["redo", !future.length], ["discard", !cells], ["preview", !cells || open.length], ["apply", !cells || open.length]]) {
      form.querySelector(`[data-do=${name}]`).disabled = Boolean(off) || applying;
    }
    form.elements.draft.value = cells ? payload() : "";
    conflicts(open);
  }

  function conflicts(open) {
    const titled = open.map((conflict) => {
      const pool = conflict.place.split("/")[1], column = columns.find((candidate) => candidate.field === conflict.field);
      const where = columns.find((candidate) => candidate.pool === pool)?.place ?? pool;
      return { ...conflict, title: `${column?.head ?? conflict.field} of ${conflict.edited.name} in ${where}` };
    });
    part("conflicts").replaceChildren(...(open.length ? [conflictBox(titled, decide)] : []));
  }

  function decide(cells, mine) {
    for (const { place, field, entry, edited } of cells) {
      entry.theirs = null;
      set(place, field, mine ? entry.typed : null, { ...edited, seen: entry.seen });
    }
    settle(cells.map(({ place, field, edited }) => [edited.top, place, field]));
    (part("conflicts").querySelector("button") ?? form.querySelector("[data-do=preview]")).focus();
  }

  // -- changes by other users

  function learn(updates) {
    const touched = [];
    for (const { owner, pool, version, values, by } of updates) {
      const place = `${owner}/${pool}`;
      if (version === versionOf(place)) continue;
      versions.set(place, version);
      if (draft.has(place)) draft.get(place).version = version;
      for (const [field, now] of Object.entries(values)) {
        const td = cellNamed(place, field), entry = draft.get(place)?.cells.get(field);
        const top = td ? rowOf(td).dataset.top : draft.get(place)?.top;
        if (td && stored(td) !== now) {
          const above = cellNamed(`${top}/${pool}`, field);
          if (above?.dataset.sum !== undefined && top !== owner) sums.shift(above, "sum", columnOf(above), stored(td), now);
          const head = owner === top && field === "gpu" ? sums.headOf(pool) : null;
          if (head) sums.shift(head, "promised", columnOf(td), stored(td), now);
          td.dataset.stored = now;
          td.classList.add("news");
          td.title = by ? `${by} changed this` : "";
        }
        if (entry && entry.typed === now) set(place, field, null, draft.get(place));
        else if (entry && (entry.seen !== now || entry.typed === NONE)) Object.assign(entry, { seen: now, theirs: { by: by ?? "Someone else" } });
        if (top) touched.push([top, place, field]);
      }
      for (const td of cellsOf(place)) paint(td);
    }
    if (touched.length) {
      past = []; future = []; // undo steps refer to values that have changed
      settle(touched);
    }
  }

  async function news() {
    if (!table) return;
    const answer = await fetch(`${form.dataset.updates}?after=${latest}`, { headers: { "HX-Request": "true" } });
    if (answer.status === 401) document.dispatchEvent(new CustomEvent("berth:ended"));
    if (!answer.ok) return;
    const result = await answer.json();
    latest = result.latest;
    learn(result.theirs);
    if (!grid.isEditing() && (result.reload || String(result.tenants) !== table.dataset.tenants)) {
      htmx.ajax("GET", location.pathname + location.search, "#rows");
    }
  }

  // -- requests

  function payload() {
    const cells = [], sentVersions = {};
    for (const [place, { cells: typed }] of draft) {
      const [owner, pool] = place.split("/");
      sentVersions[place] = versionOf(place);
      for (const [field, entry] of typed) cells.push([owner, pool, field, entry.typed]);
    }
    return JSON.stringify({ cells, versions: sentVersions });
  }

  async function send(what, confirmed = "") {
    if (!grid.accept()) return;
    const place = document.getElementById("grid-answer"), body = new FormData(form);
    body.set("do", what);
    body.set("confirmed", confirmed);
    body.set("draft", payload());
    applying = true;
    summary();
    let answer, result;
    try {
      answer = await fetch(form.action, { method: "POST", body, headers: { "HX-Request": "true", "X-CSRFToken": token() } });
      result = answer.headers.get("Content-Type").startsWith("application/json") ? await answer.json() : await answer.text();
    } catch {
      result = "The server cannot be reached. Your edits are kept. Try again in a moment.";
    }
    applying = false;
    if (answer?.status === 401) document.dispatchEvent(new CustomEvent("berth:ended", { detail: { leave: true } }));
    answers.acceptExpiry(form.elements.until);
    if (result.applied) applied(result);
    else if (result.question) answers.ask(result.question, () => send("apply", result.tag));
    else if (result.theirs) { latest = result.latest; learn(result.theirs); say("Someone else changed these quotas. Resolve the conflicts."); }
    else if (result.faults) faults(result.faults);
    else if (answer?.ok) answers.showPreview(form, place, result);
    else { place.replaceChildren(make("p", result, "notice bad")); place.firstChild.setAttribute("role", "alert"); }
    summary();
  }

  function applied(result) {
    latest = result.latest;
    for (const { owner, pool, values } of result.theirs) {
      for (const entry of draft.get(`${owner}/${pool}`)?.cells ?? []) entry[1].typed = values[entry[0]];
    }
    learn(result.theirs);
    draft.clear();
    past = []; future = [];
    form.elements.comment.value = form.elements.until.value = "";
    document.getElementById("grid-answer").replaceChildren();
    for (const td of table.querySelectorAll("td.changed")) paint(td);
    document.dispatchEvent(new CustomEvent("berth:done", { detail: { message: result.applied, warns: result.warns, link: result.link } }));
    table.querySelector("td[tabindex='0']")?.focus();
  }

  function faults(list) {
    const cells = list.filter((fault) => !fault.until), expiry = list.find((fault) => fault.until);
    if (expiry) answers.rejectExpiry(form.elements.until, expiry.until);
    if (cells.length) part("faults").replaceChildren(faultBox(cells, (fault) => cellNamed(`${fault.owner}/${fault.pool}`, fault.field), (td) => grid.go(td)));
  }

  // -- rows loaded later

  async function more() {
    const from = table.dataset.next;
    if (!from || loading) return loading ?? false;
    const query = new URLSearchParams(location.search);
    query.set("rows", from);
    loading = fetch(`${location.pathname}?${query}`, { headers: { "HX-Request": "true" } }).then(async (answer) => {
      if (!answer.ok) return false;
      const before = table.tBodies[0].rows.length;
      table.tBodies[0].insertAdjacentHTML("beforeend", await answer.text());
      table.dataset.next = answer.headers.get("X-Next-Rows") ?? "";
      drawn([...table.tBodies[0].rows].slice(before));
      return table.dataset.next !== "";
    }).catch(() => false).finally(() => { loading = null; });
    return loading;
  }

  function drawn(come) {
    for (const row of come) {
      rows.set(row.dataset.owner, row);
      for (const td of row.cells) {
        if (td.tagName !== "TD") continue;
        if (!td.hasAttribute("tabindex")) td.tabIndex = -1;
        if (draft.has(placeOf(td)) || (td.dataset.sum !== undefined && draft.size)) paint(td);
      }
    }
    const link = document.querySelector("[data-more]"), shown = document.querySelector("[data-shown]");
    if (shown) shown.textContent = table.tBodies[0].rows.length;
    if (link && !table.dataset.next) link.remove();
  }

  function begin() {
    const current = document.getElementById("quota-grid");
    if (!current || current === table) return;
    table = current;
    latest = Math.max(latest, Number(table.dataset.latest));
    versions.clear();
    rows.clear();
    for (const row of table.tBodies[0].rows) rows.set(row.dataset.owner, row);
    columns = [...table.querySelectorAll("thead [data-field]")].map((th) => ({ ...th.dataset, scale: Number(th.dataset.scale), head: headText(th) }));
    if (!form) return;
    grid = window.berthGrid(table, {
      text: textOf, label, say, paint, write, undo, redo, more,
      refusal: (td) => (rowOf(td).dataset.edit === undefined ? `You cannot edit ${label(td)}.` : ""),
      fault: (td, raw) => read(columnOf(td), raw).fault ?? (!columnOf(td).adds && read(columnOf(td), raw) === NONE && textOf(td) !== NONE ? "– means no quota. Enter it in the quota cell, or press Delete there." : ""),
      clear, revertCells, pasted,
    });
    stale();
    drawn([...table.tBodies[0].rows]);
    for (const pool of new Set(columns.map((column) => column.pool))) sums.paintHead(pool);
    summary();
    const wrap = table.parentElement;
    wrap.addEventListener("scroll", () => { if (wrap.scrollTop + wrap.clientHeight > wrap.scrollHeight - 600) more(); }, { passive: true });
  }

  /** Mark conflicts after the rows of a draft have been redrawn. */
  function stale() {
    for (const [place, edited] of draft) {
      const version = versionOf(place);
      for (const [field, entry] of edited.cells) {
        const td = cellNamed(place, field);
        if (!td) continue;
        if (stored(td) === entry.typed) set(place, field, null, edited);
        else if (stored(td) !== entry.seen || (entry.typed === NONE && version !== edited.version)) Object.assign(entry, { seen: stored(td), theirs: { by: "Someone else" } });
      }
      edited.version = version;
    }
  }

  /** Restore a draft that was saved before a sign-in. Load rows until the whole draft is applied. */
  async function restore() {
    let saved;
    try { saved = JSON.parse(form.elements.draft.value || "null"); } catch { return; }
    let left = draft.size ? [] : saved?.cells ?? [];
    while (left.length) {
      const there = left.filter(([owner]) => rowNamed(owner));
      left = left.filter(([owner]) => !rowNamed(owner));
      write(there.map(([owner, pool, field, typed]) => [cellNamed(`${owner}/${pool}`, field), typed]).filter(([td]) => td && rowOf(td).dataset.edit !== undefined));
      for (const [place, edited] of draft) {
        if (saved.versions[place] === versionOf(place)) continue;
        for (const entry of edited.cells.values()) entry.theirs ??= { by: "Someone else" };
      }
      if (!left.length || !table.dataset.next) break;
      await more();
    }
    summary();
  }

  begin();
  document.addEventListener("htmx:load", begin);
  if (!form || !table) return;
  restore();
  form.elements.draft.addEventListener("input", restore);
  document.addEventListener("copy", (event) => grid.copy(event));
  document.addEventListener("paste", (event) => grid.paste(event));
  document.addEventListener("berth:changed", (event) => {
    if (event.detail.some((kind) => kind === "tenants" || kind === "everything")) news();
  });
  addEventListener("beforeunload", (event) => { if (draft.size && document.documentElement.dataset.leaving === undefined) event.preventDefault(); });
  document.querySelector("#rows").addEventListener("click", (event) => {
    if (event.target.closest("[data-more]")) { event.preventDefault(); more(); }
  });
  answers.onUndoKey(form, undo, redo);
  form.addEventListener("submit", (event) => { event.preventDefault(); send("preview"); });
  form.addEventListener("click", (event) => {
    const what = event.target.closest("[data-do]")?.dataset.do;
    if (what === "undo") undo();
    else if (what === "redo") redo();
    else if (what === "apply") send("apply");
    else if (what === "discard") {
      grid.cancel();
      const all = [...draft].flatMap(([place, edited]) => [...edited.cells].map(([field, entry]) => dropped(place, field, entry)));
      past.push(all);
      take(all, "after");
      say("All edits discarded. Undo restores them.");
    }
  });
})();
