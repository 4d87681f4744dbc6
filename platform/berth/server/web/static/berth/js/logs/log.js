// Pod log: show the end first, then new output from a separate socket, and other parts on request.
(() => {
  "use strict";
  const PIECE = 65536, PIECE_MOST = 4 * PIECE, TAIL_MOST = 2 ** 20; // bytes to request, and maximum bytes of a response
  const MOST = 2_000_000, RETRY_MOST = 20000, POLL = 2000;
  const { LogReader, announceErrors, cutCharacter, decode, elapsedSince, errorCounter, errorsIn, fill, followEnd, fullScreenOf, isOfTraceback, markTracebacks, searchWhileTyping, showCounter, showFailure, stamp, updateList, weigh, wrapLines } = window.berthLog;
  const box = document.getElementById("log");
  if (!box) return;
  const body = box.querySelector("pre"), follow = document.getElementById("log-follow");
  const earlier = document.getElementById("log-earlier"), later = document.getElementById("log-later"), download = document.getElementById("log-download");
  const pods = () => document.getElementById("log-pod");
  const matches = document.getElementById("log-matches"), scope = document.getElementById("log-scope");
  const CONTEXT = 4096; // bytes to show before a match
  let pod = "", next = 0, complete = false, isAtEnd = false, reachesEnd = false, length = 0, turn = 0, isReading = false, socket = null, retry = 1000, reader = new LogReader();
  const errorLine = new RegExp(box.dataset.errors), showCount = errorCounter(document.getElementById("log-errors"));
  const timestamps = document.getElementById("log-timestamps"), TIMESTAMPS = "berth-log-timestamps";
  const lines = new WeakMap(); // maps elements to lines, and lines to elements
  let line = 0; // number of the first line that is shown, or 0 if it is unknown
  let errors = null; // number of errors at the end of the log that the page has shown
  let pattern = null, chosen = -1, isAdvancing = false; // searched text, and index of the match that is shown
  const first = () => Number(body.firstElementChild?.dataset.begin ?? 0);

  /** Show a line, in red if it names an error. */
  function draw(element, line) {
    fill(element, line, pattern);
    element.classList.toggle("error", errorLine.test(element.textContent.trimEnd()));
    element.classList.toggle("trace", isOfTraceback(element));
  }

  /** Return a piece of output with new lines. */
  function piece(begin, added) {
    const span = document.createElement("span");
    span.dataset.begin = begin;
    for (const each of added) {
      const element = document.createElement("span");
      element.className = "l";
      lines.set(element, each).set(each, element);
      span.append(element);
      draw(element, each);
    }
    return span;
  }

  function number() {
    body.classList.toggle("numbered", line > 0);
    body.style.counterReset = `line ${line - 1}`;
    body.style.setProperty("--digits", Math.max(2, String(line + body.querySelectorAll(".l").length).length));
  }

  /** Add output. If the last line is unfinished, the text continues or replaces it. */
  function append(text, begin, times) {
    const open = reader.line, changed = reader.read(text, complete);
    if (!body.firstElementChild) body.textContent = "";
    if (open) {
      const element = lines.get(changed.shift());
      length -= weigh(element);
      draw(element, open);
      length += weigh(element);
    }
    if (changed.length) {
      const span = piece(begin, changed);
      if (open) span.dataset.continues = ""; // the first line break ends a line of an earlier piece
      body.append(span);
      markTracebacks(span.firstElementChild);
      length += weigh(span);
      if (times) stamp([...span.children], times, open ? 1 : 0, startedToday());
    }
    while (length > MOST && body.childElementCount > 1) { // limit the memory of the page
      const removed = body.firstElementChild;
      length -= weigh(removed);
      if (line) line += removed.children.length;
      removed.remove();
    }
    number();
  }

  function settle() {
    earlier.hidden = !body.firstElementChild || first() <= 0;
    later.hidden = complete || isAtEnd || (follow.checked && !!pod) || !pod;
    box.classList.toggle("streaming", Boolean(pod) && !complete);
    box.classList.toggle("complete", complete);
    box.classList.toggle("no-output", !body.firstElementChild);
    if (follow.checked) box.scrollTop = box.scrollHeight;
    if (scope) scope.hidden = pods()?.selectedOptions[0]?.parentElement.children.length < 2;
    follow.closest("label").hidden = !pod || pods()?.selectedOptions[0]?.dataset.ended !== undefined;
    showError();
    countErrors();
    following.offer();
    if (!body.firstElementChild) body.textContent = !pod ? body.textContent : complete ? "No output." : `No output yet${elapsedSince(box.dataset.started)}.`;
  }

  const showError = () => { if (complete) showFailure(pod, body, line, offsetOf); };

  function countErrors() {
    const isWhole = Boolean(body.firstElementChild) && first() <= 0 && later.hidden, count = errorsIn(body);
    showCount(pod, count, isWhole);
    if (!later.hidden || !body.firstElementChild) return;
    if (errors !== null && count > errors) announceErrors();
    errors = count;
  }

  // Times are shown for the whole log in one format, with the day unless the pod started today.
  const startedToday = () => new Date(box.dataset.started).toDateString() === new Date().toDateString();

  /** Show the times of all visible lines. Lines that arrive later already have their times. */
  async function fetchTimes() {
    box.classList.toggle("timed", Boolean(timestamps?.checked));
    box.classList.toggle("today", startedToday());
    if (!timestamps?.checked || !body.firstElementChild) return;
    const mine = turn, begin = first(), shown = [...body.querySelectorAll(".l")], isWhole = body.firstElementChild.dataset.continues === undefined;
    const answer = await fetch(`${box.dataset.times}?pod=${encodeURIComponent(pod)}&offset=${begin}&end=${next}`, { headers: { Accept: "application/json" } });
    if (!answer.ok || mine !== turn || begin !== first()) return;
    const { times } = await answer.json();
    stamp(shown, times, isWhole ? 0 : 1, startedToday());
    if (follow.checked) box.scrollTop = box.scrollHeight;
  }

  async function fetched(query) {
    const answer = await fetch(`${box.dataset.url}?pod=${encodeURIComponent(pod)}&${query}`, { headers: { Accept: "text/plain" } });
    const data = new Uint8Array(await answer.arrayBuffer());
    if (!answer.ok) throw new Error(decode(data).slice(0, 300));
    const header = (name) => Number(answer.headers.get(name)), isComplete = answer.headers.get("X-Complete") === "true";
    const cut = isComplete ? 0 : cutCharacter(data);
    return { data: data.subarray(0, data.length - cut), begin: header("X-Offset"), next: header("X-Next-Offset") - cut, size: header("X-Size"), line: header("X-Line"), complete: isComplete };
  }

  /** Return output before an offset, from the start of a line unless the line is very long. */
  async function fetchedBefore(end) {
    for (let size = PIECE; ; size = PIECE_MOST) {
      const begin = Math.max(0, end - size), got = await fetched(`offset=${begin}&limit=${end - begin}`);
      const data = got.data.subarray(0, Math.max(0, end - got.begin)), cut = got.begin > 0 ? data.indexOf(10) + 1 : 0;
      const isLong = got.begin > 0 && (!cut || cut === data.length);
      if (isLong && size < PIECE_MOST) continue;
      return isLong ? { data, begin: got.begin } : { data: data.subarray(cut), begin: got.begin + cut };
    }
  }

  function take(got) {
    next = got.next; isAtEnd = next >= (got.size ?? 0);
    reachesEnd ||= isAtEnd;
    complete = got.complete;
    const text = got.text ?? decode(got.data);
    if (text) append(text, got.begin, got.times);
    if (!got.times) fetchTimes();
    settle();
  }

  function hangUp() {
    if (socket) { socket.onclose = null; socket.close(); }
    socket = null;
  }

  function listen(mine) {
    if (mine !== turn || complete || !follow.checked || socket) return;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    let heard = false;
    socket = new WebSocket(`${scheme}//${location.host}${box.dataset.socket}?pod=${encodeURIComponent(pod)}&offset=${next}${timestamps?.checked ? "&timestamps=true" : ""}`);
    socket.onmessage = (event) => {
      if (mine !== turn) return;
      heard = true;
      retry = 1000;
      take(JSON.parse(event.data));
    };
    socket.onclose = async (event) => {
      socket = null;
      if (mine !== turn || complete || !follow.checked || (event.code === 4401 && !heard) || event.code === 4404) return;
      if (!heard) await fetched(`offset=${next}`).then((got) => mine === turn && take(got), () => undefined);
      retry = heard ? 1000 : Math.min(retry * 2, RETRY_MOST);
      setTimeout(() => listen(mine), heard ? 1000 : Math.max(POLL, retry));
    };
  }

  async function read(query, target) {
    const mine = ++turn;
    hangUp();
    pod = pods()?.value ?? "";
    isReading = Boolean(pod);
    if (!pod) return settle();
    for (const tool of document.querySelectorAll("[data-log-tool]")) tool.hidden = false;
    if (download) { // the brief log on the overview has no download link
      const file = new URL(download.href);
      file.searchParams.set("pod", pod);
      download.href = file;
    }
    complete = reachesEnd = false; reader = new LogReader(); length = 0; retry = 1000;
    body.textContent = "Reading…";
    try {
      const got = await fetched(query);
      if (mine !== turn) return; // the user has since made another selection
      isReading = false;
      body.replaceChildren();
      const at = target ? target.offset - got.begin : got.data.length, isWhole = !got.begin || (!target && got.data.length < TAIL_MOST - 3);
      const breaks = got.data.indexOf(10) + 1, cut = isWhole || !breaks || breaks > at ? 0 : breaks; // offset of the first whole line
      got.data = got.data.subarray(cut);
      got.begin += cut;
      const before = target ? got.data.subarray(0, at - cut).filter((byte) => byte === 10).length : 0;
      line = target?.line ? target.line - before : got.line && got.line + (cut ? 1 : 0);
      take(got);
      if (target) show(body.querySelectorAll(".l")[before]);
    } catch (error) {
      if (mine === turn) body.textContent = error.message || "The log cannot be read. Retrying.";
      setTimeout(() => { if (mine === turn) read(query, target); }, 5000);
      return;
    }
    listen(mine);
  }

  const newest = () => read("tail=500");

  earlier.addEventListener("click", async () => {
    const mine = turn, top = body.querySelector(".l"), height = box.scrollHeight;
    const end = body.firstElementChild.dataset.continues === undefined ? first() : await offsetOf(top);
    const got = await fetchedBefore(end);
    if (mine !== turn || top !== body.querySelector(".l")) return;
    follow.checked = false;
    hangUp();
    if (got.begin >= end) return earlier.remove();
    const before = new LogReader(), added = before.read(decode(got.data), true), rest = before.line ? added.pop() : null, next = lines.get(top);
    if (rest && !next.replaced && !before.isBack) { // the beginning of a very long line
      next.runs.unshift(...rest.runs);
      draw(top, next);
    }
    const span = piece(got.begin, added);
    body.prepend(span);
    markTracebacks(top);
    length += weigh(span);
    if (line) line -= added.length;
    number();
    fetchTimes();
    settle();
    following.scrollTo(box.scrollTop + box.scrollHeight - height);
  });
  later.addEventListener("click", async () => {
    const mine = turn, got = await fetched(`offset=${next}&limit=${PIECE}`);
    if (mine === turn) take(got);
  });
  const checkEnd = async (mine) => { const { size } = await fetched(`offset=${next}&limit=0`).catch(() => ({})); if (mine === turn && size > next) { isAtEnd = false; settle(); } };
  setInterval(() => isAtEnd && pod && !complete && !follow.checked && checkEnd(turn), 2 * POLL); // offers newer output once there is some
  const following = followEnd(box, follow, {
    isLive: () => Boolean(pod) && !complete,
    reachesEnd: () => reachesEnd,
    stop: () => { hangUp(); settle(); },
    resume: () => { settle(); listen(turn); },
    restart: newest,
  });
  document.addEventListener("change", (event) => {
    if (event.target.form === search && event.target.type === "checkbox" && search?.elements.text.value) search.requestSubmit();
    if (event.target.id !== "log-pod") return;
    matches?.replaceChildren();
    pattern = null;
    history.replaceState(null, "", location.pathname + location.search);
    following.reset();
    newest();
  });
  document.addEventListener("click", (event) => {
    const at = event.target.closest?.(".log-hits li")?.querySelector("[data-log-at]"), step = event.target.closest?.("[data-log-step]");
    // A click that ends a selection of text in the list chooses no match.
    if (at && (at.contains(event.target) || getSelection().isCollapsed)) choose(hits().indexOf(at));
    if (step) choose(chosen + Number(step.dataset.logStep));
    if (event.target.closest?.("[data-log-scope]")) {
      search.elements.all_pods.checked = true;
      search.requestSubmit();
    }
  });
  if (timestamps) timestamps.checked = localStorage.getItem(TIMESTAMPS) === "on";
  timestamps?.addEventListener("change", () => {
    localStorage.setItem(TIMESTAMPS, timestamps.checked ? "on" : "off");
    if (isReading) return; // the output that is being read gets its times when it is shown
    hangUp();
    fetchTimes();
    listen(turn);
  });
  if (timestamps) wrapLines(box, timestamps);
  fullScreenOf(box, follow);

  // Search: the server finds the matching lines, and the pane shows one of them after another.
  const search = document.getElementById("log-search");
  const hits = () => [...document.querySelectorAll("[data-log-at]")];

  function show(element) {
    if (!element) return;
    body.querySelector(".hit")?.classList.remove("hit");
    element.classList.add("hit");
    following.scrollTo(element.offsetTop - box.clientHeight / 3);
  }

  /** Remove the marks of an earlier search. */
  function unmark() {
    body.querySelector(".hit")?.classList.remove("hit");
    for (const element of body.querySelectorAll(".l:has(mark)")) draw(element, lines.get(element));
  }

  function choose(number) {
    const all = hits(), more = matches.querySelector("[data-log-more]");
    if (!all.length) return;
    if (number >= all.length && more) { isAdvancing = true; return more.click(); } // continue when the next matches have arrived
    chosen = (number + all.length) % all.length;
    const { logAt, logLine, logPod } = all[chosen].dataset, offset = Number(logAt);
    showPlace();
    if (logPod) pods().value = logPod;
    updateList(matches, all[chosen], startedToday());
    go(offset, Number(logLine));
    link(offset, Number(logLine));
  }

  /** Show which match the log shows, and how many there are. Further requests may raise the total. */
  function showPlace() {
    const { logName } = hits()[chosen].dataset, total = document.getElementById("log-total").textContent;
    const [one, several] = matches.querySelector("[data-text]").dataset.counted.split(";");
    showCounter(document.getElementById("log-place"), `${chosen + 1} of ${total} ${total === "1" ? one : several}`, logName);
  }

  // Links to lines: the pod, the line and its offset are in the fragment of the URL.
  function go(offset, number) {
    follow.checked = false;
    read(`offset=${Math.max(0, offset - CONTEXT)}&limit=${PIECE + CONTEXT}`, { offset, line: number });
  }

  const link = (offset, number) => history.replaceState(null, "", `#pod=${pod}&line=${number}&at=${offset}`);

  /** Show the line that the URL names. Return whether there is one. */
  function openLink() {
    const target = new URLSearchParams(location.hash.slice(1)), offset = Number(target.get("at") ?? NaN), list = pods();
    const findsErrors = target.has("errors") && search;
    if (![...(list?.options ?? [])].some((option) => option.value === target.get("pod"))) return false;
    list.value = target.get("pod");
    if (!(offset >= 0 || findsErrors)) return false;
    if (findsErrors) { // htmx responds to clicks once the page is complete
      const find = () => document.getElementById("log-errors").click();
      if (document.readyState === "complete") find(); else addEventListener("load", find, { once: true });
      return false;
    }
    go(offset, Number(target.get("line")));
    return true;
  }

  /** Return the offset of a line in bytes. The page shows text without escape sequences, so it is read again. */
  async function offsetOf(element) {
    const span = element.parentElement;
    let at = Number(span.dataset.begin), breaksBefore = [...span.children].indexOf(element) + (span.dataset.continues === undefined ? 0 : 1);
    while (breaksBefore > 0) {
      const { data, begin } = await fetched(`offset=${at}&limit=${PIECE_MOST}`);
      if (!data.length) break;
      let index = 0;
      for (; breaksBefore > 0 && index < data.length; index += 1) if (data[index] === 10) breaksBefore -= 1;
      at = begin + index;
    }
    return at;
  }

  body.addEventListener("click", async (event) => {
    const element = event.target.closest(".l"), frame = body.getBoundingClientRect();
    const left = Math.max(frame.left, box.getBoundingClientRect().left + parseFloat(getComputedStyle(box).paddingLeft)); // numbers stay in view
    const isNumber = event.clientX - left < parseFloat(getComputedStyle(body).paddingLeft);
    if (!search || !element || !line || !isNumber) return;
    follow.checked = false;
    hangUp();
    settle();
    const number = line + [...body.querySelectorAll(".l")].indexOf(element), mine = turn, offset = await offsetOf(element);
    if (mine !== turn) return;
    body.querySelector(".hit")?.classList.remove("hit");
    element.classList.add("hit");
    link(offset, number);
  });
  addEventListener("hashchange", openLink);

  searchWhileTyping(search, matches, () => { pattern = null; unmark(); });
  search?.addEventListener("keydown", (event) => { // Enter shows the next match, Shift-Enter the previous one
    if (event.key !== "Enter" || event.target.name !== "text" || !hits().length) return;
    if (event.target.value !== matches.querySelector("[data-text]")?.dataset.text) return;
    event.preventDefault();
    choose(chosen + (event.shiftKey ? -1 : 1));
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    const result = matches?.querySelector("[data-text]");
    if (!matches?.contains(event.target)) return;
    if (event.target === matches) {
      const flags = search.elements.ignore_case.checked ? "gi" : "g";
      pattern = result?.dataset.text ? new RegExp(result.dataset.text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), flags) : null;
      chosen = -1;
      if (!hits().length) unmark();
      choose(0);
    } else if (isAdvancing) choose(chosen + 1);
    else if (chosen >= 0) { updateList(matches, hits()[chosen], startedToday()); showPlace(); }
    isAdvancing = false;
  });
  document.addEventListener("htmx:afterSettle", (event) => { // the list of pods may have changed: keep the selected pod
    if (event.target.id !== "log-pods") return;
    const list = pods();
    if (pod && [...list.options].some((option) => option.value === pod)) {
      list.value = pod;
      settle();
    } else if (list.value) newest();
  });
  document.addEventListener("htmx:oobAfterSwap", (event) => {
    if (event.detail.target.id === "notices") showError();
  });
  if (pods()?.value && !(search && openLink())) newest();
})();
