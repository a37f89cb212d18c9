// Checks the proofs of the log in the page, with the browser's own SHA-256 (RFC 9162), against the signed head that is shown; and that head against the last one that this browser kept.
"use strict";
(() => {
  const bytes = (hex) => Uint8Array.from(hex.match(/../g) || [], (pair) => parseInt(pair, 16));
  const hex = (raw) => Array.from(raw, (one) => one.toString(16).padStart(2, "0")).join("");
  const hash = async (...parts) => {
    const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
    return new Uint8Array(await crypto.subtle.digest("SHA-256", whole));
  };
  const ZERO = Uint8Array.of(0), ONE = Uint8Array.of(1);
  const EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";  // the root of a log of no entries
  const areHashes = (given) => given.every((one) => /^[0-9a-f]{64}$/.test(one));
  const half = (one) => Math.floor(one / 2);  // sizes stay below 2^53, so halving by arithmetic is exact

  // RFC 9162, 2.1.3.2.
  const included = async (leaf, number, size, proof, root) => {
    if (number >= size || !areHashes([root, ...proof])) return false;
    let at = number, last = size - 1, node = await hash(ZERO, new TextEncoder().encode(leaf));
    for (const step of proof.map(bytes)) {
      if (last === 0) return false;
      if (at % 2 === 1 || at === last) {
        node = await hash(ONE, step, node);
        while (at % 2 === 0 && at !== 0) { at = half(at); last = half(last); }
      } else {
        node = await hash(ONE, node, step);
      }
      at = half(at); last = half(last);
    }
    return last === 0 && hex(node) === root;
  };

  // RFC 9162, 2.1.4.2: the log (old, oldRoot) is the beginning of (size, root).
  const grew = async (old, size, proof, oldRoot, root) => {
    if (!Number.isSafeInteger(size) || old > size || !areHashes([oldRoot, root, ...proof])) return false;
    if (old === 0 && oldRoot !== EMPTY) return false;
    if (old === size) return oldRoot === root;
    if (old === 0) return proof.length === 0;
    let at = old - 1, last = size - 1, isPower = old;
    while (isPower % 2 === 0) isPower = half(isPower);
    const path = isPower === 1 ? [oldRoot, ...proof] : [...proof];
    if (path.length === 0) return false;
    while (at % 2 === 1) { at = half(at); last = half(last); }
    let first = bytes(path[0]), second = first;
    for (const step of path.slice(1).map(bytes)) {
      if (last === 0) return false;
      if (at % 2 === 1 || at === last) {
        first = await hash(ONE, step, first);
        second = await hash(ONE, step, second);
        while (at % 2 === 0 && at !== 0) { at = half(at); last = half(last); }
      } else {
        second = await hash(ONE, second, step);
      }
      at = half(at); last = half(last);
    }
    return last === 0 && hex(first) === oldRoot && hex(second) === root;
  };

  // What is signed is what is checked: the head is read from the text that the page shows.
  const headOf = (checkpoint) => {
    const [origin, size, root] = checkpoint.split("\n");
    return { origin, size: Number(size), root: hex(Uint8Array.from(atob(root), (one) => one.charCodeAt(0))), checkpoint };
  };

  const ask = async (address) => {
    const reply = await fetch(address);
    if (!reply.ok) throw new Error(`the service answered ${reply.status}`);
    return reply.json();
  };
  const place = (id) => document.getElementById(id);
  const short = (root) => root.slice(0, 16);

  const keptUnder = (head) => `reticent head ${head.origin}`;
  const compare = async (head) => {
    const text = localStorage.getItem(keptUnder(head));
    if (text === null) return { holds: true, said: `This browser saw no head of this log before. It keeps this one, of ${head.size} entries, from now on.` };
    const kept = JSON.parse(text);
    const before = `${kept.size} entries with root ${short(kept.root)}`;
    if (kept.size > head.size) return { holds: false, kept, said: `THE LOG WAS ROLLED BACK: this browser saw ${before}; now there are only ${head.size}.` };
    const proof = kept.size < head.size ? (await ask(`/ledger/consistency?old=${kept.size}&new=${head.size}`)).proof : [];
    if (!await grew(kept.size, head.size, proof, kept.root, head.root)) {
      return { holds: false, kept, said: `THE LOG WAS REWRITTEN: this browser saw ${before}, and they are not the beginning of what is here now.` };
    }
    return { holds: true, said: kept.size === head.size ? `As this browser saw it before: ${before}.` : `The log only grew since this browser saw it: ${before} are still its beginning.` };
  };

  const checkHead = async (head) => {
    const shown = place("kept");
    let found;
    try { found = await compare(head); } catch (error) { found = { holds: false, said: `Not compared with the kept head: ${error.message}.` }; }
    shown.textContent = found.said;
    shown.classList.add(found.holds ? "fine" : "bad");
    if (found.holds) {
      localStorage.setItem(keptUnder(head), JSON.stringify(head));
    } else if (found.kept) {
      shown.setAttribute("role", "alert");
      const both = document.createElement("pre");  // both are signed: together they prove it to others
      both.textContent = found.kept.checkpoint;
      shown.append(" Keep this signed head, it is the evidence:", both);
      place("forget-line").hidden = false;
    }
  };

  const checkEntries = async (head) => {
    const said = place("verified"), table = place("entries"), rows = [...table.querySelectorAll("tbody tr[data-number]")];
    let proofs, good = 0;
    try {
      ({ proofs } = await ask(`/ledger/proofs?first=${table.dataset.first}&last=${table.dataset.last}&size=${head.size}`));
    } catch (error) {
      said.textContent = `Not verified: ${error.message}.`;
      said.className = "bad";
      return;
    }
    for (const row of rows) {
      const number = Number(row.dataset.number), proof = proofs[number] || [];
      const holds = await included(row.querySelector(".leaf").textContent, number, head.size, proof, head.root);
      row.lastElementChild.textContent = holds ? "holds" : "DOES NOT HOLD";
      row.lastElementChild.className = `proof ${holds ? "good" : "bad"}`;
      good += holds ? 1 : 0;
    }
    said.className = good === rows.length ? "good" : "bad";
    said.textContent = good === rows.length ? `All ${good} are in the log with root ${short(head.root)}.` : `${rows.length - good} of ${rows.length} ARE NOT in the log with root ${short(head.root)}.`;
  };

  document.addEventListener("DOMContentLoaded", async () => {
    const button = place("verify-all");
    if (!crypto.subtle) {
      place("kept").textContent = "Nothing is verified here: this browser computes hashes over https or on this machine only.";
      button.disabled = true;
      return;
    }
    const head = headOf(place("checkpoint").textContent);
    button.addEventListener("click", async () => {
      button.disabled = true;
      await checkEntries(head);
      button.disabled = false;
    });
    place("forget").addEventListener("click", () => {
      localStorage.removeItem(keptUnder(head));
      location.reload();
    });
    await checkHead(head);
  });
})();
