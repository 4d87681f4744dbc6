// A pod's log: its end first, then what comes; the view stays at the end while it is followed.
(() => {
  "use strict";
  const EVERY = 1000, COLOURS = /\u001b\[[0-9;]*[A-Za-z]/g;
  const box = document.getElementById("log");
  if (!box) return;
  const body = box.querySelector("pre"), pods = document.getElementById("log-pod");
  const follow = document.getElementById("log-follow");
  let offset = null, complete = false, empty = true, turn = 0;

  async function more(mine) {
    const place = offset === null ? "tail=500" : `offset=${offset}`;
    const answer = await fetch(`${box.dataset.url}?pod=${encodeURIComponent(pods.value)}&${place}`, { headers: { Accept: "text/plain" } });
    const text = await answer.text();
    if (mine !== turn) return; // another pod was chosen meanwhile
    if (!answer.ok) {
      if (empty) body.textContent = text.slice(0, 500);
      complete = answer.status < 500;
      return;
    }
    offset = answer.headers.get("X-Next-Offset") ?? offset;
    complete = answer.headers.get("X-Complete") === "true";
    if (text) {
      if (empty) body.textContent = "";
      empty = false;
      body.append(document.createTextNode(text.replace(COLOURS, "")));
      if (follow.checked) box.scrollTop = box.scrollHeight;
    } else if (empty) body.textContent = complete ? "It wrote nothing." : "Nothing written yet.";
  }

  async function read() {
    const mine = ++turn;
    offset = null; complete = false; empty = true;
    body.textContent = "Reading…";
    while (mine === turn && !complete) {
      if (offset === null || (follow.checked && !document.hidden)) await more(mine).catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, EVERY));
    }
  }

  pods.addEventListener("change", read);
  box.addEventListener("wheel", (event) => { if (event.deltaY < 0) follow.checked = false; }, { passive: true });
  document.addEventListener("htmx:oobAfterSwap", () => { if (!pods.value && pods.options.length) read(); });
  if (pods.options.length) read();
})();
