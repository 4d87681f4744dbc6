// Store the browser's time zone in a cookie. The server parses and formats times in this zone.
(() => {
  "use strict";
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!zone) return;
  const isFirstPage = !document.cookie.includes("berth_zone=");
  document.cookie = `berth_zone=${encodeURIComponent(zone)}; path=/; max-age=31536000; samesite=lax`;

  // The server formats the times of the admin site and groups some lists by day, so a first page with these is
  // loaded again in this zone.
  const needsZone = location.pathname.startsWith("/admin/") || document.querySelector("[data-by-day]");
  if (isFirstPage && zone !== "UTC" && needsZone && document.cookie.includes("berth_zone=")) return location.reload();

  const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
  const day = new Intl.DateTimeFormat("en-US", { month: "short", day: "numeric" });

  // A page that was rendered before the cookie was set shows the wrong zone, so correct it here.
  function name(scope) {
    for (const element of scope.querySelectorAll("[data-zone]")) element.textContent = zone;
    if (!isFirstPage) return;
    for (const axis of scope.querySelectorAll(".time-axis")) {
      const labels = [...axis.querySelectorAll("[data-at]")];
      // Columns of whole UTC days keep their dates: in another zone, each would begin at the same odd hour.
      if (labels.every((label) => Number(label.dataset.at) % 86400 === 0)) continue;
      for (const label of labels) {
        const at = new Date(Number(label.dataset.at) * 1000), isMidnight = at.getHours() === 0 && at.getMinutes() === 0;
        label.textContent = (isMidnight ? day : clock).format(at);
      }
    }
  }
  name(document);
  document.addEventListener("htmx:load", (event) => name(event.target));
})();
