// Upload files to a project's code. Only chunks that the project lacks are uploaded.
(() => {
  "use strict";
  const { CodeError, sha256 } = window.berthCode;
  const CHUNK_BYTES = 4 * 2 ** 20, UPLOAD_BYTES = 8 * 2 ** 20, UPLOAD_CHUNKS = 2000;
  const ROUNDS = 3, ATTEMPTS = 5; // ATTEMPTS: attempts per request while the server cannot be reached
  const PASSING = [0, 408, 429, 500, 502, 503, 504]; // HTTP statuses after which another attempt may succeed

  const csrfToken = () => document.cookie.match(/(?:^|; )(?:__Host-)?csrftoken=([^;]+)/)?.[1]
    ?? JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];

  function wait(seconds, signal) {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted(); // an abort before this call raises no event
      const timer = setTimeout(resolve, seconds * 1000);
      signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
    });
  }

  function requestOnce(method, address, body, kind, signal, onSent) {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      const request = new XMLHttpRequest(); // fetch does not report the progress of uploads
      request.open(method, address);
      request.setRequestHeader("Accept", "application/json");
      if (body) request.setRequestHeader("Content-Type", kind);
      if (body) request.setRequestHeader("X-CSRFToken", csrfToken());
      if (onSent) request.upload.addEventListener("progress", (event) => onSent(event.loaded / event.total));
      request.addEventListener("loadend", () => resolve(request));
      signal.addEventListener("abort", () => { request.abort(); reject(signal.reason); }, { once: true });
      request.send(body);
    });
  }

  /** Send a request, retry it while the server cannot be reached, and return the response. Raises a CodeError. */
  async function request(method, address, { body = null, kind = "application/json", signal, onSent }) {
    for (let attempt = 1; ; attempt += 1) {
      const response = await requestOnce(method, address, body, kind, signal, onSent);
      if (response.status >= 200 && response.status < 300) return response.responseText ? JSON.parse(response.responseText) : null;
      if (!PASSING.includes(response.status) || attempt === ATTEMPTS) throw failure(response);
      await wait(Number(response.getResponseHeader("Retry-After")) || 2 ** (attempt - 1), signal);
    }
  }

  function failure(response) {
    if (response.status === 401) {
      document.dispatchEvent(new CustomEvent("berth:ended"));
      return new CodeError("Your session has ended. Sign in again, then select the directory again.");
    }
    if (!response.status) return new CodeError("The server cannot be reached. Try again in a moment.");
    let detail = "";
    try {
      detail = JSON.parse(response.responseText).detail;
    } catch { /* the response is from a proxy */ }
    return new CodeError(detail || `The server responded with status ${response.status}.`);
  }

  async function readPart(path, file, offset) {
    try {
      return await file.slice(offset, offset + CHUNK_BYTES).arrayBuffer();
    } catch { // browsers refuse to read files that have changed since they were selected
      throw new CodeError(`${path} cannot be read. It may have changed since it was selected. Select the directory again.`);
    }
  }

  const isScript = (data) => data.byteLength > 1 && new Uint8Array(data, 0, 2).join() === "35,33"; // 35 and 33 are the codes of "#!"

  /** Files with the digests of their chunks. */
  class HashedFiles {
    constructor() {
      this.entries = [];
      this.chunks = new Map();
    }

    static async compute(files, signal, onProgress) {
      const hashed = new HashedFiles();
      let read = 0;
      for (const { path, file, executable } of files) {
        const digests = [];
        let runs = executable ?? false;
        for (let offset = 0; offset < file.size; offset += CHUNK_BYTES) {
          signal.throwIfAborted();
          const data = await readPart(path, file, offset), digest = await sha256(data);
          if (!offset) runs = executable ?? isScript(data);
          digests.push(digest);
          if (!hashed.chunks.has(digest)) hashed.chunks.set(digest, { path, file, offset, size: data.byteLength });
          read += data.byteLength;
          onProgress(read);
        }
        hashed.entries.push({ path, size: file.size, chunks: digests, ...(runs ? { executable: true } : {}) });
      }
      return hashed;
    }

    /** Yield the bodies of requests with these chunks, and the size of their contents. */
    async* bodies(digests) {
      let header = [], parts = [], size = 0;
      const pack = () => {
        const text = new TextEncoder().encode(JSON.stringify(header)), length = new DataView(new ArrayBuffer(4));
        length.setUint32(0, text.length);
        return [new Blob([length.buffer, text, ...parts]), size];
      };
      for (const digest of digests) {
        const chunk = this.chunks.get(digest);
        if (parts.length && (size + chunk.size > UPLOAD_BYTES || parts.length === UPLOAD_CHUNKS)) {
          yield pack();
          [header, parts, size] = [[], [], 0];
        }
        const data = await readPart(chunk.path, chunk.file, chunk.offset);
        if (await sha256(data) !== digest) throw new CodeError(`${chunk.path} changed while it was being uploaded. Upload it again when no program is writing to it.`);
        header.push([{ digest }, data.byteLength]);
        parts.push(data);
        size += data.byteLength;
      }
      if (parts.length) yield pack();
    }
  }

  /** Upload the files, and return the ID of their tree. `onProgress` is called with the bytes uploaded so far and their total. */
  async function sendFiles(project, hashed, signal, onProgress) {
    const address = `/api/v1/projects/${encodeURIComponent(project)}/code`;
    const body = JSON.stringify({ files: hashed.entries });
    for (let round = 1; round <= ROUNDS; round += 1) {
      const { tree, missing } = await request("PUT", `${address}/tree`, { body, signal });
      if (!missing.length) return tree;
      const total = missing.reduce((sum, digest) => sum + hashed.chunks.get(digest).size, 0);
      let sent = 0;
      for await (const [content, size] of hashed.bodies(missing)) {
        onProgress(sent, total);
        const onSent = (share) => onProgress(sent + share * size, total);
        await request("PUT", `${address}/chunks`, { body: content, kind: "application/octet-stream", signal, onSent });
        sent += size;
      }
      onProgress(sent, total);
    }
    throw new CodeError("The server deleted parts of the code before the upload finished. Try again later.");
  }

  const readLimits = (project, signal) => request("GET", `/api/v1/projects/${encodeURIComponent(project)}/code`, { signal });

  window.berthCode = { ...window.berthCode, HashedFiles, readLimits, sendFiles };
})();
