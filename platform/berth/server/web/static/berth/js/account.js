// The choice of a theme on the account page, and the password that the sign-in page shows on request.
(() => {
  "use strict";
  const root = document.documentElement, choices = [...document.querySelectorAll("[data-theme-choice]")];

  function show() {
    for (const button of choices) {
      button.setAttribute("aria-pressed", String(button.dataset.themeChoice === (root.dataset.theme || "system")));
    }
  }

  for (const button of choices) {
    button.addEventListener("click", () => {
      const theme = button.dataset.themeChoice;
      if (theme === "system") {
        delete root.dataset.theme;
        localStorage.removeItem("berth-theme");
      } else {
        root.dataset.theme = theme;
        localStorage.setItem("berth-theme", theme);
      }
      // The admin site uses the same choice.
      localStorage.setItem("_x_adminTheme", JSON.stringify(theme === "system" ? "auto" : theme));
    });
  }
  new MutationObserver(show).observe(root, { attributeFilter: ["data-theme"] });
  show();

  for (const box of document.querySelectorAll("[data-reveal]")) {
    box.closest("[data-reveal-box]").hidden = false;
    box.addEventListener("change", () => {
      document.getElementById(box.dataset.reveal).type = box.checked ? "text" : "password";
    });
  }
})();
