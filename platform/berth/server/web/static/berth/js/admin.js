// The labels that cards on small screens show begin with a capital letter, like the headings of the table.
(() => {
  "use strict";
  document.addEventListener("DOMContentLoaded", () => {
    for (const cell of document.querySelectorAll("[data-label]")) {
      cell.dataset.label = cell.dataset.label.charAt(0).toUpperCase() + cell.dataset.label.slice(1);
    }
  });
})();
