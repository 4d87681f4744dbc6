// What is typed outlives a session that has ended: it is kept in this tab, for its person, until they have
// signed in again, and then put back. Secrets are never kept.
(() => {
  "use strict";
  const KEY = "berth-draft", LONGEST = 24 * 3600 * 1000;
  const SECRET = "[type=password], [type=file], [data-secret], [name=csrfmiddlewaretoken]";
  const PUSHED = ["submit", "button", "reset", "image"];
  const person = document.body.dataset.person;
  const touched = new Set(); // addresses of forms in which somebody typed
  let told = false, gone = false, last = null; // gone: the session, as far as this page knows

  const addressOf = (form) => new URL(form.getAttribute("action") || location.href, location.href).pathname;
  const fieldsOf = (form) => [...form.elements].filter((each) => each.name && !each.matches(SECRET) && !PUSHED.includes(each.type));
  const isDraft = (form) => (form.method === "post" && touched.has(addressOf(form)))
    || Boolean(form.hasAttribute("data-draft") && form.elements.draft?.value);

  function stored() {
    try { return JSON.parse(sessionStorage.getItem(KEY)); } catch { return null; }
  }

  function store(kept) {
    try {
      if (kept) sessionStorage.setItem(KEY, JSON.stringify(kept));
      else sessionStorage.removeItem(KEY);
    } catch { /* a full or forbidden storage keeps nothing */ }
  }

  function placeOf(form) { // what opened in a dialog or a row is a page of its own, too
    const apart = form?.closest("dialog, tr.editor");
    return apart ? new URL(form.getAttribute("action"), location.href) : location;
  }

  function keep() {
    if (!person) return location;
    const forms = [...document.forms].filter(isDraft);
    const front = forms.includes(last) ? last : forms[0];
    const fields = (form) => fieldsOf(form).map((each) => [each.name, each.value, each.checked ?? null, each.type]);
    if (forms.length) store({ person, at: Date.now(), due: gone, forms: forms.map((form) => [addressOf(form), fields(form)]) });
    return placeOf(front);
  }

  function leave() {
    gone = true;
    const { pathname, search } = keep();
    document.documentElement.dataset.leaving = "";
    location.assign(`/login?next=${encodeURIComponent(pathname + search)}`);
  }

  function say(text, action) {
    const item = document.createElement("div");
    item.className = action ? "toast error" : "toast";
    item.textContent = text;
    document.getElementById("toasts")?.append(item);
    if (!action) return setTimeout(() => item.remove(), 8000);
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button small";
    button.textContent = "Sign in again";
    button.addEventListener("click", action);
    item.append(" ", button);
    return item;
  }

  function ended() { // noticed by the page itself: whoever is typing decides when to go
    if (!told) say("Your session has ended. Your input is saved.", leave);
    told = gone = true;
  }

  function putBack(form, fields) {
    const seen = new Map();
    for (const [name, value, checked, type] of fields) {
      const there = [...form.elements].filter((each) => each.name === name && !each.matches(SECRET));
      const boxes = type === "checkbox" || type === "radio", at = seen.get(name) ?? 0;
      const field = boxes ? there.find((each) => each.value === value && each.type === type) : there.filter((each) => each.type === type)[at];
      if (!boxes) seen.set(name, at + 1);
      if (field && boxes) field.checked = checked;
      else if (field) field.value = value;
      else if (!boxes || checked) { // of a part that the server draws once it hears of it
        const waiting = Object.assign(document.createElement("input"), { type: "hidden", name, value });
        (form.querySelector("[data-shape]") ?? form).append(waiting);
      }
      field?.dispatchEvent(new Event("input", { bubbles: true }));
    }
    touched.add(addressOf(form));
  }

  function cameFromSigningIn() { // a quick person is through before the script of that page has run
    try { return new URL(document.referrer).pathname === "/login"; } catch { return false; }
  }

  function restore() {
    const kept = stored();
    if (!kept) return;
    if (!person) return store({ ...kept, due: true }); // this is the page of signing in
    const signedIn = kept.due || cameFromSigningIn();
    if (!signedIn || kept.person !== person || Date.now() - kept.at > LONGEST) return store(null);
    const here = kept.forms.map(([address, fields]) => [[...document.forms].find((form) => addressOf(form) === address), fields]);
    const found = here.filter(([form]) => form);
    if (!found.length) return;
    store(null);
    for (const [form, fields] of found) putBack(form, fields);
    say("Your input was restored.");
  }

  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (form?.method !== "post") return;
    touched.add(addressOf(form));
    last = form;
  });
  document.addEventListener("htmx:configRequest", (event) => { // who signed in elsewhere has another token
    const token = document.cookie.match(/(?:^|; )csrftoken=([^;]+)/)?.[1];
    if (!token || event.detail.verb === "get") return;
    event.detail.headers["X-CSRFToken"] = token;
    if (event.detail.formData.has("csrfmiddlewaretoken")) event.detail.formData.set("csrfmiddlewaretoken", token);
  });
  document.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status !== 401) return;
    const from = event.detail.elt;
    if (from.matches("[data-live], #look, #foreseen")) ended();
    else leave();
  });
  document.addEventListener("berth:ended", (event) => (event.detail?.leave ? leave() : ended()));
  document.addEventListener("berth:done", () => touched.clear());
  addEventListener("pagehide", keep);
  document.addEventListener("DOMContentLoaded", () => setTimeout(restore));
})();
