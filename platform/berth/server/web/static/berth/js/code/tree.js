// The files of a directory that the user has selected or dropped, by the rules of `berth submit --code`.
(() => {
  "use strict";
  const { Checkout, IgnoreFile } = window.berthCode;
  const PATH_MAX = 1024, NAME_MAX = 255; // maximum lengths in bytes
  const OF_HOME_DIRECTORIES = [".ssh", "NTUSER.DAT"];

  /** Error that tells the user why files cannot be uploaded. */
  class CodeError extends Error {}

  /** Directory of selected files, built from their paths. */
  class SelectedDirectory {
    constructor() {
      this.directories = new Map();
      this.files = new Map();
    }

    async list() {
      return this;
    }

    add(names, file) {
      if (names.length === 1) return this.files.set(names[0], file);
      if (!this.directories.has(names[0])) this.directories.set(names[0], new SelectedDirectory());
      return this.directories.get(names[0]).add(names.slice(1), file);
    }
  }

  /** Dropped directory, which is read on demand, so that excluded directories are not read at all. */
  class DroppedDirectory {
    constructor(entry) {
      this.entry = entry;
    }

    list() {
      this.contents ??= this.read();
      return this.contents;
    }

    async read() {
      const reader = this.entry.createReader(), entries = [];
      const next = () => new Promise((resolve, reject) => { reader.readEntries(resolve, reject); });
      for (let part = await next(); part.length; part = await next()) entries.push(...part); // a part has 100 entries
      return contentsOf(entries);
    }
  }

  const fileOf = async (entry) => (entry instanceof File ? entry : new Promise((resolve, reject) => { entry.file(resolve, reject); }));

  /** Return the contents of a directory from entries of the file system, or from files. */
  async function contentsOf(entries) {
    const directories = new Map(), files = new Map();
    for (const entry of entries) {
      if (entry.isDirectory) directories.set(entry.name, new DroppedDirectory(entry));
      else files.set(entry.name, await fileOf(entry));
    }
    return { directories, files };
  }

  /** Return [name, directory] of files from an input. */
  function fromInput(files) {
    const root = new SelectedDirectory();
    let name = "";
    for (const file of files) {
      const names = (file.webkitRelativePath || file.name).split("/");
      if (names.length > 1) name = names.shift();
      root.add(names, file);
    }
    return [name, root];
  }

  /** Return [name, directory] of dropped items: one directory, or several files and directories. */
  async function fromDrop(items) {
    const files = [...items].filter((item) => item.kind === "file"); // dropped files are readable only now
    const dropped = files.map((item) => item.webkitGetAsEntry?.() ?? item.getAsFile());
    if (dropped.length === 1 && dropped[0].isDirectory) return [dropped[0].name, new DroppedDirectory(dropped[0])];
    const contents = await contentsOf(dropped);
    return ["", { list: async () => contents }];
  }

  /** The ignore files that apply, from the top directory to the current one. */
  class Scope {
    constructor(base, files, checkout = null) {
      Object.assign(this, { base, files, checkout });
    }

    with(file, directory) {
      return new Scope(this.base, [...this.files, [directory, file]], this.checkout);
    }

    inside(path) {
      return path.slice(this.base.length);
    }

    /** Return whether the path is excluded, if its directory is not. The deepest ignore file decides. */
    excludes(path, isDirectory) {
      for (const [directory, file] of this.files.toReversed()) {
        const decision = file.decide(path.slice(directory.length), isDirectory);
        if (decision !== null) return decision;
      }
      return false;
    }
  }

  async function scopeOf(found, scope, contents, prefix) {
    const git = contents.directories.get(".git");
    if (git || contents.files.has(".git")) {
      const checkout = git && await Checkout.read(git);
      if (checkout) found.links.push(...checkout.links().map((path) => prefix + path));
      scope = new Scope(prefix, checkout ? [[prefix, new IgnoreFile(checkout.exclude)]] : [], checkout);
    }
    const ignored = contents.files.get(".gitignore");
    return ignored ? scope.with(new IgnoreFile(await ignored.text()), prefix) : scope;
  }

  async function walk(found, directory, prefix, outer, excluded) {
    const contents = await directory.list(), scope = await scopeOf(found, outer, contents, prefix);
    const { checkout } = scope;
    const isOut = (path, isDirectory) => excluded || scope.excludes(path, isDirectory);
    for (const [name, file] of contents.files) {
      const path = prefix + name, inside = scope.inside(path);
      if (name === ".git" || checkout?.isLink(inside)) continue;
      if (checkout?.isTracked(inside) || !isOut(path, false)) found.files.push({ path, file, executable: checkout?.isExecutable(inside) });
      else found.ignored += 1;
    }
    for (const [name, inner] of contents.directories) {
      const path = prefix + name, inside = scope.inside(path), out = isOut(path, true);
      if (name === ".git" || checkout?.isLink(inside)) continue;
      if (checkout?.isRepository(inside)) await walk(found, inner, `${path}/`, scope, false);
      else if (!out || checkout?.directories.has(inside)) await walk(found, inner, `${path}/`, scope, out);
      else found.ignored += 1;
    }
  }

  /**
   * Return the files to upload, sorted, the number of ignored files and directories, and the tracked links.
   *
   * Links are left out, because browsers show either no links or their targets.
   */
  async function collectFiles(directory) {
    const found = { files: [], links: [], ignored: 0 };
    const top = await directory.list();
    if (OF_HOME_DIRECTORIES.some((name) => top.directories.has(name) || top.files.has(name))) {
      throw new CodeError("This appears to be a home directory. Select the directory of one project.");
    }
    await walk(found, directory, "", new Scope("", []), false);
    const own = new IgnoreFile(await top.files.get(".berthignore")?.text() ?? "");
    const kept = found.files.filter(({ path }) => !own.excludes(path));
    found.ignored += found.files.length - kept.length;
    found.links = found.links.filter((path) => !own.excludes(path));
    found.files = kept.sort((one, other) => (one.path < other.path ? -1 : 1));
    found.size = kept.reduce((sum, { file }) => sum + file.size, 0);
    return found;
  }

  const bytesIn = (text) => new TextEncoder().encode(text).length;

  /** Raise an error if the files cannot be uploaded. */
  function checkFiles({ files, size }, limits) {
    const hint = "List files that pods do not need in .berthignore";
    if (!files.length) throw new CodeError("There are no files to upload. Select a directory with files.");
    if (files.length > limits.files_max) {
      throw new CodeError(`${files.length.toLocaleString("en")} files were selected, but at most ${limits.files_max.toLocaleString("en")} can be uploaded. ${hint}.`);
    }
    const long = files.find(({ path }) => bytesIn(path) > PATH_MAX || path.split("/").some((name) => bytesIn(name) > NAME_MAX));
    if (long) throw new CodeError(`The path ${long.path} is longer than ${PATH_MAX} bytes, or contains a name longer than ${NAME_MAX} bytes. Rename it.`);
    if (size > limits.size_max) {
      const largest = files.toSorted((one, other) => other.file.size - one.file.size).slice(0, 5);
      const names = largest.map(({ path, file }) => `${path} (${formatSize(file.size)})`).join(", ");
      throw new CodeError(`The files take ${formatSize(size)}, but at most ${formatSize(limits.size_max)} can be uploaded. ${hint}. Largest files: ${names}.`);
    }
  }

  function formatSize(size) {
    if (size < 2 ** 10) return `${size} byte${size === 1 ? "" : "s"}`;
    return size < 2 ** 20 ? `${(size / 2 ** 10).toFixed(1)} KiB` : `${(size / 2 ** 20).toFixed(1)} MiB`;
  }

  window.berthCode = { ...window.berthCode, CodeError, checkFiles, collectFiles, formatSize, fromDrop, fromInput };
})();
