// Spreadsheet-like table: arrows move, Enter, F2 or typing edits a cell, and blocks can be copied and pasted.
// The page's script (`hooks`) returns the contents of a cell and whether it is editable, and stores its edits.
(() => {
  "use strict";
  const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-15, 0], PageDown: [15, 0] };
  const NEAR_THE_END = 20, FAR = 1e9;

  window.berthGrid = (table, hooks) => {
    const body = table.tBodies[0];
    let active = null, anchor = null, editor = null, touches = false;

    const place = (td) => [td.parentElement.sectionRowIndex, td.cellIndex];
    const cellAt = (row, col) => body.rows[row]?.cells[col] ?? null;
    const widest = () => body.rows[0].cells.length - 1;
    const within = (number, most) => Math.max(0, Math.min(number, most));

    function block() {
      if (!active) return [];
      const [[r1, c1], [r2, c2]] = [place(anchor?.isConnected ? anchor : active), place(active)];
      const rows = [];
      for (let row = Math.min(r1, r2); row <= Math.max(r1, r2); row += 1) {
        rows.push([...body.rows[row].cells].slice(Math.min(c1, c2), Math.max(c1, c2) + 1));
      }
      return rows;
    }

    function show() {
      for (const td of table.querySelectorAll("td[aria-selected]")) td.removeAttribute("aria-selected");
      const cells = block().flat();
      if (cells.length > 1) for (const td of cells) td.setAttribute("aria-selected", "true");
    }

    function go(td, extend = false) {
      if (td?.tagName !== "TD") return;
      if (active) active.tabIndex = -1;
      if (!extend || !anchor?.isConnected) anchor = td;
      active = td;
      td.tabIndex = 0;
      td.focus();
      show();
      if (td.parentElement.sectionRowIndex > body.rows.length - NEAR_THE_END) hooks.more();
    }

    async function move(event, [down, right]) {
      const edge = event.ctrlKey || event.metaKey ? FAR : 1;
      const [row, col] = place(active);
      if (down < 0 && row === 0 && edge === 1 && !event.shiftKey) return table.querySelectorAll("thead tr:last-child a")[col - 1]?.focus();
      if (down > 0 && edge === FAR) {
        const from = active;
        while (await hooks.more());
        if (editor || document.activeElement !== from) return; // do not move the focus of a user who has moved on
      }
      const to = within(row + down * edge, body.rows.length - 1);
      go(cellAt(to, Math.max(1, within(col + right * edge, widest()))), event.shiftKey);
    }

    function edit(td, typed) {
      const refusal = hooks.refusal(td), now = hooks.text(td);
      if (refusal) return hooks.say(refusal);
      const input = document.createElement("input");
      input.className = "cell-editor";
      input.setAttribute("aria-label", hooks.label(td));
      input.autocomplete = "off";
      input.value = typed ?? now;
      editor = { td, input };
      td.classList.add("editing");
      td.replaceChildren(input);
      input.focus();
      if (typed === undefined) input.select();
    }

    function close() {
      const { td } = editor;
      editor = null;
      td.classList.remove("editing");
      hooks.paint(td);
      return td;
    }

    /** Store the editor's text and return its cell. Show an error and return null if the text is invalid. */
    function keep() {
      const { td, input } = editor, fault = hooks.fault(td, input.value);
      if (!fault) {
        const text = input.value;
        close();
        hooks.write([[td, text]]);
        return td;
      }
      let message = td.querySelector(".error");
      if (!message) {
        message = document.createElement("span");
        message.className = "error";
        message.id = "cell-error";
        td.append(message);
      }
      message.textContent = fault;
      input.setAttribute("aria-invalid", "true");
      input.setAttribute("aria-describedby", "cell-error");
      hooks.say(fault);
      return null;
    }

    /** Store the open editor's text. Return false and focus the editor if the text is invalid. */
    function accept() {
      if (!editor?.input.isConnected || keep()) return true;
      editor.input.focus();
      return false;
    }

    /** Close the open editor without storing its text. Return whether an editor was open. */
    function cancel() {
      if (!editor) return false;
      go(close());
      return true;
    }

    function nextEditable(td, step) {
      const cells = [...td.parentElement.cells], at = td.cellIndex;
      const beside = step > 0 ? cells.slice(at + 1) : cells.slice(1, at).reverse();
      const row = td.parentElement.sectionRowIndex + step;
      return beside[0] ?? (body.rows[row] ? cellAt(row, step > 0 ? 1 : widest()) : td);
    }

    function whileEditing(event) {
      event.stopPropagation();
      if (event.key === "Escape") {
        event.preventDefault();
        go(close());
      } else if (event.key === "Enter" || event.key === "Tab") {
        event.preventDefault();
        const td = keep(), back = event.shiftKey ? -1 : 1;
        if (!td) return;
        const below = cellAt(td.parentElement.sectionRowIndex + back, td.cellIndex);
        go(event.key === "Tab" ? nextEditable(td, back) : below ?? td);
      }
    }

    function fillDown() {
      const [first, ...rest] = block();
      hooks.write(rest.flatMap((row) => row.map((td, n) => [td, hooks.text(first[n])])).filter(([td]) => !hooks.refusal(td)));
    }

    const SHORTCUTS = {
      z: (event) => (event.shiftKey ? hooks.redo() : hooks.undo()), y: () => hooks.redo(), d: fillDown,
    };

    function onKey(event) {
      if (editor) return whileEditing(event);
      const head = event.target.closest("thead a");
      if (head && event.key === "ArrowDown") {
        event.preventDefault();
        return go(cellAt(0, head.closest("tr").rowIndex ? head.closest("th").cellIndex + 1 : 1));
      }
      if (!event.target.closest("tbody td") || !active || event.altKey) return;
      const ctrl = event.ctrlKey || event.metaKey, key = event.key;
      if (MOVES[key]) move(event, MOVES[key]);
      else if (key === "Home") go(cellAt(ctrl ? 0 : place(active)[0], 1), event.shiftKey);
      else if (key === "End") ctrl ? move(event, [1, 1]) : go(cellAt(place(active)[0], widest()), event.shiftKey);
      else if (key === "Enter" || key === "F2") edit(active);
      else if (key === "Delete") hooks.clear(block().flat());
      else if (key === "Backspace") hooks.revertCells(block().flat());
      else if (key === "Escape") go(active);
      else if (ctrl && SHORTCUTS[key.toLowerCase()]) SHORTCUTS[key.toLowerCase()](event);
      else if (!ctrl && key.length === 1 && key !== " ") edit(active, key);
      else return;
      event.preventDefault();
    }

    function onCopy(event) {
      if (editor || document.activeElement !== active || !active) return;
      event.preventDefault();
      event.clipboardData.setData("text/plain", block().map((row) => row.map((td) => hooks.text(td)).join("\t")).join("\n"));
      hooks.say(`${block().flat().length} copied.`);
    }

    async function onPaste(event) {
      if (editor || document.activeElement !== active || !active) return;
      event.preventDefault();
      const text = event.clipboardData.getData("text/plain").replace(/\r\n?/g, "\n").replace(/\n$/, "");
      const pastedCells = text.split("\n").map((line) => line.split("\t").map((cell) => cell.trim().replace(/^"(.*)"$/, "$1")));
      const cells = block(), one = pastedCells.length === 1 && pastedCells[0].length === 1;
      const [top, left] = place(cells[0][0]);
      while (top + pastedCells.length > body.rows.length && await hooks.more());
      const targets = one ? cells.flat().map((td) => [td, pastedCells[0][0]])
        : pastedCells.flatMap((line, down) => line.map((typed, right) => [cellAt(top + down, left + right), typed]));
      hooks.pasted(targets.filter(([, typed]) => typed !== ""));
    }

    function onPress(event) {
      const td = event.target.closest("tbody td");
      if (!td || event.target.closest("input, a, button")) return;
      event.preventDefault();
      if (editor && editor.td !== td && !keep()) return;
      if (td === active && !event.shiftKey && document.activeElement === td) return edit(td);
      go(td, event.shiftKey);
      if (touches) edit(td);
    }

    table.addEventListener("keydown", onKey);
    table.addEventListener("pointerdown", (event) => { touches = event.pointerType === "touch"; });
    table.addEventListener("mousedown", onPress);
    table.addEventListener("focusout", (event) => {
      if (editor && event.target === editor.input && event.relatedTarget !== null && !table.contains(event.relatedTarget)) {
        keep();
      }
    });
    for (const link of table.querySelectorAll("thead a")) link.tabIndex = -1;
    const first = cellAt(0, 1);
    if (first) { first.tabIndex = 0; active = anchor = first; }
    table.addEventListener("focusin", (event) => { if (!editor && event.target.matches("tbody td") && event.target !== active) go(event.target); });

    return { go, accept, cancel, copy: onCopy, paste: onPaste, isEditing: () => editor !== null };
  };
})();
