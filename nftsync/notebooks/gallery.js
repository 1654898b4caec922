// Texts are untrusted: add them to the page only through textContent and setAttribute.
(async () => {
  /** Decompress the page's JSON data. */
  async function unpacked() {
    const packed = atob(document.getElementById("data").textContent);
    const bytes = new Uint8Array(packed.length);
    for (let at = 0; at < packed.length; at += 1) bytes[at] = packed.charCodeAt(at);
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

  const choice = makeChoice(data);
  const { value } = choice;

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

  const formatted = new Intl.NumberFormat("en");
  const count = (number) => formatted.format(number);

  const tones = 6;

  /** A tile that replaces a picture: an initial, in the color of its collection. */
  function notice(nft, message, reason) {
    const box = make("div", "missing", make("b", "", message), ...(reason ? [own(reason)] : []));
    const of = value("collection", nft) ?? value("name", nft);
    const initial = of.startsWith("0x") ? null : /[\p{L}\p{N}]/u.exec(of);
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
      const refused = data.embedded ? "Image not embedded" : "Image not shown";
      const message = problem === null ? "No image" : refused;
      box.append(notice(nft, message, problem));
      return box;
    }
    const image = make("img");
    image.setAttribute("alt", "");
    image.setAttribute("loading", loading);
    image.setAttribute("decoding", "async");
    image.setAttribute("referrerpolicy", "no-referrer");
    image.addEventListener("error", () => {
      const reason = data.embedded || url.startsWith("data:") ? "damaged image"
        : navigator.onLine ? `no image from ${hostOf(url)}` : "you are offline";
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
    const held = value("held", nft);
    const since = held === null ? null : own(`seen since ${held.slice(0, 10)}`, held);
    return [
      ...counts(nft),
      ...line(collection === null ? null : own(collection, contract ?? collection)),
      ...line(label === null ? null : own(label, wallet ?? label)),
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
    group: "Group",
    wallet: "Wallet",
    database: "Database",
    held: "Held since",
    token: "Token id",
  };

  function card(nft, place) {
    const name = value("name", nft);
    const more = make("button", "more", "Details");
    more.setAttribute("type", "button");
    more.setAttribute("aria-haspopup", "dialog");
    more.setAttribute("aria-label", `Details: ${name}`);
    more.addEventListener("click", () => open(place));
    const about = make("div", "about", make("h2", "", own(name, name)), ...lines(nft), more);
    return make("li", "card", picture(nft, "lazy"), about);
  }

  // One NFT, large ------------------------------------------------------------------------

  const [dialog, stage, large, about, facts, close] = [
    "dialog", "stage", "large", "about", "facts", "close",
  ].map((id) => document.getElementById(id));
  const turns = [...document.querySelectorAll("button[data-turn]")];
  let opened = 0;
  let chosen = [];
  let page = 0;

  /** Show the NFT at this place among the matches. */
  function open(place) {
    opened = place;
    const nft = chosen[place];
    large.replaceChildren(own(value("name", nft)));
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

  // Filters -------------------------------------------------------------------------------

  const [filter, filters, options, chips, done] = ["filter", "filters", "options", "chips", "done"]
    .map((id) => document.getElementById(id));
  const [few, many] = [8, 60]; // values of a filter: at first, and those that match its search
  const narrow = window.matchMedia("(max-width: 46rem)");

  function toggle(one, place) {
    if (!one.chosen.delete(place)) one.chosen.add(place);
    choose();
    window.scrollTo(0, 0);
  }

  function option(one, place, number) {
    const box = make("input");
    box.setAttribute("type", "checkbox");
    box.checked = one.chosen.has(place);
    box.addEventListener("change", () => toggle(one, place));
    const name = own(one.labels[place], one.titles?.[place]);
    const line = make("label", "option", box, name, make("span", "count", count(number)));
    line.dataset.place = place;
    return line;
  }

  /** Show the values of most rows, or those with the filter's search; chosen ones always. */
  function fill(one) {
    const words = one.find.value.toLowerCase().trim();
    const best = choice.topValues(one, words, words ? many : few);
    const values = one.counts.reduce((sum, number) => sum + (number > 0), 0);
    const shown = [...best, ...[...one.chosen].filter((place) => !best.includes(place))];
    const focused = one.list.contains(document.activeElement)
      && document.activeElement.parentElement.dataset.place;
    one.list.replaceChildren(...shown.map((place) => option(one, place, one.counts[place])));
    one.list.querySelector(`[data-place="${focused}"] input`)?.focus();
    one.find.hidden = !words && values <= few;
    one.find.setAttribute("placeholder", `Search all ${count(values)}`);
  }

  function section(one) {
    const find = make("input");
    find.setAttribute("type", "search");
    find.setAttribute("aria-label", `Search ${one.title}`);
    find.addEventListener("input", () => fill(one));
    const list = make("div", "values");
    const box = make("details", "", make("summary", "", own(one.title)), find, list);
    box.open = Boolean(one.at);
    return Object.assign(one, { section: box, find, list });
  }

  function showFilters() {
    const shown = choice.shownFacets();
    for (const one of choice.facets) one.section.hidden = !shown.includes(one);
    shown.forEach(fill);
  }

  function showChips() {
    const of = choice.facets.flatMap((one) => [...one.chosen].map((place) => [one, place]));
    const clear = make("button", "chip clear", "Clear all");
    clear.addEventListener("click", () => {
      for (const one of choice.facets) one.chosen.clear();
      choose();
      search.focus();
    });
    chips.replaceChildren(...of.map(([one, place]) => {
      const chip = make("button", "chip", own(`${one.title}: ${one.labels[place]}`), " ×");
      chip.setAttribute("aria-label", `Remove ${one.title}: ${one.labels[place]}`);
      chip.addEventListener("click", () => {
        toggle(one, place);
        (chips.querySelector("button") ?? search).focus();
      });
      return chip;
    }), ...(of.length > 1 ? [clear] : []));
    filter.textContent = of.length ? `Filter (${of.length})` : "Filter";
  }

  /** Open or close the filters; on a phone they cover the page. */
  function openFilters(isOpen) {
    filters.hidden = !isOpen;
    filter.setAttribute("aria-expanded", String(isOpen));
    const covers = isOpen && narrow.matches;
    for (const part of document.querySelectorAll("header, .bar, .found")) part.inert = covers;
    document.body.classList.toggle("covered", covers);
    if (isOpen) choose();
    if (covers) done.focus();
  }

  filter.hidden = !choice.facets.length;
  options.append(...choice.facets.map((one) => section(one).section));
  filter.addEventListener("click", () => openFilters(filters.hidden));
  narrow.addEventListener("change", () => openFilters(!filters.hidden && !narrow.matches));
  for (const close of [done, filters]) {
    close.addEventListener(close === done ? "click" : "keydown", (event) => {
      if (close === filters && event.key !== "Escape") return;
      openFilters(false);
      filter.focus();
    });
  }

  // Showing -------------------------------------------------------------------------------

  const [search, sort, turn, grid, status, place, nothing] = [
    "search", "sort", "turn", "grid", "status", "place", "nothing",
  ].map((id) => document.getElementById(id));
  const steps = [...document.querySelectorAll("button[data-step]")];

  function noun(number) {
    return `${columns.wallet ? "holding" : "NFT"}${number === 1 ? "" : "s"}`;
  }

  function pages() {
    return Math.max(1, Math.ceil(chosen.length / size));
  }

  function show() {
    const first = page * size;
    const shown = chosen.slice(first, first + size);
    grid.replaceChildren(...Array.from(shown, (nft, number) => card(nft, first + number)));
    nothing.hidden = shown.length > 0;
    const some = chosen.length < data.count;
    const capped = data.count < data.total;
    const part = some ? `${count(chosen.length)} of ` : "";
    const limited = capped ? `${some ? "the" : "The"} first ${count(data.count)} of ` : "";
    const summary = `${part}${limited}${count(data.total)} ${noun(data.total)}`;
    const range = `${count(first + 1)} to ${count(first + shown.length)} shown`;
    const hidden = data.hidden === 1 ? "1 hidden holding is" : `${count(data.hidden)} hidden holdings are`;
    const left = data.hidden ? `; ${hidden} left out` : "";
    status.textContent = (shown.length ? `${summary}, ${range}` : summary) + left;
    place.textContent = `${count(page + 1)} of ${count(pages())}`;
    for (const button of steps) {
      const back = button.dataset.step === "first" || button.dataset.step === "previous";
      button.disabled = back ? page === 0 : page === pages() - 1;
    }
  }

  function choose() {
    const words = search.value.toLowerCase().split(/\s+/).filter((word) => word);
    const down = turn.getAttribute("aria-pressed") === "true";
    turn.textContent = down ? "↓" : "↑";
    chosen = choice.choose(words, sort.value, down, !filters.hidden);
    page = 0;
    show();
    showChips();
    if (!filters.hidden) showFilters();
    done.textContent = `Show ${count(chosen.length)} ${noun(chosen.length)}`;
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
  if (choice.facets.length && window.matchMedia("(min-width: 80rem)").matches) openFilters(true);
  else choose();
  setTimeout(choice.prepare, 100); // so that the first search is fast
})();
