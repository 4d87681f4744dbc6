// Apply the reader's choice of light or dark, if any, before the first paint.
(() => {
  const chosen = localStorage.getItem("berth-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
