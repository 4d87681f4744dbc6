// Store the browser's time zone in a cookie. The server parses and formats times in this zone.
(() => {
  "use strict";
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!zone) return;
  document.cookie = `berth_zone=${encodeURIComponent(zone)}; path=/; max-age=31536000; samesite=lax`;

  // A page that was rendered before the cookie was set shows the wrong zone, so correct it here.
  function name(scope) {
    for (const element of scope.querySelectorAll("[data-zone]")) element.textContent = zone;
  }
  name(document);
  document.addEventListener("htmx:load", (event) => name(event.target));
})();
