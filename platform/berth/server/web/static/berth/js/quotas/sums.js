// Sums in the quota grid with the draft applied: of each department's projects, and of each pool's departments.
(() => {
  "use strict";
  const { NONE, amountOf, make } = window.berthQuotas;
  const EXCEEDS = "Allocated and reserved GPUs exceed the quota";
  const shown = new Intl.NumberFormat("en", { maximumFractionDigits: 3 }); // the server uses the same number format

  /** The argument is the sheet of the page: its draft, and functions that look up cells in the table. */
  window.berthQuotaSums = ({ draft, rowOf, columnOf, textOf, storedAt, table, columns }) => {
    /** Return [before, after] of a value that the draft changes, or null. A new quota has default values. */
    function changeOf(place, edited, column) {
      const typed = [...edited.cells.values()], entry = edited.cells.get(column.field);
      if (typed.some((cell) => cell.typed === NONE)) return [storedAt(place, column.field) ?? entry?.seen ?? NONE, NONE];
      if (entry) return [entry.seen, entry.typed];
      return typed.some((cell) => cell.seen === NONE) ? [NONE, column.default] : null;
    }

    /** Return the stored sum of quotas plus the draft's changes for which `counts` returns true. */
    function draftSum(base, open, column, counts) {
      let finite = base, without = open;
      for (const [place, edited] of draft) {
        const change = place.endsWith(`/${column.pool}`) && counts(place, edited) && changeOf(place, edited, column);
        if (!change) continue;
        for (const [text, sign] of [[change[0], -1], [change[1], 1]]) {
          const amount = amountOf(text, column);
          if (amount === null) without += sign;
          else finite += sign * amount;
        }
      }
      return { finite, without, text: without > 0 ? "∞" : shown.format(finite / column.scale) };
    }

    function sumOf(td) {
      const column = columnOf(td), top = rowOf(td).dataset.owner, text = textOf(td);
      const inner = draftSum(Number(td.dataset.sum), Number(td.dataset.open), column, (place, edited) => edited.top === top && !place.startsWith(`${top}/`));
      const own = amountOf(text === NONE ? column.default : text, column);
      const isOversubscribed = own !== null && (inner.without > 0 || inner.finite > own);
      if (!inner.finite && inner.without <= 0) return "";
      return make("span", `${inner.text} assigned to projects`, isOversubscribed ? "sub warn" : "sub");
    }

    /** Mark the allocation of a cell that exceeds its quota, stored or in the draft. */
    function markOver(td) {
      const quota = amountOf(textOf(td), columnOf(td)), over = quota !== null && Number(td.dataset.held) > quota;
      td.toggleAttribute("data-over", over);
      if (over) td.title = EXCEEDS;
      else if (td.title === EXCEEDS) td.removeAttribute("title");
    }

    const headOf = (pool) => table().querySelector(`th[data-pool-head="${pool}"] [data-has]`);

    function paintHead(pool) {
      const head = headOf(pool), column = columns().find((candidate) => candidate.pool === pool && candidate.field === "gpu");
      if (!head || !column) return;
      const sum = draftSum(Number(head.dataset.promised), Number(head.dataset.open), column, (place) => place.startsWith("department-"));
      const has = Number(head.dataset.has);
      head.querySelector("[data-total]").textContent = `${sum.text} of ${shown.format(has / 1000)}`;
      head.classList.toggle("warn", sum.without > 0 || sum.finite > has);
    }

    /** Update the stored sum of an element after one of its summands has changed from `before` to `after`. */
    function shift(keeper, sum, column, before, after) {
      for (const [text, sign] of [[before, -1], [after, 1]]) {
        const amount = amountOf(text, column), which = amount === null ? "open" : sum;
        keeper.dataset[which] = Number(keeper.dataset[which]) + sign * (amount ?? 1);
      }
    }

    return { sumOf, markOver, headOf, paintHead, shift };
  };
})();
