// Store the browser's time zone in a cookie. The server parses and formats times in this zone.
(() => {
  "use strict";
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!zone) return;
  const isFirstPage = !document.cookie.includes("berth_zone=");
  document.cookie = `berth_zone=${encodeURIComponent(zone)}; path=/; max-age=31536000; samesite=lax`;

  // The server formats the times of the admin site, groups some lists by day, labels the axes of charts and suggests
  // the zone of a new schedule. A first page with these is loaded again in this zone.
  const needsZone = location.pathname.startsWith("/admin/") || document.querySelector("[data-by-day], .time-axis, #schedule_time_zone");
  if (isFirstPage && zone !== "UTC" && needsZone && document.cookie.includes("berth_zone=")) return location.reload();

  const name = (scope) => {
    for (const element of scope.querySelectorAll("[data-zone]")) element.textContent = zone;
  };
  name(document);
  document.addEventListener("htmx:load", (event) => name(event.target));
})();
