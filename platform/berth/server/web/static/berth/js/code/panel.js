// The part of the submission form that uploads files from this computer.
(() => {
  "use strict";
  const { CodeError, HashedFiles, checkFiles, collectFiles, formatSize, fromDrop, fromInput, readLimits, sendFiles } = window.berthCode;
  const LISTED = 500;
  const form = document.getElementById("submit-form");
  const element = (id) => document.getElementById(`code-${id}`);
  if (!form) return;
  let selection = null; // files to upload: { name, files, links, ignored, size, hashed, sentTo }
  let running = null; // AbortController of the current work
  let reading = 0; // counter that identifies the latest selection

  const project = () => form.elements["f:project"]?.value ?? "";
  const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  const isSent = () => Boolean(selection?.sentTo) && selection.sentTo === project();

  function show({ error = "", status = "" } = {}) {
    if (!element("upload")) return; // the document currently does not describe a workload
    element("error").textContent = error;
    element("status").textContent = status;
    element("selection").hidden = !selection;
    element("actions").hidden = (!selection || isSent()) && !running;
    element("send").hidden = Boolean(running) || !selection || selection.refused || isSent();
    element("send").textContent = selection?.started ? "Resume upload" : `Upload ${plural(selection?.files.length ?? 0, "file")}`;
    element("stop").hidden = !running;
    element("discard").hidden = Boolean(running);
    element("progress").hidden = !running;
    for (const id of ["pick-directory", "pick-files"]) element(id).disabled = Boolean(running);
  }

  function showFiles() {
    document.getElementById("code-source-files").checked = true;
  }

  function describe({ name, files, links, ignored, size }) {
    const parts = [`${plural(files.length, "file")}, ${formatSize(size)}${name ? ` in ${name}` : ""}.`];
    if (ignored) parts.push(`Excluded by ignore files: ${ignored === 1 ? "1 file or directory" : `${ignored.toLocaleString("en")} files or directories`}.`);
    if (links.length) parts.push(`Excluded because browsers cannot read symbolic links: ${links.slice(0, 5).join(", ")}${links.length > 5 ? " …" : ""}.`);
    element("summary").textContent = parts.join(" ");
    element("list").replaceChildren(...files.slice(0, LISTED).map(({ path, file }) => {
      const item = document.createElement("li");
      item.textContent = `${path} (${formatSize(file.size)})`;
      return item;
    }));
    if (files.length > LISTED) element("list").append(Object.assign(document.createElement("li"), { textContent: `and ${plural(files.length - LISTED, "more file")}` }));
  }

  async function limitsOf(name) {
    if (!name) throw new CodeError("Select a project first. Files are stored in the project of the workload.");
    return readLimits(name, new AbortController().signal);
  }

  /** Read the names of the selected files, and show which would be uploaded. */
  async function select(source) {
    reading += 1;
    const mine = reading;
    selection = null;
    showFiles();
    show({ status: "Reading the directory…" });
    try {
      const limits = await limitsOf(project());
      const [name, directory] = await source();
      const found = await collectFiles(directory);
      if (mine !== reading) return;
      selection = { name, ...found };
      describe(selection);
      checkFiles(found, limits);
      show({ status: "Nothing has been uploaded yet." });
      element("send").focus();
    } catch (error) {
      if (mine !== reading) return;
      if (selection) selection.refused = true;
      show({ error: messageOf(error) });
    }
  }

  const messageOf = (error) => (error instanceof CodeError ? error.message : `The files cannot be read: ${error.message || error}`);

  function showProgress(step, done, total) {
    element("bar").value = total ? done / total : 1;
    element("bar").setAttribute("aria-label", step);
    element("amount").textContent = `${step}: ${formatSize(done)} of ${formatSize(total)}`;
  }

  async function send() {
    const mine = selection, target = project();
    running = new AbortController();
    const { signal } = running;
    mine.started = true;
    showProgress("Reading files", 0, mine.size);
    show({ status: "Reading files…" });
    element("stop").focus();
    let outcome = {}, tree = "";
    try {
      checkFiles(mine, await limitsOf(target));
      mine.hashed ??= await HashedFiles.compute(mine.files, signal, (done) => showProgress("Reading files", done, mine.size));
      let sent = 0;
      element("status").textContent = "Uploading files that the project does not have yet…";
      tree = await sendFiles(target, mine.hashed, signal, (done, total) => {
        sent = done;
        showProgress("Uploading files", done, total);
      });
      mine.sentTo = target;
      outcome = { status: sent ? `Uploaded ${formatSize(sent)}. The document now refers to the files.` : "The project already has all files. The document now refers to them." };
    } catch (error) {
      const kept = "The uploaded parts are kept, and the next upload resumes from there.";
      outcome = signal.aborted ? { status: `Upload cancelled. ${kept}` } : { error: `${messageOf(error)} ${kept}` };
    }
    running = null;
    show(outcome);
    if (tree) nameInDocument(tree);
    else element("send").focus();
  }

  /** Ask the server to write the tree into the document, like a button that adds a part of the form. */
  function nameInDocument(tree) {
    const button = Object.assign(document.createElement("button"), { name: "step", value: `code:${tree}`, hidden: true });
    form.append(button);
    button.click();
    button.remove();
    element("pick-directory").focus({ preventScroll: true });
  }

  function discard() {
    reading += 1;
    selection = null;
    show();
    element("pick-directory").focus();
  }

  function prepare() {
    if (!element("upload")?.hidden) return;
    const directories = "webkitdirectory" in element("directory");
    element("upload").hidden = false;
    element("pick-directory").hidden = !directories;
    for (const kind of ["directory", "files"]) {
      element(`pick-${kind}`).addEventListener("click", () => element(kind).click());
      element(kind).addEventListener("change", () => {
        const files = [...element(kind).files];
        element(kind).value = ""; // otherwise, the same directory could not be selected again
        if (files.length) select(async () => fromInput(files));
      });
    }
    element("send").addEventListener("click", send);
    element("stop").addEventListener("click", () => running?.abort(new CodeError("Upload cancelled.")));
    element("discard").addEventListener("click", discard);
    const drop = element("drop");
    for (const kind of ["dragenter", "dragover"]) {
      drop.addEventListener(kind, (event) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        drop.dataset.over = "";
      });
    }
    drop.addEventListener("dragleave", (event) => { if (!drop.contains(event.relatedTarget)) delete drop.dataset.over; });
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      delete drop.dataset.over;
      const read = fromDrop(event.dataTransfer.items); // dropped items are readable only now
      if (!running) select(() => read);
    });
    if (selection) describe(selection);
    show();
  }

  // To avoid losing selected files by accident, submit a workload only after they were uploaded or discarded.
  document.addEventListener("submit", (event) => {
    const step = event.submitter?.value;
    if (event.target !== form || !["submit", "save"].includes(step) || !selection || isSent() || !element("upload")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const what = running ? "Wait until the selected files are uploaded, or cancel the upload." : "Upload the selected files first, or discard the selection.";
    showFiles();
    element("error").textContent = what;
    element(running ? "stop" : selection.refused ? "discard" : "send").focus();
  }, true);
  form.addEventListener("change", (event) => { if (event.target.name === "f:project" && selection && !running) show(); });
  form.addEventListener("click", (event) => { // the clicked button disappears
    if (event.target.value !== "remove:code") return;
    if (isSent() && !running) discard();
    document.querySelector("[name=code-source]:checked")?.focus();
  });
  form.addEventListener("change", (event) => { // "No code" removes the code that the document names
    if (event.target.id === "code-source-none") form.querySelector("[value='remove:code']")?.click();
  });
  document.addEventListener("htmx:afterSettle", prepare);
  prepare();
})();
