// Formats of times, which all pages and charts share: 24 hours, and the day before the month.
(() => {
  "use strict";
  const format = (options) => new Intl.DateTimeFormat("en-GB", { hourCycle: "h23", ...options });
  const time = { hour: "2-digit", minute: "2-digit" };
  window.berthTimes = {
    clock: format(time),
    exact: format({ ...time, second: "2-digit" }),
    exactDay: format({ day: "numeric", month: "short", ...time, second: "2-digit" }),
    short: format({ day: "numeric", month: "short", ...time }),
    full: format({ day: "numeric", month: "short", year: "numeric", ...time, second: "2-digit", timeZoneName: "short" }),
  };
})();
