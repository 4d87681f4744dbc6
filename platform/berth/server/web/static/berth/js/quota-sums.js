// Of the grid of quotas: what departments and pools are promised in all, as it is stored and as a draft changes it.
(() => {
  "use strict";
  const { NONE, amountOf, make } = window.berthQuotas;

  /** `sheet` is the page's own: its draft, and how cells are found in the table of the moment. */
  window.berthQuotaSums = ({ draft, rowOf, columnOf, textOf, storedAt, table, columns }) => {
    /** What the draft makes of one value of a quota; a new one has what it does not set, too. */
    function changeOf(place, told, column) {
      const typed = [...told.cells.values()], entry = told.cells.get(column.field);
      if (typed.some((each) => each.typed === NONE)) return [storedAt(place, column.field) ?? entry?.seen ?? NONE, NONE];
      if (entry) return [entry.seen, entry.typed];
      return typed.some((each) => each.seen === NONE) ? [NONE, column.default] : null;
    }

    /** What is given in all: as it is stored, and as the draft changes it where `counts` says so. */
    function promised(base, open, column, counts) {
      let finite = base, without = open;
      for (const [place, told] of draft) {
        const change = place.endsWith(`/${column.pool}`) && counts(place, told) && changeOf(place, told, column);
        if (!change) continue;
        for (const [text, sign] of [[change[0], -1], [change[1], 1]]) {
          const amount = amountOf(text, column);
          if (amount === null) without += sign;
          else finite += sign * amount;
        }
      }
      return { finite, without, text: without > 0 ? "∞" : String(finite / column.scale) };
    }

    function sumOf(td) {
      const column = columnOf(td), top = rowOf(td).dataset.owner, text = textOf(td);
      const inner = promised(Number(td.dataset.sum), Number(td.dataset.open), column, (place, told) => told.top === top && !place.startsWith(`${top}/`));
      const own = amountOf(text === NONE ? column.default : text, column);
      const oversold = own !== null && (inner.without > 0 || inner.finite > own);
      return make("span", `projects: ${inner.text}`, oversold ? "sub warn" : "sub");
    }

    const headOf = (pool) => table().querySelector(`th[data-pool-head="${pool}"] [data-has]`);

    function paintHead(pool) {
      const told = headOf(pool), column = columns().find((each) => each.pool === pool && each.field === "gpu");
      if (!told || !column) return;
      const given = promised(Number(told.dataset.promised), Number(told.dataset.open), column, (place) => place.startsWith("department-"));
      const has = Number(told.dataset.has);
      told.textContent = `departments: ${given.text} of ${has / 1000} GPUs`;
      told.classList.toggle("warn", given.without > 0 || given.finite > has);
    }

    /** Of what keeps a sum: one of its parts was `before` and is `after`. */
    function shift(keeper, sum, column, before, after) {
      for (const [text, sign] of [[before, -1], [after, 1]]) {
        const amount = amountOf(text, column), which = amount === null ? "open" : sum;
        keeper.dataset[which] = Number(keeper.dataset[which]) + sign * (amount ?? 1);
      }
    }

    return { sumOf, headOf, paintHead, shift };
  };
})();
