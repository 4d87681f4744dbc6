// Keep input when a session ends: save it in this tab for its user, and restore it after the user has signed in
// again. Secrets are never saved.
(() => {
  "use strict";
  const KEY = "berth-draft", LONGEST = 24 * 3600 * 1000;
  const SECRET = "[type=password], [type=file], [data-secret], [name=csrfmiddlewaretoken]";
  const PUSHED = ["submit", "button", "reset", "image"];
  const person = document.body.dataset.person;
  const touched = new Set(); // URLs of forms with input
  let noticed = false, hasEnded = false, last = null; // hasEnded: true if the session has ended

  const addressOf = (form) => new URL(form.getAttribute("action") || location.href, location.href).pathname;
  const fieldsOf = (form) => [...form.elements].filter((field) => field.name && !field.matches(SECRET) && !PUSHED.includes(field.type));
  const isDraft = (form) => (form.method === "post" && touched.has(addressOf(form)))
    || Boolean(form.hasAttribute("data-draft") && form.elements.draft?.value);

  function stored() {
    try { return JSON.parse(sessionStorage.getItem(KEY)); } catch { return null; }
  }

  function store(draft) {
    try {
      if (draft) sessionStorage.setItem(KEY, JSON.stringify(draft));
      else sessionStorage.removeItem(KEY);
    } catch { /* storage is full or forbidden */ }
  }

  function placeOf(form) { // use the form's own page, even if the form is in a dialog or a row
    const apart = form?.closest("dialog, tr.editor");
    return apart ? new URL(form.getAttribute("action"), location.href) : location;
  }

  function keep() {
    if (!person) return location;
    const forms = [...document.forms].filter(isDraft);
    const front = forms.includes(last) ? last : forms[0];
    const fields = (form) => fieldsOf(form).map((field) => [field.name, field.value, field.checked ?? null, field.type]);
    if (forms.length) store({ person, at: Date.now(), due: hasEnded, forms: forms.map((form) => [addressOf(form), fields(form)]) });
    return placeOf(front);
  }

  function leave() {
    hasEnded = true;
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

  function ended() { // a background request noticed the end, so the user decides when to leave
    if (!noticed) say("Your session has ended. Your input is saved.", leave);
    noticed = hasEnded = true;
  }

  function restoreFields(form, fields) {
    const seen = new Map();
    for (const [name, value, checked, type] of fields) {
      const there = [...form.elements].filter((field) => field.name === name && !field.matches(SECRET));
      const boxes = type === "checkbox" || type === "radio", at = seen.get(name) ?? 0;
      const field = boxes ? there.find((box) => box.value === value && box.type === type) : there.filter((input) => input.type === type)[at];
      if (!boxes) seen.set(name, at + 1);
      if (field && boxes) field.checked = checked;
      else if (field) field.value = value;
      else if (!boxes || checked) { // the server renders this field with its next response
        const waiting = Object.assign(document.createElement("input"), { type: "hidden", name, value });
        (form.querySelector("[data-shape]") ?? form).append(waiting);
      }
      field?.dispatchEvent(new Event("input", { bubbles: true }));
    }
    touched.add(addressOf(form));
  }

  function cameFromSigningIn() { // the user may leave the sign-in page before its script has run
    try { return new URL(document.referrer).pathname === "/login"; } catch { return false; }
  }

  function restore() {
    const draft = stored();
    if (!draft) return;
    if (!person) return store({ ...draft, due: true }); // this is the sign-in page
    const signedIn = draft.due || cameFromSigningIn();
    if (!signedIn || draft.person !== person || Date.now() - draft.at > LONGEST) return store(null);
    const here = draft.forms.map(([address, fields]) => [[...document.forms].find((form) => addressOf(form) === address), fields]);
    const present = here.filter(([form]) => form);
    if (!present.length) return;
    store(null);
    for (const [form, fields] of present) restoreFields(form, fields);
    say("Your input was restored.");
  }

  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (form?.method !== "post") return;
    touched.add(addressOf(form));
    last = form;
  });
  document.addEventListener("htmx:configRequest", (event) => { // a sign-in in another tab changes the token
    const token = document.cookie.match(/(?:^|; )csrftoken=([^;]+)/)?.[1];
    if (!token || event.detail.verb === "get") return;
    event.detail.headers["X-CSRFToken"] = token;
    if (event.detail.formData.has("csrfmiddlewaretoken")) event.detail.formData.set("csrfmiddlewaretoken", token);
  });
  document.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status !== 401) return;
    const from = event.detail.elt;
    if (from.matches("[data-live], #look, #prediction")) ended();
    else leave();
  });
  document.addEventListener("berth:ended", (event) => (event.detail?.leave ? leave() : ended()));
  document.addEventListener("berth:done", () => touched.clear());
  addEventListener("pagehide", keep);
  document.addEventListener("DOMContentLoaded", () => setTimeout(restore));
})();
