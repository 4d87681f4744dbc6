// Map of an array's tasks: one tab stop, arrow keys, and a note that names the task under the pointer, focus or finger.
(() => {
  "use strict";
  const REACH = 24; // pixels from a finger to the task that it means
  let touched = ""; // ID of the task whose note a tap has opened

  const map = () => document.getElementById("task-map");
  const tasks = () => [...map()?.querySelectorAll("a[id]") ?? []];
  const middle = (frame) => [frame.left + frame.width / 2, frame.top + frame.height / 2];

  function hide() {
    touched = "";
    document.getElementById("task-note")?.remove();
  }

  /** Show the state of a task. After a tap, the note has a link, because the task itself is too small for one. */
  function show(task, isTouch = false) {
    hide();
    const note = document.createElement("div"), around = map().getBoundingClientRect(), frame = task.getBoundingClientRect();
    note.id = "task-note";
    note.className = "task-note";
    note.append(task.getAttribute("aria-label"));
    if (isTouch) {
      const link = document.createElement("a");
      link.className = "button small";
      link.href = task.href;
      link.textContent = "Open task";
      note.append(link);
      touched = task.id;
    } else note.setAttribute("aria-hidden", "true"); // the task has the same text as its label
    map().append(note);
    note.style.left = `${Math.max(0, Math.min(frame.left - around.left, around.width - note.offsetWidth))}px`;
    note.style.top = `${frame.top - around.top}px`;
  }

  /** Return the task in the next row up or down whose place in the row is closest. */
  function inNextRow(all, from, direction) {
    const [x, y] = middle(from.getBoundingClientRect());
    const others = all.map((task) => [task, ...middle(task.getBoundingClientRect())]).filter(([, , top]) => (top - y) * direction > 2);
    const row = Math.min(...others.map(([, , top]) => Math.abs(top - y)));
    const inRow = others.filter(([, , top]) => Math.abs(top - y) < row + 2).sort(([, one], [, other]) => Math.abs(one - x) - Math.abs(other - x));
    return inRow[0]?.[0];
  }

  document.addEventListener("keydown", (event) => {
    const task = event.target.closest?.("#task-map a[id]");
    if (event.key === "Escape") hide();
    if (!task || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const all = tasks(), place = all.indexOf(task);
    const targets = { ArrowRight: () => all[place + 1], ArrowLeft: () => all[place - 1], ArrowDown: () => inNextRow(all, task, 1), ArrowUp: () => inNextRow(all, task, -1), Home: () => all[0], End: () => all.at(-1) };
    if (!(event.key in targets)) return;
    event.preventDefault();
    targets[event.key]()?.focus();
  });
  document.addEventListener("focusin", (event) => {
    const task = event.target.closest?.("#task-map a[id]");
    if (!task) return event.target.closest?.("#task-note") ? undefined : hide();
    for (const each of tasks()) each.tabIndex = each === task ? 0 : -1;
    if (task.matches(":focus-visible") || task.id === touched) show(task, task.id === touched);
  });
  document.addEventListener("focusout", (event) => {
    // Updates replace the map and then restore the focus, so the note of a tap is kept in mind.
    if (event.target.closest?.("#task-map a[id]") && !touched) hide();
  });
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const task = event.target.closest?.("#task-map a[id]");
    if (task) show(task);
    else if (!touched && !map()?.contains(document.activeElement)) hide();
  });

  let pointer = "";
  document.addEventListener("pointerdown", (event) => { pointer = event.pointerType; }, true);
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#task-note")) return;
    if (pointer !== "touch" || !event.target.closest?.("#task-map")) return hide();
    const distances = tasks().map((task) => {
      const [x, y] = middle(task.getBoundingClientRect());
      return [Math.hypot(x - event.clientX, y - event.clientY), task];
    });
    const [distance, task] = distances.sort(([one], [other]) => one - other)[0];
    event.preventDefault();
    if (distance > REACH) return hide();
    touched = task.id;
    task.focus({ preventScroll: true });
    show(task, true);
  });
})();
