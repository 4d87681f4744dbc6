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
  let pod = "", next = 0, complete = false, held = "", length = 0, turn = 0, socket = null, retry = 1000;

  const plain = (text) => text.replace(SEQUENCES, "").replace(/\r+\n/g, "\n").replace(CONTROL, "\ufffd");
  const first = () => Number(body.firstElementChild?.dataset.begin ?? 0);

  function piece(text, begin) {
    const span = document.createElement("span");
    span.dataset.begin = begin;
    span.textContent = plain(text); // never markup
    return span;
  }

  function append(text, begin) {
    const cut = BEGUN.exec(held + text)?.[0] ?? ""; // a sequence that continues in the next piece
    const whole = held + text;
    held = complete ? "" : cut;
    if (!body.firstElementChild) body.textContent = "";
    const span = piece(complete ? whole : whole.slice(0, whole.length - cut.length), begin);
    body.append(span);
    length += span.textContent.length;
    while (length > MOST && body.childElementCount > 1) { // limit the memory of the page
      length -= body.firstElementChild.textContent.length;
      body.firstElementChild.remove();
    }
  }

  function settle() {
    earlier.hidden = !body.firstElementChild || first() <= 0;
    later.hidden = complete || (follow.checked && !!pod) || !pod;
    if (follow.checked) box.scrollTop = box.scrollHeight;
    if (!body.firstElementChild) body.textContent = !pod ? body.textContent : complete ? "No output." : "No output yet.";
  }

  async function fetched(query) {
    const answer = await fetch(`${box.dataset.url}?pod=${encodeURIComponent(pod)}&${query}`, { headers: { Accept: "text/plain" } });
    const text = await answer.text();
    if (!answer.ok) throw new Error(text.slice(0, 300));
    const number = (name) => Number(answer.headers.get(name));
    return { text, begin: number("X-Offset"), next: number("X-Next-Offset"), complete: answer.headers.get("X-Complete") === "true" };
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

  async function read(query) {
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
      take(got);
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
    body.prepend(piece(got.text, got.begin));
    length += got.text.length;
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
    document.getElementById("log-matches")?.replaceChildren();
    newest();
  });
  document.addEventListener("click", (event) => {
    const at = event.target.closest?.("[data-log-at]");
    if (!at) return;
    follow.checked = false;
    read(`offset=${at.dataset.logAt}&limit=${PIECE}`).then(() => { box.scrollTop = 0; box.focus(); });
  });
  document.addEventListener("htmx:afterSettle", (event) => { // the list of pods may have changed: keep the selected pod
    if (event.target.id !== "log-pods") return;
    const list = pods();
    if (pod && [...list.options].some((option) => option.value === pod)) list.value = pod;
    else if (list.value) newest();
  });
  if (pods()?.value) newest();
})();
