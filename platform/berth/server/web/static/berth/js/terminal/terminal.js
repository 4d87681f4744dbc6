// Terminals in the pods of a workload. Each terminal is one channel: see pools/runtimes/shim/channels/frames.py.
(() => {
  "use strict";
  const card = document.getElementById("terminal-card");
  if (!card) return;
  const INPUT = 0, OUTPUT = 1, ERRORS = 2, STATUS = 3, RESIZE = 4, START = 5, CREDIT = 6;
  const WINDOW = 256 * 1024, CHUNK = 32 * 1024, SCROLLBACK = 5000, MOST = 8;
  const SHELL = ["sh", "-c", "if command -v bash > /dev/null; then exec bash; fi; exec sh"];
  const KEYS = { escape: "\u001b", tab: "\t", interrupt: "\u0003", end: "\u0004", up: "\u001b[A", down: "\u001b[B" };
  const READER = "berth-terminal-reader";
  const element = (id) => document.getElementById(`terminal-${id}`);
  const tabs = element("tabs"), panes = element("panes"), status = element("status"), reader = element("reader");
  const terminals = [];
  let active = null, opened = 0;

  const encode = (value) => new TextEncoder().encode(JSON.stringify(value));

  /** One terminal with its tab, its pane and its connection. */
  class PodTerminal {
    constructor(pod) {
      this.pod = pod;
      opened += 1;
      this.tab = document.createElement("button");
      Object.assign(this.tab, { type: "button", id: `terminal-tab-${opened}`, className: "terminal-tab", textContent: `${opened}: ${pod}` });
      this.tab.setAttribute("role", "tab");
      this.tab.setAttribute("aria-controls", `terminal-pane-${opened}`);
      this.pane = document.createElement("div");
      Object.assign(this.pane, { id: `terminal-pane-${opened}`, className: "terminal-pane" });
      this.pane.setAttribute("role", "tabpanel");
      this.pane.setAttribute("aria-labelledby", this.tab.id);
      tabs.append(this.tab);
      panes.append(this.pane);
      this.view = new Terminal({
        cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches, documentOverride: window.strictDocument,
        fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"), fontSize: 13,
        minimumContrastRatio: 4.5, screenReaderMode: reader.checked, scrollback: SCROLLBACK, theme: theme(),
      });
      this.fitting = new FitAddon.FitAddon();
      this.view.loadAddon(this.fitting);
      this.view.attachCustomKeyEventHandler((event) => onKey(event, this));
      this.view.onData((text) => this.type(new TextEncoder().encode(text)));
      this.view.onBinary((text) => this.type(Uint8Array.from(text, (char) => char.charCodeAt(0))));
      this.view.onResize(() => this.send(RESIZE, encode(this.size())));
    }

    show() {
      for (const each of terminals) {
        each.pane.hidden = each !== this;
        each.tab.setAttribute("aria-selected", String(each === this));
        each.tab.tabIndex = each === this ? 0 : -1;
      }
      active = this;
      this.fitting.fit();
      this.view.focus();
      announce();
    }

    /** Start a shell in the pod. The connection ends with the shell, and the shell with the connection. */
    connect() {
      this.window = WINDOW; // bytes of input that the pod can still accept
      this.processed = 0; // bytes of output for which no credit has been returned
      this.typed = [];
      this.result = null;
      this.state = "connecting";
      this.message = `Connecting to ${this.pod}…`;
      const scheme = location.protocol === "https:" ? "wss:" : "ws:";
      this.socket = new WebSocket(`${scheme}//${location.host}${card.dataset.socket}?pod=${encodeURIComponent(this.pod)}`);
      this.socket.binaryType = "arraybuffer";
      this.socket.onopen = () => {
        this.send(START, encode({ command: SHELL, terminal: { ...this.size(), type: "xterm-256color" } }));
        this.sendTyped();
      };
      this.socket.onmessage = (event) => this.receive(new Uint8Array(event.data));
      this.socket.onclose = () => this.end();
      announce();
    }

    size() {
      return { rows: this.view.rows, columns: this.view.cols };
    }

    send(kind, payload) {
      if (this.socket?.readyState !== WebSocket.OPEN) return;
      const message = new Uint8Array(payload.length + 1);
      message[0] = kind;
      message.set(payload, 1);
      this.socket.send(message);
    }

    type(bytes) {
      if (this.state === "ended") return;
      this.typed.push(bytes);
      this.sendTyped();
    }

    sendTyped() {
      while (this.socket.readyState === WebSocket.OPEN && this.typed.length && this.window > 0) {
        const bytes = this.typed.shift(), count = Math.min(CHUNK, this.window, bytes.length);
        this.send(INPUT, bytes.subarray(0, count));
        this.window -= count;
        if (count < bytes.length) this.typed.unshift(bytes.subarray(count));
      }
    }

    receive(message) {
      const kind = message[0], payload = message.subarray(1);
      if (kind === STATUS) {
        this.result = JSON.parse(new TextDecoder().decode(payload));
        return;
      }
      if (this.state === "connecting") {
        this.state = "open";
        this.message = `Connected to ${this.pod}.`;
        announce();
      }
      if (kind === CREDIT) {
        this.window += new DataView(payload.buffer, payload.byteOffset).getUint32(0);
        this.sendTyped();
      } else if (kind === OUTPUT || kind === ERRORS) {
        // The pod sends no more than the window ahead of what the terminal has shown.
        this.view.write(payload, () => this.credit(payload.length));
      }
    }

    credit(count) {
      this.processed += count;
      if (this.processed < CHUNK) return;
      const payload = new Uint8Array(4);
      new DataView(payload.buffer).setUint32(0, this.processed);
      this.processed = 0;
      this.send(CREDIT, payload);
    }

    end() {
      if (this.state === "ended") return;
      this.state = "ended";
      this.typed = [];
      const { error, exit_code: code } = this.result ?? { error: "The connection was lost." };
      this.message = error ? `The terminal is closed. ${error}` : `The shell exited with code ${code}.`;
      this.view.write(`\r\n\u001b[7m ${this.message.replace(/[\u0000-\u001f\u007f-\u009f]/g, " ")} \u001b[0m\r\n`);
      announce();
    }

    restart() {
      this.view.reset();
      this.connect();
      this.show();
    }

    close() {
      if (this.socket) this.socket.onclose = null;
      this.socket?.close();
      const place = terminals.indexOf(this);
      terminals.splice(place, 1);
      this.view.dispose();
      this.tab.remove();
      this.pane.remove();
      active = null;
      if (terminals.length) terminals[Math.max(place - 1, 0)].show();
      else element("open").focus();
      announce();
    }
  }

  /** Show the state of the active terminal, and the buttons that apply to it. */
  function announce() {
    card.classList.toggle("in-use", terminals.length > 0);
    tabs.hidden = !terminals.length;
    element("empty").hidden = terminals.length > 0;
    status.textContent = active?.message ?? "";
    status.classList.toggle("bad", active?.state === "ended");
    element("restart").hidden = active?.state !== "ended";
    for (const id of ["close", "copy", "keys"]) element(id).hidden = !active;
  }

  async function open() {
    const pod = element("pod")?.value;
    if (!pod || terminals.length >= MOST) {
      status.textContent = pod ? `This page already has ${MOST} terminals, the maximum. Close a terminal first.` : "";
      return;
    }
    await document.fonts.load('13px "JetBrains Mono"').catch(() => undefined); // the size of a cell depends on this font
    const terminal = new PodTerminal(pod);
    terminals.push(terminal);
    for (const each of terminals) each.pane.hidden = each !== terminal;
    announce();
    terminal.view.open(terminal.pane);
    // xterm.js creates the cells in the global document in spite of `documentOverride`.
    terminal.view._core._renderService._renderer.value._rowFactory._document = window.strictDocument;
    terminal.view.textarea.setAttribute("aria-label", `Terminal ${opened} in ${pod}. Press Ctrl+Shift+L to leave.`);
    terminal.show();
    terminal.connect();
  }

  function onKey(event, terminal) {
    if (!event.ctrlKey || !event.shiftKey || !["KeyC", "KeyL", "KeyV"].includes(event.code)) return true;
    if (event.type === "keydown" && event.code === "KeyL") terminal.tab.focus();
    if (event.type === "keydown" && event.code === "KeyC") copy();
    if (event.code !== "KeyV") event.preventDefault(); // the browser itself pastes
    return false;
  }

  function copy() {
    const text = active?.view.getSelection();
    if (!text) {
      status.textContent = "Select text in the terminal first.";
      return;
    }
    active.view.focus();
    if (navigator.clipboard) navigator.clipboard.writeText(text).catch(() => document.execCommand("copy"));
    else document.execCommand("copy"); // pages without TLS have no clipboard object
    status.textContent = "Selection copied.";
  }

  /** Return the colours of the page's theme. */
  function theme() {
    const style = getComputedStyle(panes);
    return {
      background: style.backgroundColor, foreground: style.color, cursor: style.color, cursorAccent: style.backgroundColor,
      selectionBackground: style.accentColor, selectionInactiveBackground: style.accentColor,
    };
  }

  function applyTheme() {
    for (const each of terminals) each.view.options.theme = theme();
  }

  function fullScreen(on) {
    card.classList.toggle("full", on);
    active?.view.focus();
  }

  reader.checked = localStorage.getItem(READER) === "on";
  reader.addEventListener("change", () => {
    localStorage.setItem(READER, reader.checked ? "on" : "off");
    for (const each of terminals) each.view.options.screenReaderMode = reader.checked;
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button");
    if (button?.id === "terminal-open") open();
    if (button?.id === "terminal-full" || button?.id === "terminal-exit") fullScreen(!card.classList.contains("full"));
    if (!active || !card.contains(button)) return;
    if (button.role === "tab") terminals.find((each) => each.tab === button)?.show();
    if (button.id === "terminal-restart") active.restart();
    if (button.id === "terminal-close") active.close();
    if (button.id === "terminal-copy") copy();
    if (button.dataset.key) {
      active.type(new TextEncoder().encode(KEYS[button.dataset.key]));
      active.view.focus();
    }
  });
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") fullScreen(false);
    if (!step || !active) return;
    event.preventDefault();
    terminals[(terminals.indexOf(active) + step + terminals.length) % terminals.length].show();
    active.tab.focus();
  });
  new ResizeObserver(() => active?.fitting.fit()).observe(panes);
  new MutationObserver(applyTheme).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
  addEventListener("beforeunload", (event) => {
    if (terminals.some((each) => each.state === "open")) event.preventDefault();
  });
})();
