"use strict";
// Texts are untrusted: add them to the page only through textContent and setAttribute.
(async () => {
  /** Decompress the page's JSON data. */
  async function unpacked() {
    const packed = atob(document.getElementById("data").textContent);
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  if (typeof DecompressionStream === "undefined") {
    const nothing = document.getElementById("nothing");
    nothing.textContent = "This browser is too old for this page.";
    nothing.hidden = false;
    return;
  }
  const data = await unpacked();
  const columns = data.columns;
  const size = data.page_size;

  /** An NFT's value in a column, or null. A column has distinct values and an index per NFT. */
  function value(name, nft) {
    const column = columns[name];
    return column ? column.of[column.at[nft]] : null;
  }

  // Building ------------------------------------------------------------------------------

  function make(tag, classes, ...children) {
    const element = document.createElement(tag);
    if (classes) element.className = classes;
    element.append(...children);
    return element;
  }

  /** Isolate a text, so that its direction does not affect the text around it. */
  function own(text, title) {
    const element = make("bdi", "", text);
    if (title) element.setAttribute("title", title);
    return element;
  }

  function short(text) {
    return text.length > 20 ? `${text.slice(0, 8)}…${text.slice(-4)}` : text;
  }

  /** Shorten a contract's address as the rest of nftsync does. */
  function shortContract(text) {
    return text.length > 20 ? `${text.slice(0, 6)}…${text.slice(-4)}` : text;
  }

  const tones = 6;

  /** A tile that replaces a picture: an initial, in the color of its collection. */
  function notice(nft, message, reason) {
    const box = make("div", "missing", make("b", "", message), ...(reason ? [own(reason)] : []));
    const of = value("collection", nft) ?? value("contract", nft) ?? value("name", nft) ?? "";
    const named = value("collection", nft) ?? value("name", nft) ?? "";
    const initial = /[\p{L}\p{N}]/u.exec(named);
    box.setAttribute("data-initial", initial ? initial[0].toUpperCase() : "#");
    const sum = [...of.toLowerCase()].reduce((all, one) => all + one.codePointAt(0), 0);
    box.classList.add(`tone-${sum % tones}`);
    return box;
  }

  function hostOf(url) {
    try {
      return new URL(url).host;
    } catch {
      return "";
    }
  }

  function picture(nft, loading) {
    const box = make("div", "picture");
    const url = value("image", nft);
    if (url === null) {
      const problem = value("problem", nft);
      const message = problem === null ? "No image" : "Image not shown";
      box.append(notice(nft, message, problem));
      return box;
    }
    const image = make("img");
    image.setAttribute("alt", "");
    image.setAttribute("loading", loading);
    image.setAttribute("decoding", "async");
    image.setAttribute("referrerpolicy", "no-referrer");
    image.addEventListener("error", () => {
      const reason = navigator.onLine ? `no image from ${hostOf(url)}` : "you are offline";
      image.replaceWith(notice(nft, "Image did not load", reason));
    });
    image.setAttribute("src", url);
    box.append(image);
    return box;
  }

  function edition(nft) {
    const number = value("edition", nft);
    const total = value("editions", nft);
    if (number === null || number === "0") return null;
    return total === null ? `edition ${number}` : `edition ${number} of ${total}`;
  }

  function line(...parts) {
    const shown = parts.filter((part) => part !== null);
    const all = shown.flatMap((part, place) => (place ? [" · ", part] : [part]));
    return shown.length ? [make("p", "line", ...all)] : [];
  }

  /** The amount and the edition. */
  function counts(nft) {
    const amount = value("amount", nft);
    const one = amount === null || amount === "1";
    const count = one ? null : make("span", "amount", "×", own(amount, amount));
    const of = edition(nft);
    return line(count, of === null ? null : own(of));
  }

  function lines(nft) {
    const contract = value("contract", nft);
    const collection = value("collection", nft);
    const wallet = value("wallet", nft);
    const label = value("label", nft);
    const from = collection ?? (contract === null ? null : shortContract(contract));
    const holder = label ?? (wallet === null ? null : short(wallet));
    const held = value("held", nft);
    const since = held === null ? null : own(`seen since ${held.slice(0, 10)}`, held);
    return [
      ...counts(nft),
      ...line(from === null ? null : own(from, contract ?? from)),
      ...line(holder === null ? null : own(holder, wallet ?? holder)),
      ...line(since),
    ];
  }

  const inDetails = {
    description: "Description",
    creator: "Creator",
    collection: "Collection",
    contract: "Contract",
    chain: "On-chain token id",
    label: "Holder",
    wallet: "Wallet",
    held: "Held since",
    token: "Token id",
  };

  function nameOf(nft) {
    const [name, chain] = [value("name", nft), value("chain", nft)];
    const unnamed = chain === null ? "Unnamed" : `Unnamed ${short(chain)}`;
    return [name ?? unnamed, name ?? chain, name === null ? "unnamed" : ""];
  }

  function card(nft, place) {
    const [name, title, kind] = nameOf(nft);
    const more = make("button", "more", "Details");
    more.setAttribute("type", "button");
    more.setAttribute("aria-haspopup", "dialog");
    more.setAttribute("aria-label", `Details: ${name}`);
    more.addEventListener("click", () => open(place));
    const about = make("div", "about", make("h2", kind, own(name, title)), ...lines(nft), more);
    return make("li", "card", picture(nft, "lazy"), about);
  }

  // One NFT, large ------------------------------------------------------------------------

  const [dialog, stage, large, about, facts, close] = [
    "dialog", "stage", "large", "about", "facts", "close",
  ].map((id) => document.getElementById(id));
  const turns = [...document.querySelectorAll("button[data-turn]")];
  let opened = 0;

  /** Show the NFT at this place among the matches. */
  function open(place) {
    opened = place;
    const nft = chosen[place];
    const [name, title, kind] = nameOf(nft);
    large.className = kind;
    large.replaceChildren(own(name, title));
    stage.replaceChildren(picture(nft, "eager"));
    about.replaceChildren(...counts(nft));
    facts.replaceChildren();
    for (const [column, label] of Object.entries(inDetails)) {
      const text = value(column, nft);
      if (text !== null) facts.append(make("dt", "", label), make("dd", "", own(text)));
    }
    for (const button of turns) button.disabled = !(place + Number(button.dataset.turn) in chosen);
    if (!dialog.open) {
      dialog.showModal();
      close.focus();
    }
  }

  function turned(by) {
    if (opened + by in chosen) open(opened + by);
  }

  for (const button of turns) {
    button.addEventListener("click", () => turned(Number(button.dataset.turn)));
  }
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // outside the content
  });
  dialog.addEventListener("close", () => stage.replaceChildren());
  dialog.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) turned(by);
  });

  // Choosing ------------------------------------------------------------------------------

  const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

  /** Compare numbers of any length, written as texts. */
  function compareNumbers(a, b) {
    const left = a.replace(/^0+(?=.)/, "");
    const right = b.replace(/^0+(?=.)/, "");
    if (left.length !== right.length) return left.length - right.length;
    return left < right ? -1 : left > right ? 1 : 0;
  }

  const isNumber = (text) => text !== null && /^[0-9]+$/.test(text);
  const texts = (...names) => (nft) => names.map((name) => value(name, nft)).find((t) => t) ?? null;
  const numbers = (name) => (nft) => (isNumber(value(name, nft)) ? value(name, nft) : null);
  const sorts = {
    name: [texts("name"), collator.compare],
    collection: [texts("collection", "contract"), collator.compare],
    wallet: [texts("label", "wallet"), collator.compare],
    edition: [numbers("edition"), compareNumbers],
    amount: [numbers("amount"), compareNumbers],
    held: [texts("held"), (a, b) => (a < b ? -1 : a > b ? 1 : 0)],
  };

  /** The rank of each NFT's value; NFTs without a value come last in both directions. */
  const ranks = new Map();
  function ranked(by) {
    if (ranks.has(by)) return ranks.get(by);
    const [key, compare] = sorts[by];
    const keys = Array.from({ length: data.count }, (_, nft) => key(nft));
    const distinct = [...new Set(keys)].filter((text) => text !== null).sort(compare);
    const places = new Map();
    let rank = 0;
    distinct.forEach((text, at) => {
      if (at && compare(distinct[at - 1], text)) rank += 1;
      places.set(text, rank);
    });
    const keyRanks = Int32Array.from(keys, (key) => (key === null ? -1 : places.get(key)));
    ranks.set(by, keyRanks);
    return keyRanks;
  }

  function sorted(nfts, by, down) {
    if (!sorts[by]) return down ? nfts.reverse() : nfts;
    const places = ranked(by);
    return nfts.sort((a, b) => {
      const [left, right] = [places[a], places[b]];
      if (left < 0 || right < 0) return (left < 0) - (right < 0) || a - b;
      return (down ? right - left : left - right) || a - b;
    });
  }

  const searched = [
    "name", "creator", "collection", "contract", "label", "wallet", "token", "chain",
  ].filter((name) => columns[name]);
  const lower = new Map();
  const everyNft = Array.from({ length: data.count }, (_, nft) => nft);

  /** Keep the NFTs with a word in any searched column. */
  function having(word, nfts) {
    const matches = searched.map((name) => {
      if (!lower.has(name)) lower.set(name, columns[name].of.map((text) => text?.toLowerCase()));
      return lower.get(name).map((text) => (text ? text.includes(word) : false));
    });
    const places = searched.map((name) => columns[name].at);
    return nfts.filter((nft) => matches.some((hits, number) => hits[places[number][nft]]));
  }

  // Showing -------------------------------------------------------------------------------

  const [search, sort, turn, grid, status, place, nothing] = [
    "search", "sort", "turn", "grid", "status", "place", "nothing",
  ].map((id) => document.getElementById(id));
  const steps = [...document.querySelectorAll("button[data-step]")];
  const count = (number) => number.toLocaleString("en");
  let chosen = [];
  let page = 0;

  function pages() {
    return Math.max(1, Math.ceil(chosen.length / size));
  }

  function show() {
    const first = page * size;
    const shown = chosen.slice(first, first + size);
    grid.replaceChildren(...shown.map((nft, number) => card(nft, first + number)));
    nothing.hidden = shown.length > 0;
    const some = chosen.length < data.count;
    const capped = data.count < data.total;
    const part = some ? `${count(chosen.length)} of ` : "";
    const limited = capped ? `${some ? "the" : "The"} first ${count(data.count)} of ` : "";
    const one = columns.wallet ? "holding" : "NFT";
    const summary = `${part}${limited}${count(data.total)} ${one}${data.total === 1 ? "" : "s"}`;
    const range = `${count(first + 1)} to ${count(first + shown.length)} shown`;
    status.textContent = shown.length ? `${summary}, ${range}` : summary;
    place.textContent = `${count(page + 1)} of ${count(pages())}`;
    for (const button of steps) {
      const back = button.dataset.step === "first" || button.dataset.step === "previous";
      button.disabled = back ? page === 0 : page === pages() - 1;
    }
  }

  function choose() {
    const words = search.value.toLowerCase().split(/\s+/).filter((word) => word);
    const matches = words.reduce((nfts, word) => having(word, nfts), [...everyNft]);
    const down = turn.getAttribute("aria-pressed") === "true";
    turn.textContent = down ? "↓" : "↑";
    chosen = sorted(matches, sort.value, down);
    page = 0;
    show();
  }

  for (const button of steps) {
    button.addEventListener("click", () => {
      const last = pages() - 1;
      const to = { first: 0, previous: page - 1, next: page + 1, last }[button.dataset.step];
      page = Math.min(last, Math.max(0, to));
      show();
      window.scrollTo(0, 0);
    });
  }
  for (const option of [...sort.options]) {
    if (option.dataset.of && !option.dataset.of.split(" ").some((name) => columns[name])) {
      option.remove();
    }
  }
  search.addEventListener("input", choose);
  sort.addEventListener("change", choose);
  turn.addEventListener("click", () => {
    turn.setAttribute("aria-pressed", String(turn.getAttribute("aria-pressed") !== "true"));
    choose();
  });
  choose();
})();
