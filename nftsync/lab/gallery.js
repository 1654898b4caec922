"use strict";
// Texts come from strangers: they enter the page through textContent and setAttribute only.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const columns = data.columns;
  const size = data.page_size;

  /** What a column says of an NFT, or null. A column lists values, or positions in `of`. */
  function value(name, nft) {
    const column = columns[name];
    if (!column) return null;
    return Array.isArray(column) ? column[nft] : column.of[column.at[nft]];
  }

  // Building ------------------------------------------------------------------------------

  function make(tag, classes, ...children) {
    const element = document.createElement(tag);
    if (classes) element.className = classes;
    element.append(...children);
    return element;
  }

  /** A text that turns nothing around it, whatever its direction. */
  function own(text, title) {
    const element = make("bdi", "", text);
    if (title) element.setAttribute("title", title);
    return element;
  }

  function short(text) {
    return text.length > 20 ? `${text.slice(0, 8)}…${text.slice(-6)}` : text;
  }

  function notice(what, why) {
    return make("p", "missing", make("b", "", what), ...(why ? [own(why)] : []));
  }

  function hostOf(url) {
    try {
      return new URL(url).host;
    } catch {
      return "";
    }
  }

  function picture(nft) {
    const box = make("div", "picture");
    const url = value("image", nft);
    if (url === null) {
      const problem = value("problem", nft);
      box.append(problem === null ? notice("No image") : notice("Image not shown", problem));
      return box;
    }
    const image = make("img");
    image.setAttribute("alt", "");
    image.setAttribute("loading", "lazy");
    image.setAttribute("decoding", "async");
    image.setAttribute("referrerpolicy", "no-referrer");
    image.addEventListener("error", () => {
      const why = navigator.onLine ? `none came from ${hostOf(url)}` : "you are offline";
      image.replaceWith(notice("Image did not load", why));
    });
    image.setAttribute("src", url);
    box.append(image);
    return box;
  }

  function edition(nft) {
    const number = value("edition", nft);
    const total = value("editions", nft);
    if (number === null) return total === null ? null : `edition of ${total}`;
    return total === null ? `#${number}` : `#${number} of ${total}`;
  }

  function line(...parts) {
    const shown = parts.filter((part) => part !== null);
    const all = shown.flatMap((part, place) => (place ? [" · ", part] : [part]));
    return shown.length ? [make("p", "line", ...all)] : [];
  }

  function lines(nft) {
    const amount = value("amount", nft);
    const one = amount === null || amount === "1";
    const count = one ? null : make("span", "amount", "×", own(amount, amount));
    const of = edition(nft);
    const contract = value("contract", nft);
    const collection = value("collection", nft);
    const wallet = value("wallet", nft);
    const label = value("label", nft);
    const from = collection ?? (contract === null ? null : short(contract));
    const holder = label ?? (wallet === null ? null : short(wallet));
    const held = value("held", nft);
    const since = held === null ? null : own(`seen since ${held.slice(0, 10)}`, held);
    return [
      ...line(count, of === null ? null : own(of)),
      ...line(from === null ? null : own(from, contract ?? from)),
      ...line(holder === null ? null : own(holder, wallet ?? holder)),
      ...line(since),
    ];
  }

  const inDetails = {
    description: "Description",
    creator: "Creator",
    contract: "Contract",
    chain: "Token on the chain",
    wallet: "Wallet",
    held: "Held since",
    token: "Token id",
  };

  function details(nft) {
    const list = make("dl");
    for (const [name, label] of Object.entries(inDetails)) {
      const text = value(name, nft);
      if (text !== null) list.append(make("dt", "", label), make("dd", "", own(text)));
    }
    return make("details", "", make("summary", "", "Details"), list);
  }

  function card(nft) {
    const [name, chain] = [value("name", nft), value("chain", nft)];
    const unnamed = chain === null ? "Unnamed" : `Unnamed ${short(chain)}`;
    const heading = make("h2", name === null ? "unnamed" : "", own(name ?? unnamed, name ?? chain));
    const about = make("div", "about", heading, ...lines(nft), details(nft));
    return make("li", "card", picture(nft), about);
  }

  // Choosing ------------------------------------------------------------------------------

  const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

  /** Numbers as texts of any length: longer is greater, once leading zeros are gone. */
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

  function sorted(nfts, by, down) {
    if (!sorts[by]) return down ? nfts.reverse() : nfts;
    const [key, compare] = sorts[by];
    const keys = new Map(nfts.map((nft) => [nft, key(nft)]));
    return nfts.sort((a, b) => {
      const [left, right] = [keys.get(a), keys.get(b)];
      // What has no value stands last in both directions.
      if (left === null || right === null) return (left === null) - (right === null) || a - b;
      return (down ? -compare(left, right) : compare(left, right)) || a - b;
    });
  }

  const searched = [
    "name", "creator", "collection", "contract", "label", "wallet", "token", "chain",
  ];
  const haystacks = [];
  function haystack(nft) {
    haystacks[nft] ??= searched.map((name) => value(name, nft) ?? "").join("\n").toLowerCase();
    return haystacks[nft];
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
    grid.replaceChildren(...shown.map(card));
    nothing.hidden = shown.length > 0;
    const all = chosen.length === data.count ? "" : ` of ${count(data.count)}`;
    const range = `${count(first + 1)} to ${count(first + shown.length)} shown`;
    const one = columns.wallet ? "holding" : "NFT";
    const found = `${count(chosen.length)}${all} ${one}${data.count === 1 ? "" : "s"}`;
    status.textContent = shown.length ? `${found}, ${range}` : found;
    place.textContent = `${count(page + 1)} of ${count(pages())}`;
    for (const button of steps) {
      const back = button.dataset.step === "first" || button.dataset.step === "previous";
      button.disabled = back ? page === 0 : page === pages() - 1;
    }
  }

  function choose() {
    const words = search.value.toLowerCase().split(/\s+/).filter((word) => word);
    const all = Array.from({ length: data.count }, (_, nft) => nft);
    const found = all.filter((nft) => words.every((word) => haystack(nft).includes(word)));
    const down = turn.getAttribute("aria-pressed") === "true";
    turn.textContent = down ? "↓" : "↑";
    chosen = sorted(found, sort.value, down);
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
