// SHA-256 digests. Browsers offer them only on HTTPS and localhost, so other pages compute them here.
(() => {
  "use strict";
  const primes = [2];
  for (let number = 3; primes.length < 64; number += 2) if (primes.every((prime) => number % prime)) primes.push(number);
  const fraction = (value) => ((value % 1) * 2 ** 32) >>> 0;
  const ROUNDS = Uint32Array.from(primes, (prime) => fraction(Math.cbrt(prime)));
  const START = primes.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));
  const turn = (word, bits) => (word >>> bits) | (word << (32 - bits));

  function padded(bytes) {
    const message = new Uint8Array((bytes.length + 72) & ~63);
    message.set(bytes);
    message[bytes.length] = 0x80;
    const view = new DataView(message.buffer);
    view.setUint32(message.length - 8, Math.floor(bytes.length / 2 ** 29));
    view.setUint32(message.length - 4, bytes.length << 3);
    return view;
  }

  function compute(bytes) {
    const view = padded(bytes), state = Uint32Array.from(START), words = new Uint32Array(64);
    for (let block = 0; block < view.byteLength; block += 64) {
      for (let at = 0; at < 16; at += 1) words[at] = view.getUint32(block + 4 * at);
      for (let at = 16; at < 64; at += 1) {
        const near = words[at - 2], far = words[at - 15];
        words[at] = words[at - 16] + (turn(far, 7) ^ turn(far, 18) ^ (far >>> 3)) + words[at - 7] + (turn(near, 17) ^ turn(near, 19) ^ (near >>> 10));
      }
      let a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
      for (let at = 0; at < 64; at += 1) {
        const one = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[at] + words[at]) | 0;
        const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        h = g; g = f; f = e; e = (d + one) | 0;
        d = c; c = b; b = a; a = (one + two) | 0;
      }
      state[0] += a; state[1] += b; state[2] += c; state[3] += d;
      state[4] += e; state[5] += f; state[6] += g; state[7] += h;
    }
    return state;
  }

  /** Return the digest in hexadecimal. */
  async function sha256(buffer) {
    if (!globalThis.crypto?.subtle) return Array.from(compute(new Uint8Array(buffer)), (word) => word.toString(16).padStart(8, "0")).join("");
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", buffer));
    return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  window.berthCode = { ...window.berthCode, sha256 };
})();
