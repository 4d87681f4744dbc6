// Before the first paint: the reader's own choice of light or dark, if there is one.
(() => {
  const chosen = localStorage.getItem("berth-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
