// Times in the reader's zone, theme and menu buttons, dialogs and toasts.
(() => {
  "use strict";
  const root = document.documentElement;
  const { clock, exact, exactDay, full, short } = window.berthTimes;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]; // the units that the server uses in durations

  const isDistant = (date) => Math.abs(date - Date.now()) > 7 * 86400000;

  /** Return the largest unit of a distance, such as 3 min, with minutes if it is exact or less than 10 hours. */
  function distance(seconds, isExact) {
    const [unit, size] = units.find(([, size]) => seconds >= size) || units[3];
    const rest = Math.trunc((seconds % 3600) / 60);
    return `${Math.trunc(seconds / size)} ${unit}${unit === "h" && rest && (isExact || seconds < 36000) ? ` ${rest} min` : ""}`;
  }

  /** Return the distance from now, such as 3 min ago. A future distance is more exact: in 1 h 20 min. */
  function ago(date) {
    if (isDistant(date)) return short.format(date);
    const seconds = Math.round((date - Date.now()) / 1000);
    if (seconds === 0) return "just now";
    return seconds > 0 ? `in ${distance(seconds, true)}` : `${distance(-seconds, false)} ago`;
  }

  /** Return for how long a state has lasted. */
  function lasting(date) {
    if (isDistant(date)) return `since ${short.format(date)}`;
    return `for ${distance(Math.abs(Math.round((date - Date.now()) / 1000)), false)}`;
  }

  /** Return the time of day, with the date unless it is today. */
  const moment = (date) => (date.toDateString() === new Date().toDateString() ? clock : short).format(date);

  /** Return the time of an event to the second, with the date unless it is today. */
  const event = (date) => (date.toDateString() === new Date().toDateString() ? exact : exactDay).format(date);

  /** Return the time of day, with the date only if it is a day away or more. The distance stands beside it. */
  const near = (date) => (Math.abs(date - Date.now()) < 86400000 ? clock : short).format(date);

  /** Return a future time with its distance, such as 10:21, in 53 min. */
  const forecast = (date) => isDistant(date) ? short.format(date) : `${near(date)}, ${ago(date).replaceAll(" ", "\u00a0")}`;

  /** Return the distance alone, for a line below the time. */
  const remaining = (date) => isDistant(date) ? "" : ago(date);

  function times(scope) {
    if (!(scope instanceof Element || scope === document)) return;
    const elements = [...scope.querySelectorAll("time[datetime]")];
    if (scope.matches?.("time[datetime]")) elements.push(scope);
    for (const element of elements) {
      const date = new Date(element.dateTime);
      if (Number.isNaN(date.getTime())) continue;
      element.title = element.dataset.style === "event" ? `${full.format(date)}, ${ago(date)}` : full.format(date);
      const format = { full: full.format, clock: clock.format, hour: short.format, moment, near, event, lasting, forecast, remaining }[element.dataset.style] ?? ago;
      const text = format(date);
      if (element.textContent !== text) element.textContent = text;
    }
  }

  /** Scroll each bar of tabs to its open tab, which may be beyond the edge. */
  function showOpenTabs() {
    for (const tab of document.querySelectorAll(":is(.tabs, .page-tabs) > [aria-current]")) {
      const bar = tab.parentElement, overflow = tab.getBoundingClientRect().right - bar.getBoundingClientRect().right;
      if (bar.scrollLeft === 0 && overflow > 0) bar.scrollLeft = overflow + tab.offsetWidth;
    }
  }

  /** Show a message, with a link {text, href} to what was changed if there is one. */
  function toast(message, tone, link) {
    const box = document.getElementById("toasts");
    if (!box || !message) return;
    const item = document.createElement("div");
    item.className = tone ? `toast ${tone}` : "toast";
    item.textContent = message;
    if (link) item.append(" ", Object.assign(document.createElement("a"), { textContent: link.text, href: link.href }));
    box.append(item);
    setTimeout(() => item.remove(), tone || link ? 12000 : 5000);
  }

  /** Copy an element's text. Pages without TLS have no clipboard object, so the text is selected there. */
  function copy(element) {
    const report = (copied) => copied ? toast("Copied.") : toast("Copying failed. Select the text and copy it.", "error");
    if (!element) return; // a live update has replaced the element
    if (navigator.clipboard) {
      navigator.clipboard.writeText(element.textContent).then(() => report(true), () => report(false));
    } else {
      getSelection().selectAllChildren(element);
      report(document.execCommand("copy"));
    }
  }

  /** Show short success messages as toasts, which disappear before they are outdated. Messages with warnings stay. */
  function showMessages() {
    for (const notice of document.querySelectorAll(".main > .notice.good[role=status]")) {
      if (notice.textContent.length > 100) continue;
      toast(notice.textContent.trim());
      notice.remove();
    }
  }

  /** Open or close the navigation on phones. The focus returns from it to the menu button. */
  function menu(open) {
    const isInside = document.querySelector("#nav")?.contains(document.activeElement);
    root.classList.toggle("menu-open", open);
    const button = document.querySelector("[data-menu]");
    button?.setAttribute("aria-expanded", String(open));
    if (open) document.querySelector(".nav-link")?.focus();
    else if (isInside) button?.focus();
  }

  let areFiltersOpen = false; // kept when a list with its filters is fetched again

  /** Fold the fields of a filter form behind a button, which narrow screens show. */
  function foldFilters(scope) {
    for (const form of scope.querySelectorAll("form.filters, .queue-filters")) {
      const fields = [...form.querySelectorAll(":scope > .field:not(.search), :scope > .selects > select")];
      if (fields.length < 2 || form.querySelector(".filters-button")) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "button filters-button";
      const label = () => {
        const active = fields.filter((field) => (field.matches("select") ? [field] : [...field.querySelectorAll("select, input")]).some((input) => input.type === "checkbox" ? input.checked : input.value !== (input.dataset.default ?? ""))).length;
        button.textContent = active ? `Filters (${active})` : "Filters";
      };
      button.addEventListener("click", () => {
        areFiltersOpen = !form.classList.toggle("folded");
        button.setAttribute("aria-expanded", String(areFiltersOpen));
      });
      form.addEventListener("change", label);
      button.setAttribute("aria-expanded", String(areFiltersOpen));
      const search = form.querySelector(".search");
      if (search) search.after(button);
      else form.prepend(button);
      form.classList.toggle("folded", !areFiltersOpen);
      label();
    }
  }
  foldFilters(document);
  showMessages();

  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    if (!target) return;
    if (target.closest("[data-theme-toggle]")) {
      event.preventDefault(); // in the search, the button is a link
      const dark = getComputedStyle(root).colorScheme === "dark"
        || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
      root.dataset.theme = dark ? "light" : "dark";
      localStorage.setItem("berth-theme", root.dataset.theme);
      localStorage.setItem("_x_adminTheme", JSON.stringify(root.dataset.theme)); // the admin site uses the same theme
    } else if (target.closest("[data-save-view]")) {
      htmx.ajax("GET", target.closest("[data-save-view]").dataset.saveView + location.search, "#dialog");
    } else if (target.closest("a[data-follows-filters]")) {
      const link = target.closest("a"), query = new URLSearchParams(location.search);
      for (const name of ["cursor", "rows"]) query.delete(name);
      query.set("format", "csv");
      link.search = query;
    } else if (target.closest("[data-print]")) {
      window.print();
    } else if (target.closest("[data-menu]")) {
      menu(!root.classList.contains("menu-open"));
    } else if (target.closest(".scrim, [data-menu-close]")) {
      menu(false);
    } else if (target.closest("[data-close]")) {
      const dialog = target.closest("dialog");
      const place = target.closest("tr.editor > td");
      if (dialog || place) event.preventDefault();
      if (dialog) dialog.close();
      else place?.replaceChildren();
    } else if (target.closest("[data-copy]")) {
      copy(document.getElementById(target.closest("[data-copy]").dataset.copy));
    }
  });

  document.addEventListener("input", (event) => { // mark the fields of a draft that differ from the stored values
    const seen = event.target.dataset?.seen;
    if (seen !== undefined) event.target.classList.toggle("changed", event.target.value !== seen);
  });

  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof Element && event.target.closest("input, textarea, select, dialog");
    if (event.key === "Escape") menu(false);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      const search = document.querySelector("main input[type=search]");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    }
  });

  const tops = new WeakMap(); // screen position of each open menu's button
  /** Keep a menu on the screen: move it to the left, or above its button, if there is no room to the right or below. */
  function place(menu) {
    tops.set(menu.parentElement, menu.parentElement.getBoundingClientRect().top);
    menu.style.translate = "";
    const box = menu.getBoundingClientRect(), margin = 8, wide = root.clientWidth;
    const edge = Math.min(menu.parentElement.getBoundingClientRect().right, wide - margin);
    const shift = Math.max(margin - box.left, box.right > wide - margin ? edge - box.right : 0);
    const button = menu.parentElement.firstElementChild.getBoundingClientRect(), tall = root.clientHeight;
    const isBelow = menu.matches(".row-menu > *") && box.bottom > tall - margin && button.top > box.height;
    const rise = isBelow ? button.top - box.bottom : 0;
    if (Math.round(shift) || rise) menu.style.translate = `${shift}px ${rise}px`;
  }
  const places = () => document.querySelectorAll("details.chooser[open] > .menu").forEach(place);
  document.addEventListener("toggle", places, true);
  addEventListener("resize", places);

  /** Close the open menus, except the one that contains the element. The focus returns from a menu to its button. */
  function closeMenus(except) {
    for (const menu of document.querySelectorAll("details.chooser[open]")) {
      if (menu.contains(except)) continue;
      if (menu.contains(document.activeElement)) menu.firstElementChild.focus();
      menu.open = false;
    }
  }
  document.addEventListener("click", (event) => closeMenus(event.target.closest?.(".menu > a") ? null : event.target));
  document.addEventListener("keydown", (event) => event.key === "Escape" && closeMenus(null));
  /** Close the menus whose buttons have moved. The event may also come from a scroll before a menu was opened. */
  addEventListener("scroll", () => {
    for (const menu of document.querySelectorAll(":is(.row-menu, .head-menu)[open]")) {
      if (tops.has(menu) && Math.abs(menu.getBoundingClientRect().top - tops.get(menu)) > 1) menu.open = false;
    }
  }, { capture: true, passive: true });

  /** Show the sections and fields of a form that apply to the chosen value of another field. Disable the others. */
  function sections(form) {
    for (const section of form?.querySelectorAll("[data-shown-for]") ?? []) {
      const [name, value] = section.dataset.shownFor.split("=");
      const field = form.elements[name], values = field instanceof RadioNodeList ? [...field].filter((box) => box.checked && !box.disabled).map((box) => box.value) : [field?.value];
      section.hidden = field !== undefined && !value.split("|").some((each) => values.includes(each));
      for (const inner of [section, ...section.querySelectorAll("input, select, textarea")]) if ("disabled" in inner) inner.disabled = section.hidden;
    }
  }
  document.addEventListener("change", (event) => event.target.form && sections(event.target.form));

  /** Remove a field's error once the user changes the field. The server checks the new value. */
  document.addEventListener("input", (event) => {
    const field = event.target;
    if (!field.closest?.(".form-page, form.inset") || field.ariaInvalid !== "true") return;
    field.ariaInvalid = null;
    for (const error of field.form.querySelectorAll(`[id="${field.id}_error"]`)) error.textContent = "";
    const summary = field.form.querySelector(".error-summary"), line = summary?.querySelector(`a[href="#${field.id}"]`)?.closest("li");
    line?.remove();
    const count = summary?.querySelectorAll("li").length;
    if (count === 0) summary.remove();
    else if (line) summary.querySelector("strong").textContent = count === 1 ? "Correct this field" : `Correct these ${count} fields`;
  });

  /** Count the fields of a form page that differ from their stored values, in total and per card. */
  const isChanged = (field) => (field.type === "checkbox" ? field.checked !== field.defaultChecked
    : field.options ? [...field.options].some((option, place) => option.selected !== (option.defaultSelected || (place === 0 && !field.querySelector("[selected]"))))
    : field.value !== field.defaultValue);
  document.addEventListener("input", (event) => {
    const form = event.target.form, total = form?.querySelector("[data-change-count]");
    if (!total) return;
    const count = (scope) => {
      const changed = [...scope.querySelectorAll("input, select, textarea")].filter((field) => field.name && field.type !== "hidden" && isChanged(field)).length;
      return changed ? `${changed} change${changed === 1 ? "" : "s"}` : "";
    };
    total.textContent = count(form);
    for (const card of form.querySelectorAll("details.card")) card.querySelector("h2").dataset.changes = count(card);
  });

  /** Show line numbers beside the documents in forms. */
  function numberLines(scope) {
    for (const box of scope.querySelectorAll("textarea[data-numbered]:not(.editor-text)")) {
      const editor = document.createElement("div"), lines = document.createElement("div");
      editor.className = "code-editor";
      lines.className = "editor-lines";
      lines.ariaHidden = "true";
      box.replaceWith(editor);
      box.classList.add("editor-text");
      editor.append(lines, box);
      const write = () => lines.replaceChildren(...box.value.split("\n").map((_, index) => {
        const line = document.createElement("span");
        line.textContent = index + 1;
        return line;
      }));
      box.addEventListener("input", write);
      box.addEventListener("scroll", () => { lines.scrollTop = box.scrollTop; }, { passive: true });
      write();
    }
  }
  function showDialogs(root) {
    for (const dialog of root.querySelectorAll("dialog[data-show]")) { // without scripts, it is part of the page
      dialog.close();
      dialog.showModal();
    }
  }
  document.addEventListener("htmx:load", (event) => {
    showDialogs(event.target);
    const forms = event.target.matches?.("form") ? [event.target] : event.target.querySelectorAll("form");
    forms.forEach(sections);
  });

  // A response that also updates another element is outdated if that element is gone.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const needed = event.detail.xhr.getResponseHeader("Berth-Needs");
    if (needed && !document.getElementById(needed)) event.detail.shouldSwap = false;
  });

  let unfolded = [], typed = []; // typed: secrets in the submitted form, which the server does not send back
  document.addEventListener("htmx:beforeSwap", (event) => {
    typed = [...event.detail.requestConfig.elt.querySelectorAll("[data-keep-typed]")].map(({ id, value }) => [id, value]);
    unfolded = [...event.target.querySelectorAll("details[open][id]")].map((details) => details.id);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
    for (const [id, value] of typed.splice(0)) {
      const field = document.getElementById(id);
      if (field?.value === "") field.value = value;
    }
    const dialog = event.target.closest?.("#dialog");
    if (dialog && !dialog.open) dialog.showModal();
    if (dialog) dialog.scrollTop = 0; // a new form begins at its top, but the button was at the bottom
    // The submission form is replaced while the user types, so only its own script moves the focus there.
    if (event.target.id !== "fields") event.target.querySelector?.("[aria-invalid=true], [autofocus]")?.focus();
    if (event.target.matches?.(".editor > td") && event.target.firstElementChild) { // the form opened below its row
      const field = event.target.querySelector("[autofocus]") ?? event.target.querySelector("input:not([type=hidden])");
      field?.focus({ preventScroll: true });
      if (field?.autofocus) field.select(); // the user clicked the number, so typing replaces it
      event.target.scrollIntoView({ block: "nearest" });
    }
  });
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.verb !== "get") return; // URLs contain only the parameters that are set
    for (const [name, value] of [...event.detail.formData]) if (value === "") event.detail.formData.delete(name);
  });
  // The browser may paint the raw times of new parts before htmx sends its events.
  new MutationObserver((records) => {
    for (const { addedNodes } of records) addedNodes.forEach(times);
  }).observe(document.body, { childList: true, subtree: true });
  document.addEventListener("htmx:load", (event) => {
    showOpenTabs();
    foldFilters(event.target);
    numberLines(event.target);
  });
  const isQuiet = (event) => event.detail.elt.matches?.("[data-quiet]"); // optional parts that are requested regularly
  document.addEventListener("htmx:responseError", (event) => event.detail.xhr.status !== 401 && !isQuiet(event) && toast(event.detail.xhr.getResponseHeader("Content-Type")
    ?.startsWith("text/plain") ? event.detail.xhr.responseText : `The request failed with HTTP status ${event.detail.xhr.status}.`, "error"));
  document.addEventListener("htmx:sendError", (event) => {
    if (!event.detail.elt.dataset?.live && !isQuiet(event)) toast("The server cannot be reached. Try again in a moment.", "error");
  });
  document.addEventListener("berth:done", (event) => {
    for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
    for (const place of document.querySelectorAll("tr.editor > td")) place.replaceChildren();
    toast(event.detail.message, event.detail.warns ? "warn" : "", event.detail.link);
  });

  showDialogs(document);
  times(document);
  showOpenTabs();
  numberLines(document);
  setInterval(() => { if (!document.hidden) times(document); }, 10000);
  setInterval(() => { // update ages that are shown in seconds
    if (document.hidden) return;
    for (const element of document.querySelectorAll("time[datetime]")) {
      if (Math.abs(new Date(element.dateTime) - Date.now()) < 61000) times(element);
    }
  }, 1000);
})();
