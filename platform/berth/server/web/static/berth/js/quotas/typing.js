// Editing of the quota grid: convert typing, pasting, deleting and reverting to steps of the draft.
(() => {
  "use strict";
  const { NONE, read, many } = window.berthQuotas;

  /** The argument is the sheet of the page. Its `made` applies an undoable step to the draft. */
  window.berthQuotaTyping = ({ draft, rowOf, columnOf, placeOf, entryOf, stored, textOf, versionOf, label, say, made, leftOut }) => {
    const isMine = (td) => rowOf(td).dataset.edit !== undefined;

    /** Write cells. Values override the deletion of the same quota. */
    function write(cells) {
      const step = [], groups = new Map();
      for (const [td, raw] of cells) {
        const text = read(columnOf(td), raw);
        if (!text.fault) groups.set(placeOf(td), [...groups.get(placeOf(td)) ?? [], [td, text]]);
      }
      for (const [place, group] of groups) {
        const values = group.filter(([, text]) => text !== NONE), written = values.length ? values : group.slice(0, 1);
        const fields = written.map(([td]) => columnOf(td).field);
        for (const [field, entry] of draft.get(place)?.cells ?? []) {
          if (!fields.includes(field) && (!values.length || entry.typed === NONE)) step.push(dropped(place, field, entry));
        }
        for (const [td, text] of written) {
          const entry = entryOf(td), before = entry?.typed ?? null, after = text === stored(td) && !entry?.theirs ? null : text;
          if (after === before && !entry?.theirs) continue;
          const { top, name } = rowOf(td).dataset;
          step.push({ place, field: columnOf(td).field, before, after, about: { top, name, seen: stored(td), version: versionOf(place) } });
        }
      }
      made(step);
    }

    /** Return the step that removes a cell from the draft. */
    const dropped = (place, field, entry) => ({ place, field, before: entry.typed, after: null, about: { ...draft.get(place), seen: entry.seen } });

    /** Delete whole quotas among the cells; set other cells to the defaults of a new quota. */
    function clear(cells) {
      const mine = cells.filter((td) => isMine(td)), gone = new Map();
      for (const td of mine) if (columnOf(td).adds && textOf(td) !== NONE && !gone.has(placeOf(td))) gone.set(placeOf(td), td);
      const rest = mine.filter((td) => !gone.has(placeOf(td)) && textOf(td) !== NONE);
      write([...[...gone.values()].map((td) => [td, NONE]), ...rest.map((td) => [td, columnOf(td).default])]);
      const [td] = gone.values();
      if (!mine.length) say(`You cannot edit ${label(cells[0])}.`);
      else if (gone.size) say(gone.size === 1 ? `${rowOf(td).dataset.name} would have no quota in ${columnOf(td).place}.` : `${gone.size} quotas would be deleted.`);
    }

    function revertCells(cells) {
      const places = [...new Set(cells.map(placeOf))], own = (place) => cells.filter((td) => placeOf(td) === place).map((td) => columnOf(td).field);
      made(places.flatMap((place) => [...draft.get(place)?.cells ?? []]
        .filter(([field, entry]) => entry.typed === NONE || own(place).includes(field)).map(([field, entry]) => dropped(place, field, entry))));
    }

    function pasted(cells) {
      const may = cells.filter(([td, raw]) => td?.tagName === "TD" && isMine(td) && !read(columnOf(td), raw).fault);
      const gone = new Set(may.filter(([td, raw]) => columnOf(td).adds && read(columnOf(td), raw) === NONE).map(([td]) => placeOf(td)));
      const fine = may.filter(([td, raw]) => read(columnOf(td), raw) !== NONE || gone.has(placeOf(td)));
      write(fine);
      const left = cells.length - fine.length, why = "read-only, outside the grid, or not a valid value";
      say(`${fine.length} pasted${left ? `, ${left} skipped: ${why}` : ""}.`);
      if (left) leftOut(`${many(left, "pasted cell")} skipped: ${why}.`);
    }

    return { write, clear, revertCells, pasted, dropped };
  };
})();
