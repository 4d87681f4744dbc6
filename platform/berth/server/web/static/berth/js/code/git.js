// A checkout's tracked files with their modes, and its own ignore patterns, read from its Git directory.
(() => {
  "use strict";
  const LINK = 0o120000, REPOSITORY = 0o160000;

  /** Return the modes of the files in Git's index, by path. Raises an error for other contents. */
  function readIndex(buffer, hashBytes) {
    const view = new DataView(buffer), bytes = new Uint8Array(buffer), text = new TextDecoder();
    const version = view.getUint32(4), count = view.getUint32(8), modes = new Map();
    if (view.getUint32(0) !== 0x44495243 || version < 2 || version > 4) throw new Error("not a Git index");
    let at = 12, before = new Uint8Array();
    for (let entry = 0; entry < count; entry += 1) {
      const start = at, flags = view.getUint16(at + 40 + hashBytes);
      const mode = view.getUint32(at + 24);
      at += 42 + hashBytes + (flags & 0x4000 ? 2 : 0);
      let shared = new Uint8Array();
      if (version === 4) { // the path omits the part that it shares with the previous path
        let dropped = bytes[at] & 0x7f;
        while (bytes[at++] & 0x80) dropped = ((dropped + 1) << 7) | (bytes[at] & 0x7f);
        shared = before.slice(0, before.length - dropped);
      }
      const end = bytes.indexOf(0, at);
      const path = new Uint8Array([...shared, ...bytes.slice(at, end)]);
      modes.set(text.decode(path), mode);
      at = version === 4 ? end + 1 : start + ((end - start + 8) & ~7);
      before = path;
    }
    return modes;
  }

  /** Checkout in a directory with `.git`. */
  class Checkout {
    constructor(modes, exclude) {
      this.modes = modes;
      this.exclude = exclude;
      this.directories = new Set(); // directories that contain tracked files
      for (const path of modes.keys()) {
        for (let at = path.indexOf("/"); at > 0; at = path.indexOf("/", at + 1)) this.directories.add(path.slice(0, at));
      }
    }

    /** Read `.git`, which is a directory, or null if it is a file that names a directory elsewhere. */
    static async read(git) {
      const content = async (...names) => {
        let here = git;
        for (const name of names.slice(0, -1)) here = (await here?.list())?.directories.get(name);
        return (await here?.list())?.files.get(names.at(-1));
      };
      const [index, exclude, config] = await Promise.all([content("index"), content("info", "exclude"), content("config")]);
      const hashBytes = /objectformat\s*=\s*sha256/i.test(await config?.text() ?? "") ? 32 : 20;
      const modes = index ? readIndex(await index.arrayBuffer(), hashBytes) : new Map();
      return new Checkout(modes, await exclude?.text() ?? "");
    }

    isTracked(path) {
      return this.modes.has(path);
    }

    isExecutable(path) {
      return this.modes.has(path) ? Boolean(this.modes.get(path) & 0o100) : undefined;
    }

    links() {
      return [...this.modes.keys()].filter((path) => this.isLink(path));
    }

    isLink(path) {
      return (this.modes.get(path) & 0o170000) === LINK;
    }

    isRepository(path) {
      return (this.modes.get(path) & 0o170000) === REPOSITORY;
    }
  }

  window.berthCode = { ...window.berthCode, Checkout };
})();
