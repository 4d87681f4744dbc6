// Pod log: show the end first, then new output from a separate socket, and other parts on request.
(() => {
  "use strict";
  const PIECE = 65536, MOST = 2_000_000, RETRY_MOST = 20000, POLL = 2000;
  const SEQUENCES = /\u001b\[[0-?]*[ -/]*[@-~]|\u001b[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[ -/]*[0-~]?/g;
  const BEGUN = /\u001b[^A-Za-z\u0007]{0,200}$/;
  const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
  const box = document.getElementById("log");
  if (!box) return;
  const body = box.querySelector("pre"), follow = document.getElementById("log-follow");
  const earlier = document.getElementById("log-earlier"), later = document.getElementById("log-later");
  const download = document.getElementById("log-download");
  const pods = () => document.getElementById("log-pod");
  const matches = document.getElementById("log-matches"), wrap = document.getElementById("log-wrap");
  const CONTEXT = 4096; // bytes before a match
  const ERROR = /error|exception|fatal|panic|killed|denied|not found|cannot|can't|failed/i, ERROR_LINES = 40;
  let pod = "", next = 0, complete = false, held = "", length = 0, turn = 0, socket = null, retry = 1000;
  let line = 0; // number of the first line that is shown, or 0 if it is unknown
  let pattern = null, chosen = -1; // searched text, and the match that is shown

  const plain = (text) => text.replace(SEQUENCES, "").replace(/\r+\n/g, "\n").replace(CONTROL, "\ufffd");
  const first = () => Number(body.firstElementChild?.dataset.begin ?? 0);

  const breaks = (text) => text.split("\n").length - 1;

  /** Add text to a line, with the searched text marked. The text is never markup. */
  function fill(element, text) {
    let at = 0;
    for (const match of pattern ? text.matchAll(pattern) : []) {
      const mark = document.createElement("mark");
      mark.textContent = match[0];
      element.append(text.slice(at, match.index), mark);
      at = match.index + match[0].length;
    }
    element.append(text.slice(at));
  }

  /** Return a piece of output as lines. Its first line continues `open`, if given. */
  function piece(text, begin, open) {
    const span = document.createElement("span"), parts = text.split(/(?<=\n)/);
    span.dataset.begin = begin;
    if (open && parts.length) {
      fill(open, parts.shift());
      span.dataset.continues = ""; // its first line is in the previous piece
    }
    for (const part of parts) {
      const each = document.createElement("span");
      each.className = "l";
      fill(each, part);
      span.append(each);
    }
    return span;
  }

  function number() {
    body.classList.toggle("numbered", line > 0);
    body.style.counterReset = `line ${line - 1}`;
    body.style.setProperty("--digits", Math.max(2, String(line + body.querySelectorAll(".l").length).length));
  }

  function append(text, begin) {
    const cut = BEGUN.exec(held + text)?.[0] ?? ""; // a sequence that continues in the next piece
    const whole = held + text;
    held = complete ? "" : cut;
    if (!body.firstElementChild) body.textContent = "";
    const shown = plain(complete ? whole : whole.slice(0, whole.length - cut.length));
    const last = body.lastElementChild?.lastElementChild;
    body.append(piece(shown, begin, last && !last.textContent.endsWith("\n") ? last : null));
    length += shown.length;
    while (length > MOST && body.childElementCount > 1) { // limit the memory of the page
      const removed = body.firstElementChild.textContent;
      length -= removed.length;
      if (line) line += breaks(removed);
      body.firstElementChild.remove();
    }
    number();
  }

  function settle() {
    earlier.hidden = !body.firstElementChild || first() <= 0;
    later.hidden = complete || (follow.checked && !!pod) || !pod;
    if (follow.checked) box.scrollTop = box.scrollHeight;
    box.classList.toggle("streaming", Boolean(pod) && !complete);
    box.classList.toggle("complete", complete);
    follow.closest("label").hidden = !pod || pods()?.selectedOptions[0]?.dataset.ended !== undefined;
    showError();
    if (!body.firstElementChild) body.textContent = !pod ? body.textContent : complete ? "No output." : `No output yet${elapsed()}.`;
  }

  /** Show the last line of a failed pod that names an error, also in red in the log, or else its last line. */
  function showError() {
    const target = document.getElementById("failure-line");
    if (!target || target.dataset.pod !== pod || !complete) return;
    const last = [...body.querySelectorAll(".l")].filter((each) => each.textContent.trim()).slice(-ERROR_LINES);
    const element = last.findLast((each) => ERROR.test(each.textContent)) ?? last.at(-1);
    if (!element) return;
    body.querySelector(".error")?.classList.remove("error");
    if (ERROR.test(element.textContent)) element.classList.add("error");
    target.textContent = element.textContent.trim().slice(0, 300);
    target.parentElement.hidden = false;
  }

  function elapsed() {
    const minutes = Math.floor((Date.now() - Date.parse(box.dataset.started)) / 60000);
    if (!(minutes > 0)) return "";
    return minutes < 60 ? `, ${minutes} min after the start` : `, ${Math.floor(minutes / 60)} h ${minutes % 60} min after the start`;
  }

  async function fetched(query) {
    const answer = await fetch(`${box.dataset.url}?pod=${encodeURIComponent(pod)}&${query}`, { headers: { Accept: "text/plain" } });
    const data = new Uint8Array(await answer.arrayBuffer()), text = new TextDecoder().decode(data);
    if (!answer.ok) throw new Error(text.slice(0, 300));
    const header = (name) => Number(answer.headers.get(name));
    return { text, data, begin: header("X-Offset"), next: header("X-Next-Offset"), line: header("X-Line"), complete: answer.headers.get("X-Complete") === "true" };
  }

  function take(got) {
    next = got.next;
    complete = got.complete;
    if (got.text) append(got.text, got.begin);
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
    socket = new WebSocket(`${scheme}//${location.host}${box.dataset.socket}?pod=${encodeURIComponent(pod)}&offset=${next}`);
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
    if (!pod) return settle();
    for (const tool of document.querySelectorAll("[data-log-tool]")) tool.hidden = false;
    if (download) { // the brief log of the overview has none
      const file = new URL(download.href);
      file.searchParams.set("pod", pod);
      download.href = file;
    }
    complete = false; held = ""; length = 0; retry = 1000;
    body.textContent = "Reading…";
    try {
      const got = await fetched(query);
      if (mine !== turn) return; // the user has since made another selection
      body.replaceChildren();
      const before = target ? got.data.subarray(0, target.offset - got.begin).filter((byte) => byte === 10).length : 0;
      line = target ? target.line - before : got.line;
      take(got);
      if (target) show(body.querySelectorAll(".l")[before]);
    } catch (error) {
      if (mine === turn) body.textContent = error.message || "The log cannot be read. Retrying.";
      setTimeout(() => { if (mine === turn) read(query); }, 5000);
      return;
    }
    listen(mine);
  }

  const newest = () => read("tail=500");

  earlier.addEventListener("click", async () => {
    const mine = turn, end = first(), begin = Math.max(0, end - PIECE), height = box.scrollHeight;
    const got = await fetched(`offset=${begin}&limit=${end - begin}`);
    if (mine !== turn || end !== first()) return;
    follow.checked = false;
    hangUp();
    if (got.begin >= end) return earlier.remove();
    const text = plain(got.text), rest = text.endsWith("\n") ? "" : text.slice(text.lastIndexOf("\n") + 1);
    body.querySelector(".l").prepend(rest); // the end of a line that was cut
    body.prepend(piece(text.slice(0, text.length - rest.length), got.begin));
    length += text.length;
    if (line) line -= breaks(text);
    number();
    settle();
    box.scrollTop += box.scrollHeight - height;
  });
  later.addEventListener("click", async () => {
    const mine = turn, got = await fetched(`offset=${next}&limit=${PIECE}`);
    if (mine === turn) take(got);
  });
  follow.addEventListener("change", () => {
    if (!follow.checked) { hangUp(); return settle(); }
    newest();
  });
  box.addEventListener("wheel", (event) => {
    if (event.deltaY < 0 && follow.checked) { follow.checked = false; hangUp(); settle(); }
  }, { passive: true });
  document.addEventListener("change", (event) => {
    if (event.target.id !== "log-pod") return;
    matches?.replaceChildren();
    pattern = null;
    history.replaceState(null, "", location.pathname + location.search);
    newest();
  });
  document.addEventListener("click", (event) => {
    const at = event.target.closest?.("[data-log-at]"), step = event.target.closest?.("[data-log-step]");
    if (at) choose(hits().indexOf(at));
    if (step) choose(chosen + Number(step.dataset.logStep));
    if (event.target.closest?.("#log-full")) fullScreen(!card.classList.contains("full"));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && card.classList.contains("full")) fullScreen(false);
  });
  wrap?.addEventListener("change", () => box.classList.toggle("nowrap", !wrap.checked));

  // Search: the server finds the matching lines, and the pane shows one of them after another.
  const card = document.getElementById("log-card"), search = document.getElementById("log-search");
  const hits = () => [...document.querySelectorAll("[data-log-at]")];

  function fullScreen(on) {
    card.classList.toggle("full", on);
    document.getElementById("log-full").setAttribute("aria-pressed", String(on));
  }

  function show(element) {
    if (!element) return;
    body.querySelector(".hit")?.classList.remove("hit");
    element.classList.add("hit");
    box.scrollTop = element.offsetTop - box.clientHeight / 3;
  }

  function choose(number) {
    const all = hits(), more = matches.querySelector("[data-log-more]");
    if (!all.length) return;
    if (number >= all.length && more) return more.click(); // continue when the next matches have arrived
    chosen = (number + all.length) % all.length;
    const { logAt, logLine } = all[chosen].dataset, offset = Number(logAt);
    document.getElementById("log-place").textContent = `${chosen + 1} of ${matches.querySelector("[data-count]").dataset.count}`;
    go(offset, Number(logLine));
    link(offset, Number(logLine));
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
    if (!(offset >= 0) || ![...(list?.options ?? [])].some((option) => option.value === target.get("pod"))) return false;
    list.value = target.get("pod");
    go(offset, Number(target.get("line")));
    return true;
  }

  /** Return the offset of a line in bytes. The page shows text without escape sequences, so it is read again. */
  async function offsetOf(element) {
    const span = element.parentElement, begin = Number(span.dataset.begin);
    let breaksBefore = [...span.children].indexOf(element) + (span.dataset.continues === undefined ? 0 : 1);
    const { data } = await fetched(`offset=${begin}&limit=${4 * PIECE}`);
    let at = 0;
    for (; breaksBefore > 0 && at < data.length; at += 1) if (data[at] === 10) breaksBefore -= 1;
    return begin + at;
  }

  body.addEventListener("click", async (event) => {
    const element = event.target.closest(".l"), frame = body.getBoundingClientRect();
    const isNumber = event.clientX - frame.left < parseFloat(getComputedStyle(body).paddingLeft);
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

  search?.addEventListener("keydown", (event) => { // Enter again: next match, with Shift: previous match
    if (event.key !== "Enter" || event.target.name !== "text" || !hits().length) return;
    if (event.target.value !== matches.querySelector("[data-count]")?.dataset.text) return;
    event.preventDefault();
    choose(chosen + (event.shiftKey ? -1 : 1));
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    const result = matches?.querySelector("[data-count]");
    if (!matches?.contains(event.target)) return;
    if (event.target === matches) {
      const flags = search.elements.ignore_case.checked ? "gi" : "g";
      pattern = result ? new RegExp(result.dataset.text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), flags) : null;
      chosen = -1;
    }
    choose(chosen + 1);
  });
  document.addEventListener("htmx:afterSettle", (event) => { // the list of pods may have changed: keep the selected pod
    if (event.target.id !== "log-pods") return;
    const list = pods();
    if (pod && [...list.options].some((option) => option.value === pod)) {
      list.value = pod;
      settle();
    } else if (list.value) newest();
  });
  document.addEventListener("htmx:oobAfterSwap", (event) => { if (event.detail.target.id === "notices") showError(); });
  if (pods()?.value && !(search && openLink())) newest();
})();
