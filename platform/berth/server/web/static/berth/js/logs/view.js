// Lines of logs as elements, with marks, errors and times.
(() => {
  "use strict";
  const ELEMENT = 20; // memory that an element takes, in characters
  const { exact, exactDay } = window.berthTimes;

  /** Show a line with its styles, and with the searched text marked. The text is never markup. */
  function fill(element, { runs, ended }, pattern) {
    const found = pattern ? [...runs.map(([text]) => text).join("").matchAll(pattern)] : [];
    let at = 0;
    element.replaceChildren();
    for (const [text, style] of runs) {
      const end = at + text.length, parts = [];
      while (found.length && found[0].index < end) {
        const from = Math.max(found[0].index, at), last = found[0].index + found[0][0].length, to = Math.min(last, end);
        const mark = document.createElement("mark");
        mark.textContent = text.slice(text.length - end + from, text.length - end + to);
        parts.push(text.slice(text.length - end + at, text.length - end + from), mark);
        at = to;
        if (last > end) break; // the match continues in the next style
        found.shift();
      }
      parts.push(text.slice(text.length - end + at));
      at = end;
      if (!style) { element.append(...parts); continue; }
      const span = document.createElement("span");
      span.className = style.trim();
      span.append(...parts);
      element.append(span);
    }
    if (ended) element.append("\n");
    element.normalize();
  }

  /** Return how much of the page's memory an element takes, in characters. */
  const weigh = (element) => element.textContent.length + ELEMENT * element.querySelectorAll("*").length;

  const decode = (data) => new TextDecoder().decode(data);

  /** Return how many bytes at the end of the data begin a character that continues after it. */
  function cutCharacter(data) {
    for (let count = 1; count <= Math.min(3, data.length); count += 1) {
      const byte = data.at(-count);
      if (byte >= 0xc0) return (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) > count ? count : 0;
      if (byte < 0x80) return 0;
    }
    return 0;
  }

  /** Return how long ago a time was, as the end of a sentence, or an empty string for less than a minute. */
  function elapsedSince(started) {
    const minutes = Math.floor((Date.now() - Date.parse(started)) / 60000);
    if (!(minutes > 0)) return "";
    return minutes < 60 ? `, ${minutes} min after the start` : `, ${Math.floor(minutes / 60)} h ${minutes % 60} min after the start`;
  }

  // The style sheet justifies the time and the line number. A figure space keeps its width.
  const timeText = (time, isToday) => time ? (isToday ? exact : exactDay).format(time).replaceAll(" ", "\u2007") : "-";

  /** Show the times of consecutive lines: `times` has [index, Unix time in milliseconds] of each line where the time changes. */
  function stamp(elements, times, skipped, isToday) {
    let place = -1;
    elements.forEach((element, index) => {
      while (place + 1 < times.length && times[place + 1][0] <= index + skipped) place += 1;
      const time = times[place]?.[1];
      element.dataset.time = timeText(time, isToday);
    });
  }

  /** Show the times of the lines in the list of matches, and which match the log shows. */
  function updateList(list, shown, isToday) {
    for (const element of list.querySelectorAll("[data-at]:not([data-time])")) element.dataset.time = timeText(Number(element.dataset.at), isToday);
    list.querySelector("[data-log-at][aria-current]")?.removeAttribute("aria-current");
    shown.setAttribute("aria-current", "true");
    if (!list.querySelector(".log-all[open]")) return; // the list is hidden
    const item = shown.closest("li"), pane = item.closest(".log-list");
    const above = pane.getBoundingClientRect().top - item.getBoundingClientRect().top, below = item.getBoundingClientRect().bottom - pane.getBoundingClientRect().bottom;
    if (above > 0) pane.scrollTop -= above; else if (below > 0) pane.scrollTop += below;
  }

  /** Show a counter with the name of the pod, which phones leave out. */
  function showCounter(element, text, podName) {
    const pod = document.createElement("span");
    pod.className = "wide-only";
    if (podName) pod.append(` · ${podName}`);
    element.replaceChildren(text, pod);
  }

  const TRACEBACK = "Traceback (most recent", TRACEBACK_LINES = 200;
  const SCANNED_LINES = 20_000; // maximum number of lines read per count to find the ends of tracebacks
  /** Return whether a line is an indented line of a traceback. */
  const isOfTraceback = (element) => {
    const before = element.previousElementSibling ?? element.parentElement.previousElementSibling?.lastElementChild;
    if (!before?.matches(".trace, .error") || element.matches(".error")) return false;
    return /^(\[[^\]]*\]:? *)?\s+\S/.test(element.textContent) && (before.matches(".trace") || before.textContent.includes(TRACEBACK));
  };
  const after = (element) => element.nextElementSibling ?? element.parentElement.nextElementSibling?.firstElementChild;

  /** Mark the lines from an element on again, because the lines before them have changed. */
  function markTracebacks(element) {
    for (let each = element; each; each = after(each)) {
      const isTrace = isOfTraceback(each);
      if (each.classList.contains("trace") === isTrace) return; // so are the following lines
      each.classList.toggle("trace", isTrace);
    }
  }

  /** Return whether the line that ends a traceback names an error, and how many lines were read.
   *
   * The lines of the traceback have the same prefix and are indented.
   */
  function endsWithError(element, maxLines) {
    const text = element.textContent, prefix = text.slice(0, text.indexOf(TRACEBACK));
    let each = after(element), count = 0;
    for (; each && count < maxLines; each = after(each)) {
      count += 1;
      const line = each.textContent.trimEnd(), rest = line.startsWith(prefix) ? line.slice(prefix.length) : "";
      if (rest && !/^\s/.test(rest)) return [!rest.includes(TRACEBACK) && each.classList.contains("error"), count];
    }
    return [false, count];
  }

  /** Return the lines with the errors that a log shows. A traceback and the error at its end are one.
   *
   * After `SCANNED_LINES`, tracebacks and the errors at their ends count separately.
   */
  function errorLines(body) {
    let left = SCANNED_LINES;
    return [...body.querySelectorAll(".l.error")].filter((each) => {
      if (!left || !each.textContent.includes(TRACEBACK)) return true;
      const [isError, count] = endsWithError(each, Math.min(TRACEBACK_LINES, left));
      left -= count;
      return !isError;
    });
  }

  const errorsIn = (body) => errorLines(body).length;

  /** Return the number of a line, or 0 if it is unknown. `first` is the number of the first line that is shown. */
  const numberOf = (body, element, first) => first && first + [...body.querySelectorAll(".l")].indexOf(element);

  // The offset of a line is read from the server, so a link gets its target when it is used. Until then it leads to all errors.
  const targets = new WeakMap();
  function linkLine(link, pod, element, number, offsetOf) {
    link.hash = `pod=${pod}&errors=on`;
    targets.set(link, async () => `pod=${pod}&line=${number}&at=${await offsetOf(element)}`);
  }
  document.addEventListener("click", async (event) => {
    const link = event.target.closest?.("a"), target = targets.get(link);
    if (!target || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    link.hash = await target().catch(() => link.hash);
    location.assign(link.href);
  });

  const ERROR_LINES = 40; // as on the tab Timeline

  /** Show the last line of a failed pod that names an error, also in red in the log, or else its last line. */
  function showFailure(pod, body, first, offsetOf) {
    const target = document.getElementById("failure-line"), link = document.getElementById("failure-place");
    if (!target || target.dataset.pod !== pod) return;
    const pattern = new RegExp(target.dataset.pattern, "i");
    const last = [...body.querySelectorAll(".l")].filter((each) => each.textContent.trim()).slice(-ERROR_LINES);
    const element = last.findLast((each) => pattern.test(each.textContent)) ?? last.at(-1);
    if (!element) return;
    if (pattern.test(element.textContent)) element.classList.add("error");
    target.textContent = element.textContent.trim().slice(0, 300);
    target.parentElement.hidden = false;
    const number = numberOf(body, element, first);
    link.textContent = number ? `Line ${number} of ${target.dataset.name}` : `Log of ${target.dataset.name}`;
    linkLine(link, pod, element, number, offsetOf);
  }

  const ANNOUNCE_EVERY = 10_000; // milliseconds between announcements of new errors
  let announcement = null, announcedAt = -Infinity;
  /** Announce new errors to the page's header, which links to the latest one. */
  function announceErrors() {
    announcement ??= setTimeout(() => {
      [announcement, announcedAt] = [null, Date.now()];
      document.body.dispatchEvent(new Event("berth:errors"));
    }, Math.max(300, announcedAt + ANNOUNCE_EVERY - Date.now()));
  }

  const COUNT_EVERY = 5000; // milliseconds between requests for the number of errors

  /** Return a function that shows on the button how many errors the pod's log has.
   *
   * The server counts them unless the page shows the whole log, and again after the page shows more of them.
   */
  function errorCounter(button) {
    if (!button) return () => undefined;
    const text = button.querySelector("[data-error-count]");
    let pod = "", shown = null, timer = null;

    function label(count, isExact) {
      text.textContent = count === null ? "errors" : `${count}${isExact ? "" : "+"} error${count === 1 && isExact ? "" : "s"}`;
      text.classList.toggle("bad", count > 0);
      button.disabled = count === 0 && isExact;
    }

    async function ask(asked) {
      timer = null;
      const answer = await fetch(`${button.dataset.countUrl}?pod=${encodeURIComponent(asked)}`, { headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      const { count, is_complete: isExact } = await answer.json();
      if (asked === pod && shown !== null) label(count, isExact);
    }

    return (selected, count, isWhole) => {
      if (selected !== pod || isWhole) {
        clearTimeout(timer);
        [pod, shown, timer] = [selected, null, null];
      }
      if (isWhole) return label(count, true);
      if (shown === null) label(null);
      if (pod && count !== shown) timer ??= setTimeout(() => ask(selected).catch(() => undefined), shown === null ? 0 : COUNT_EVERY);
      shown = count;
    };
  }

  /** Wrap the lines of a log as its menu says. On phones, lines with times scroll sideways until wrapping is requested. */
  function wrapLines(box, timestamps) {
    const wrap = document.getElementById("log-wrap");
    const update = () => box.classList.toggle("nowrap", !wrap.checked);
    const choose = () => {
      if (matchMedia("(max-width: 40rem)").matches) wrap.checked = !timestamps.checked;
      update();
    };
    wrap.addEventListener("change", update);
    timestamps.addEventListener("change", choose);
    choose();
  }

  const PAUSE = 400, LIVE_TEXT = 2; // milliseconds without a key, and the shortest text that is searched without Enter

  /** Search once typing pauses. Escape and an empty field remove the matches. */
  function searchWhileTyping(search, matches, removeMarks) {
    let timer = 0;
    const field = search?.elements.text;
    function clear() {
      clearTimeout(timer);
      htmx.trigger(search, "htmx:abort");
      matches.replaceChildren();
      removeMarks();
    }
    field?.addEventListener("input", () => {
      clearTimeout(timer);
      if (!field.value) clear();
      else if (field.value.length >= LIVE_TEXT) timer = setTimeout(() => search.requestSubmit(), PAUSE);
    });
    field?.addEventListener("keydown", (event) => {
      if (event.key === "Enter") clearTimeout(timer);
      if (event.key !== "Escape" || !field.value) return;
      event.preventDefault(); // the next Escape ends the full screen
      field.value = "";
      clear();
    });
  }

  /** Let the log fill the window on request, until the button or Escape ends it.
   *
   * Links from the tab Overview open the log of the selected pod, focus the search or fill the window.
   */
  function fullScreenOf(box, follow) {
    const card = box.closest("#log-card"), exit = document.getElementById("log-exit"), search = document.getElementById("log-text");
    const start = () => [document.getElementById("log-full"), document.querySelector("#log-view > summary")].find((each) => each?.offsetParent);
    function toggle(on) {
      card.classList.toggle("full", on);
      document.getElementById("log-view")?.removeAttribute("open");
      if (follow.checked) box.scrollTop = box.scrollHeight;
      (on ? exit : start())?.focus();
    }
    const sizes = new ResizeObserver(() => { if (follow.checked) box.scrollTop = box.scrollHeight; });
    for (const each of [box, box.querySelector("pre")]) sizes.observe(each); // tools in a second row make the log smaller
    document.addEventListener("click", (event) => {
      const link = event.target.closest?.("#log-card .log-head a[href*='#']"), pod = document.getElementById("log-pod")?.value;
      if (link && pod) link.hash = `${link.hash.split("&")[0]}&pod=${pod}`;
      if (event.target.closest?.("#log-full, #log-menu-full, #log-exit")) toggle(!card.classList.contains("full"));
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !event.defaultPrevented && card.classList.contains("full")) toggle(false);
    });
    const target = new URLSearchParams(location.hash.slice(1));
    if (!search) return;
    if (target.has("full")) toggle(true);
    if (target.has("search")) search.focus();
  }

  Object.assign(window.berthLog, { announceErrors, cutCharacter, decode, elapsedSince, errorCounter, errorsIn, fill, fullScreenOf, isOfTraceback, markTracebacks, searchWhileTyping, showCounter, showFailure, stamp, updateList, weigh, wrapLines });
})();
