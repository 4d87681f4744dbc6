// Last lines of logs beside failures: the line that names an error, or else the last one.
(() => {
  "use strict";
  const ERROR = /error|exception|fatal|panic|killed|denied|not found|cannot|can't|failed/i, LENGTH_MAX = 300;
  const SEQUENCES = /\u001b\[[0-?]*[ -/]*[@-~]/g, CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
  const lines = new Map(); // promises by URL, because live updates replace the elements

  async function load(address) {
    const answer = await fetch(address, { headers: { Accept: "text/plain" } });
    if (!answer.ok) return "";
    const text = (await answer.text()).replace(SEQUENCES, "");
    // a carriage return replaces the line, as on a terminal
    const written = text.split("\n").map((line) => line.trim().split("\r").at(-1).replace(CONTROL, "").trim()).filter(Boolean);
    return (written.findLast((line) => ERROR.test(line)) ?? written.at(-1) ?? "").slice(0, LENGTH_MAX);
  }

  function show() {
    for (const element of document.querySelectorAll("[data-log-line]")) {
      const address = element.dataset.logLine;
      if (!lines.has(address)) lines.set(address, load(address).catch(() => ""));
      lines.get(address).then((line) => {
        element.textContent = line;
        element.parentElement.hidden = !line;
      });
    }
  }

  show();
  document.addEventListener("htmx:afterSwap", show);
})();
