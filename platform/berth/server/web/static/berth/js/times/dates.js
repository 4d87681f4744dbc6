// Date fields in one format. Browsers show native fields in the format of their own language, such as 11/28/2026.
(() => {
  "use strict";
  const FORMATS = { date: "YYYY-MM-DD", "datetime-local": "YYYY-MM-DD HH:MM" };
  const sprite = document.querySelector("svg use[href*='icons.svg#']")?.getAttribute("href").replace(/#.*/, "#schedules");

  /** Turn a native field into a text field with a button that opens the native calendar. */
  function convert(field) {
    const frame = document.createElement("span"), calendar = document.createElement("input"), button = document.createElement("button");
    frame.className = `date-field ${field.type}`;
    calendar.type = field.type;
    calendar.tabIndex = -1;
    calendar.setAttribute("aria-label", "Calendar");
    calendar.className = "calendar";
    button.type = "button";
    button.className = "icon-button";
    button.setAttribute("aria-label", "Open calendar");
    if (sprite) button.innerHTML = `<svg aria-hidden="true" focusable="false" width="16" height="16"><use href="${sprite}"></use></svg>`;
    const typed = field.getAttribute("value")?.replace("T", " ") ?? "";
    field.placeholder = FORMATS[field.type];
    field.type = "text";
    field.value = typed;
    field.autocomplete = "off";
    field.replaceWith(frame);
    frame.append(field, calendar, button);
    button.addEventListener("click", () => {
      calendar.value = field.value.trim().replace(" ", "T");
      calendar.showPicker();
    });
    calendar.addEventListener("change", (event) => {
      event.stopPropagation();
      field.value = calendar.value.replace("T", " ");
      field.dispatchEvent(new Event("change", { bubbles: true }));
    });
    calendar.addEventListener("input", (event) => event.stopPropagation());
  }

  const NATIVE = "input:is([type=date], [type=datetime-local]):not(.calendar)";
  document.querySelectorAll(NATIVE).forEach(convert);
  document.addEventListener("htmx:load", (event) => event.target.querySelectorAll(NATIVE).forEach(convert));

  document.addEventListener("htmx:afterSwap", () => { // the new list names the date filters that are not valid
    const invalid = document.querySelector("[data-invalid]")?.dataset.invalid.split(" ") ?? [];
    for (const field of document.querySelectorAll(".filters .date-field > [name]")) {
      if (invalid.includes(field.name)) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
    }
  });
})();
