"use strict";

/** The rows of a gallery's data as searched, filtered and sorted; touches no element. */
function makeChoice({ count, columns, traits }) {
  const most = 12; // trait types among the filters

  /** A row's value in a column, or null. A column has distinct values and an index per row. */
  function value(name, row) {
    const column = columns[name];
    return column ? column.of[column.at[row]] : null;
  }

  const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

  // Searching -----------------------------------------------------------------------------

  const searched = [
    "name", "creator", "collection", "label", "group", "database", "chain", "contract", "wallet", "token",
  ].filter((name) => columns[name]);
  const ids = new Set(["contract", "wallet", "token"]); // any short word is in most of them
  const texts = new Map();

  /** A column's distinct values in one text, and where each value starts. */
  function joined(name) {
    if (!texts.has(name)) {
      const lower = columns[name].of.map((text) => (text ?? "").toLowerCase());
      const starts = new Uint32Array(lower.length + 1);
      lower.forEach((text, at) => { starts[at + 1] = starts[at] + text.length + 1; });
      texts.set(name, [lower.join("\n"), starts]);
    }
    return texts.get(name);
  }

  /** Unmark the rows without this word in any searched column. */
  function keep(rows, word) {
    const matches = new Uint8Array(count);
    for (const name of searched) {
      if (word.length < 3 && ids.has(name)) continue;
      const [text, starts] = joined(name);
      const hits = new Uint8Array(starts.length);
      let value = 0;
      let place = text.indexOf(word);
      if (place < 0) continue;
      for (; place >= 0; place = text.indexOf(word, starts[value])) {
        while (starts[value + 1] <= place) value += 1;
        hits[value] = 1;
        value += 1;
        if (value >= starts.length - 1) break;
      }
      const { at } = columns[name];
      for (let row = 0; row < count; row += 1) matches[row] |= hits[at[row]];
    }
    for (let row = 0; row < count; row += 1) rows[row] &= matches[row];
  }

  // Filtering -----------------------------------------------------------------------------

  /** A filter: rows with one id have one value, which shows the id only beside an equal name. */
  function facet(title, idColumn, nameColumn, short) {
    const [ids, names] = [columns[idColumn], columns[nameColumn]];
    const [left, right] = [ids ?? names, names ?? ids];
    if (!left) return [];
    const at = new Int32Array(count);
    const [values, byKey, same] = [[], new Map(), new Map()];
    const add = (id, name) => {
      const key = id?.startsWith("0x") ? id.toLowerCase() : id ?? name;
      if (key === null) return -1;
      const known = byKey.get(key);
      if (known !== undefined) return known;
      same.set(name, (same.get(name) ?? 0) + 1);
      byKey.set(key, values.length);
      return values.push([name, id]) - 1;
    };
    // Almost always, an id has one name.
    const lastName = new Int32Array(left.of.length).fill(-1);
    const lastValue = new Int32Array(left.of.length);
    for (let row = 0; row < count; row += 1) {
      const [id, name] = [left.at[row], right.at[row]];
      if (lastName[id] !== name) {
        lastName[id] = name;
        lastValue[id] = add(ids ? ids.of[id] : null, names ? names.of[name] : null);
      }
      at[row] = lastValue[id];
    }
    const labels = values.map(([label, id]) => (
      same.get(label) > 1 && id !== null ? `${label} (${short(id)})` : label));
    const divides = labels.length > 1 || (labels.length && at.includes(-1));
    return divides ? [{ title, labels, at, titles: values.map(([, id]) => id) }] : [];
  }

  const ends = (head) => (text) => (
    text.length > 20 ? `${text.slice(0, head)}…${text.slice(-4)}` : text);
  const facets = [
    ...facet("Database", "", "database", ends(8)),
    ...facet("Collection", "contract", "collection", ends(6)),
    ...facet("Group", "", "group", ends(8)),
    ...facet("Wallet", "wallet", "label", ends(8)),
  ];
  const types = new Map();
  traits?.of.forEach(([type, label], trait) => {
    if (!types.has(type)) types.set(type, { title: type, labels: [], traits: [] });
    types.get(type).labels.push(label);
    types.get(type).traits.push(trait);
  });
  facets.push(...[...types.values()].sort((a, b) => collator.compare(a.title, b.title)));
  for (const one of facets) Object.assign(one, { chosen: new Set(), counts: [] });

  /** Whether each value of a facet's column, or each set of traits, is chosen. */
  function accepted(one) {
    if (one.at) return Uint8Array.from(one.labels, (_, value) => one.chosen.has(value));
    const wanted = new Set([...one.chosen].map((value) => one.traits[value]));
    return Uint8Array.from(traits.sets.of, (set) => set.some((trait) => wanted.has(trait)));
  }

  /** Count each facet's values over the rows that all other facets accept. */
  function countValues(rows, failures, failed) {
    const tally = (size, at, number) => {
      const counts = new Uint32Array(size);
      for (let row = 0; row < count; row += 1) {
        if (!rows[row] || at[row] < 0) continue;
        if (!failures[row] || (failures[row] === 1 && failed[row] === number)) counts[at[row]] += 1;
      }
      return counts;
    };
    const spread = (number) => {
      const counts = new Uint32Array(traits.of.length);
      tally(traits.sets.of.length, traits.sets.at, number).forEach((held, set) => {
        if (held) for (const trait of traits.sets.of[set]) counts[trait] += held;
      });
      return counts;
    };
    const all = traits ? spread(-1) : null;
    facets.forEach((one, number) => {
      if (one.at) one.counts = tally(one.labels.length, one.at, number);
      else {
        const counts = one.chosen.size ? spread(number) : all;
        one.counts = one.traits.map((trait) => counts[trait]);
      }
    });
  }

  // Sorting -------------------------------------------------------------------------------

  /** Compare numbers of any length, written as texts. */
  function compareNumbers(a, b) {
    const left = a.replace(/^0+(?=.)/, "");
    const right = b.replace(/^0+(?=.)/, "");
    if (left.length !== right.length) return left.length - right.length;
    return left < right ? -1 : left > right ? 1 : 0;
  }

  const isNumber = (text) => text !== null && /^[0-9]+$/.test(text);
  const text = (name) => (row) => value(name, row);
  const number = (name) => (row) => (isNumber(value(name, row)) ? value(name, row) : null);
  const sorts = {
    name: [text("name"), collator.compare],
    collection: [text("collection"), collator.compare],
    wallet: [text("label"), collator.compare],
    edition: [number("edition"), compareNumbers],
    amount: [number("amount"), compareNumbers],
    held: [text("held"), (a, b) => (a < b ? -1 : a > b ? 1 : 0)],
  };

  /** The rank of each row's value; rows without a value come last in both directions. */
  function ranked(by) {
    const [key, compare] = sorts[by];
    const keys = Array.from({ length: count }, (_, row) => key(row));
    const distinct = [...new Set(keys)].filter((one) => one !== null).sort(compare);
    const places = new Map();
    let rank = 0;
    distinct.forEach((one, at) => {
      if (at && compare(distinct[at - 1], one)) rank += 1;
      places.set(one, rank);
    });
    return Int32Array.from(keys, (one) => (one === null ? -1 : places.get(one)));
  }

  const orders = new Map();

  /** All rows in this order. */
  function ordered(by, down) {
    const name = `${by} ${down}`;
    if (!orders.has(name)) {
      const rows = Uint32Array.from({ length: count }, (_, row) => row);
      if (!sorts[by]) orders.set(name, down ? rows.reverse() : rows);
      else {
        const ranks = ranked(by);
        orders.set(name, rows.sort((a, b) => {
          const [left, right] = [ranks[a], ranks[b]];
          if (left < 0 || right < 0) return (left < 0) - (right < 0) || a - b;
          return (down ? right - left : left - right) || a - b;
        }));
      }
    }
    return orders.get(name);
  }

  /** The rows with all words that every facet accepts, in order; `counted` counts the facets. */
  function choose(words, by, down, counted) {
    const rows = new Uint8Array(count).fill(1);
    for (const word of words) keep(rows, word);
    const failures = new Uint8Array(count);
    const failed = new Int16Array(count);
    facets.forEach((one, place) => {
      if (!one.chosen.size) return;
      const flags = accepted(one);
      const at = one.at ?? traits.sets.at;
      for (let row = 0; row < count; row += 1) {
        if (!flags[at[row]]) {
          failures[row] = Math.min(2, failures[row] + 1);
          failed[row] = place;
        }
      }
    });
    if (counted) countValues(rows, failures, failed);
    return ordered(by, down).filter((row) => rows[row] && !failures[row]);
  }

  /** The values of most rows whose label or id has this text, at most so many. */
  function topValues({ labels, counts, titles }, words, size) {
    const before = (a, b) => counts[a] > counts[b] || (counts[a] === counts[b]
      && labels.length < 1000 && collator.compare(labels[a], labels[b]) < 0);
    const top = [];
    for (let value = 0; value < labels.length; value += 1) {
      if (!counts[value] || (top.length === size && !before(value, top[size - 1]))) continue;
      const name = words && `${labels[value]} ${titles?.[value] ?? ""}`.toLowerCase();
      if (words && !name.includes(words)) continue;
      let place = Math.min(top.length, size - 1);
      for (; place > 0 && before(value, top[place - 1]); place -= 1) top[place] = top[place - 1];
      top[place] = value;
    }
    return top;
  }

  /** The facets to show: of columns, and the trait types of most rows. */
  function shownFacets() {
    const rowsOf = (one) => one.counts.reduce((sum, number) => sum + number, 0);
    const ofTraits = facets.filter((one) => !one.at).map((one) => [one, rowsOf(one)]);
    const common = ofTraits.filter(([, rows]) => rows).sort((a, b) => b[1] - a[1]).slice(0, most);
    const kept = new Set(common.map(([one]) => one));
    return facets.filter((one) => one.at || one.chosen.size || kept.has(one));
  }

  const prepare = () => searched.forEach(joined);
  return { value, choose, facets, shownFacets, topValues, prepare };
}
