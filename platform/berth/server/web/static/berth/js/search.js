// The search dialog: Ctrl-K opens it, arrow keys move between results, recently visited pages come first.
// Actions open their form on the current page.
(() => {
  "use strict";
  const dialog = document.getElementById("search-dialog");
  if (!dialog) return;
  const field = dialog.querySelector("input"), results = dialog.querySelector("[data-results]");
  const MAX_RECENT = 6, key = `berth-recent-${document.body.dataset.person}`;
  let sent = null, shown = null; // text of the last request, and of the results on the page
  let opensFirst = false; // Enter was pressed before the results of the text have arrived
  const hasName = /^\/(workloads|arrays|services|node-pools|nodes|evictions)\/[^/]+$/;

  function recent() {
    try { return JSON.parse(localStorage.getItem(key)) || []; } catch { return []; }
  }

  function remember() {
    if (!hasName.test(location.pathname)) return;
    const others = recent().filter((page) => page.path !== location.pathname);
    localStorage.setItem(key, JSON.stringify([{ path: location.pathname }, ...others].slice(0, MAX_RECENT)));
  }

  function open() {
    if (dialog.open) return;
    field.value = "";
    [sent, shown, opensFirst] = [null, null, false];
    results.replaceChildren(); // remove the results of the previous search
    dialog.showModal();
    field.focus();
    htmx.trigger(field, "search");
  }

  const links = () => [...dialog.querySelectorAll("a")].filter((link) => link.offsetParent);

  /** Mark the result that Enter opens. */
  function mark() {
    dialog.querySelector(".first")?.classList.remove("first");
    links()[0]?.classList.add("first");
  }

  /** Open the first result after Enter, once the results are those of the text. */
  function openFirst() {
    if (!opensFirst || shown !== field.value) return;
    opensFirst = false;
    links()[0]?.click();
  }

  function move(step) {
    const stops = [field, ...links()];
    stops[(stops.indexOf(document.activeElement) + step + stops.length) % stops.length]?.focus();
  }

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      open();
    } else if (dialog.open && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    } else if (dialog.open && event.key === "Escape") {
      event.preventDefault(); // Escape would otherwise clear the search field first
      dialog.close();
    } else if (dialog.open && event.key === "Enter" && document.activeElement === field) {
      event.preventDefault();
      opensFirst = true; // the request for a new text follows its last key
      openFirst();
    }
  });
  field.addEventListener("input", () => { opensFirst = false; });
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-search]")) open();
    else if (event.target === dialog || event.target.closest?.("#search-dialog a:is([hx-get], [data-theme-toggle])")) dialog.close();
  });
  field.addEventListener("htmx:configRequest", (event) => { // an empty search lists recent pages with their state
    sent = field.value;
    if (!field.value.trim()) event.detail.parameters.recent = recent().map((page) => page.path);
  });
  results.addEventListener("htmx:afterSwap", () => {
    shown = sent;
    mark();
    openFirst();
  });
  remember();
})();
