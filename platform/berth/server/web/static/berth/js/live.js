// Live updates: a message has only the kind and ids of changed objects, and the parts that show them are fetched
// again. Without the socket, they are fetched every few seconds.
(() => {
  "use strict";
  const GATHER = 150, POLL = 5000, LATER = 15000, RETRY_MOST = 30000, REFUSED_WITHIN = 2000, SELECTED_MOST = 60000;
  let socket = null, opened = 0, retry = 1000, poll = 0, timer = 0, leaving = false, focused = "", unfolded = [], popover, selected = 0;
  const due = new Map(); // maps kinds to a Set of IDs, or to null for all IDs
  const later = new WeakSet(); // parts with a fetch due after LATER milliseconds
  const missed = new Set(); // parts whose fetch was due while the page was hidden
  const late = new Set(); // parts that changed again while they were being fetched
  const held = new Set(); // changed parts in which the user has selected text

  const parts = () => [...document.querySelectorAll("[data-live]")];
  const badge = (state, text) => {
    for (const element of document.querySelectorAll(".live")) {
      element.dataset.state = state;
      element.textContent = text;
    }
  };

  const addressOf = (part) => part.dataset.liveUrl || location.pathname + location.search;

  function concerned(part) {
    if (due.has("everything")) return true;
    return part.dataset.live.split(" ").some((kind) => {
      if (!due.has(kind)) return false;
      const only = part.dataset.liveId, ids = due.get(kind);
      return !only || !ids || ids.has(only);
    });
  }

  /** Whether the user selected text in the part less than a minute ago. A new part would clear the selection. */
  function hasSelection(part) {
    const selection = getSelection();
    return !selection.isCollapsed && part.contains(selection.anchorNode) && performance.now() - selected < SELECTED_MOST;
  }

  function release() {
    for (const part of held) {
      if (hasSelection(part)) continue;
      held.delete(part);
      if (part.isConnected) fetchAnew(part);
    }
  }

  function fetchAnew(part) {
    if (leaving || part.querySelector("[data-editing]")) return;
    if (hasSelection(part)) return held.add(part);
    if (part.classList.contains("htmx-request")) return late.add(part);
    htmx.ajax("GET", addressOf(part), { source: part, target: part, swap: "innerHTML", headers: { "Berth-Refresh": "1" } });
  }

  /** Fetch a part whose contents are costly, at most once every LATER milliseconds. */
  function fetchLater(part) {
    if (later.has(part)) return;
    later.add(part);
    setTimeout(() => {
      later.delete(part);
      if (document.hidden) missed.add(part);
      else if (part.isConnected) fetchAnew(part);
    }, LATER);
  }

  function flush() {
    timer = 0;
    if (document.hidden) return; // due parts are fetched once the page is visible
    document.dispatchEvent(new CustomEvent("berth:changed", { detail: [...due.keys()] }));
    for (const part of parts()) {
      if (concerned(part)) fetchAnew(part);
      else if (part.dataset.liveLater?.split(" ").some((kind) => due.has(kind))) fetchLater(part);
    }
    due.clear();
  }

  function note(kind, ids) {
    if (!ids) due.set(kind, null);
    else if (due.get(kind) !== null) due.set(kind, new Set([...(due.get(kind) || []), ...ids]));
    timer ||= setTimeout(flush, GATHER);
  }

  function connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const since = document.querySelector(".live").dataset.since;
    socket = new WebSocket(`${scheme}//${location.host}/ws/live?since=${since}`);
    socket.onopen = () => {
      opened = performance.now();
      badge("on", "Connected");
      clearInterval(poll);
      poll = 0;
      if (retry > 1000) note("everything"); // changes may have been missed
      retry = 1000;
    };
    socket.onmessage = (event) => {
      const message = JSON.parse(event.data);
      note(message.kind, message.ids);
    };
    socket.onclose = (event) => {
      if (event.code === 4401) {
        // The socket may have closed because another tab changed the password: the session may now be different.
        if (performance.now() - opened > REFUSED_WITHIN) return connect();
        document.dispatchEvent(new CustomEvent("berth:ended"));
        return badge("off", "Signed out");
      }
      badge("polling", "Updates every 5 s");
      poll ||= setInterval(() => note("everything"), POLL);
      setTimeout(connect, retry);
      retry = Math.min(retry * 2, RETRY_MOST);
    };
  }

  // A response may lead to another page, for example because the object of this page was deleted.
  document.addEventListener("htmx:beforeOnLoad", (event) => { leaving ||= event.detail.xhr.getResponseHeader("HX-Redirect") !== null; });
  addEventListener("pageshow", () => { leaving = false; });

  const nameOf = (element) => element.id || [element.tagName, element.getAttribute("href"), element.getAttribute("name"), element.getAttribute("aria-label") ?? element.textContent].join(" ");

  document.addEventListener("htmx:beforeSwap", (event) => { // the user may have started editing during the request
    const part = event.detail.requestConfig.elt;
    if (!part.matches("[data-live]")) return;
    if (event.detail.pathInfo.requestPath !== addressOf(part)) { // the user has filtered or sorted during the request
      event.detail.shouldSwap = false;
      return late.add(part);
    }
    if (hasSelection(part)) {
      event.detail.shouldSwap = false;
      return held.add(part);
    }
    const active = document.activeElement;
    focused = part !== active && part.contains(active) ? nameOf(active) : "";
    unfolded = [...part.querySelectorAll("details[open][id]")].map((details) => details.id);
    popover = part.querySelector("[popover]:popover-open")?.id;
    const isTyping = active?.matches("input[type=search]") && part.contains(active) && active.value !== active.defaultValue;
    if (!isTyping && !part.querySelector("[data-editing], .htmx-request:not([data-live])")) return;
    event.detail.shouldSwap = false;
    setTimeout(() => part.isConnected && fetchAnew(part), POLL / 10);
  });
  document.addEventListener("htmx:afterSwap", (event) => { // keep open parts and the keyboard focus
    const part = event.detail.requestConfig?.elt;
    if (!part?.matches("[data-live]")) return;
    unfolded.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
    if (popover) part.querySelector(`[popovertarget="${popover}"]`)?.click(); // opens at its button
    unfolded = [];
    popover = undefined;
    if (!focused) return;
    const there = [...part.querySelectorAll("a, button, input, select, summary, [tabindex]")];
    there.find((element) => nameOf(element) === focused)?.focus({ preventScroll: true });
    focused = "";
  });
  let place = 0; // the page keeps its place when a list is replaced, also if the browser would follow the end of the list
  document.addEventListener("htmx:beforeSwap", (event) => { if (event.detail.target.id === "rows") place = scrollY; });
  document.addEventListener("htmx:afterSwap", (event) => { if (event.detail.target.id === "rows") scrollTo({ top: place, behavior: "instant" }); });
  document.addEventListener("htmx:afterRequest", (event) => {
    const part = event.detail.elt;
    if (late.delete(part)) setTimeout(() => part.isConnected && fetchAnew(part));
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    if (due.size) flush();
    [...missed].filter((part) => part.isConnected).forEach(fetchAnew);
    missed.clear();
  });
  document.addEventListener("selectionchange", () => {
    selected = performance.now();
    release();
  });
  setInterval(release, POLL);
  document.addEventListener("berth:done", () => note("everything"));
  setInterval(() => { // parts that expect changes without messages, such as reported metrics
    if (!document.hidden) parts().filter((part) => part.querySelector("[data-poll]")).forEach(fetchAnew);
  }, POLL);
  if (document.querySelector(".live")) connect();
})();
