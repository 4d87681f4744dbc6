// Following a log: stop when the reader scrolls up or selects text, and resume at the end of the log.
(() => {
  "use strict";
  const END = 24; // distance in pixels from the end of the log that counts as the end
  const UP = ["ArrowUp", "PageUp", "Home"];

  /** Let scrolling and the button control `follow`.
   *
   * `isLive` returns whether the log may continue, and `reachesEnd` whether the page shows its output up to the
   * end that the log had when it was read. `stop` and `resume` are called once `follow` has changed, and
   * `restart` if the newest output has to be read first.
   */
  function followEnd(box, follow, { isLive, reachesEnd, stop, resume, restart }) {
    const latest = document.getElementById("log-latest"), body = box.querySelector("pre");
    let top = 0; // position that the page or the reader has set last
    let isOff = false; // the user has switched off the checkbox
    const isAtEnd = () => box.scrollHeight - box.clientHeight - box.scrollTop <= END;
    const offer = () => { latest.hidden = follow.checked || !isLive() || isAtEnd(); };

    function pause() {
      if (!follow.checked) return;
      follow.checked = false;
      stop();
      offer();
    }

    function proceed() {
      follow.checked = true;
      isOff = false;
      if (reachesEnd()) resume(); else restart();
      offer();
    }

    box.addEventListener("scroll", () => {
      const before = top;
      top = box.scrollTop;
      if (top < before && !isAtEnd()) pause();
      else if (top > before && isAtEnd() && !follow.checked && !isOff && isLive() && reachesEnd()) proceed();
      offer();
    }, { passive: true });
    // New output would undo the first step of a scroll animation, so do not wait for it.
    box.addEventListener("wheel", (event) => { if (event.deltaY < 0 && box.scrollTop > 0) pause(); }, { passive: true });
    box.addEventListener("keydown", (event) => { if (UP.includes(event.key) && box.scrollTop > 0) pause(); });
    document.addEventListener("selectionchange", () => {
      const selection = getSelection();
      if (isLive() && !selection.isCollapsed && body.contains(selection.anchorNode)) pause();
    });
    follow.addEventListener("change", () => {
      isOff = !follow.checked;
      if (isOff) stop(); else restart();
      offer();
    });
    latest.addEventListener("click", () => {
      box.focus({ preventScroll: true });
      proceed();
    });

    return {
      offer,
      /** Scroll to a position that does not count as the reader's. */
      scrollTo(position) {
        box.scrollTop = position;
        top = box.scrollTop;
        offer();
      },
      /** Follow the next log unless the user has switched following off. */
      reset() { follow.checked = !isOff; },
    };
  }

  Object.assign(window.berthLog, { followEnd });
})();
