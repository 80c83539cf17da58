// Kernels and decisions as tables that can be sorted and searched.

/** A table: columns have a title, a value to sort by, and cells. */
function makeTable(holder, columns, rows, options) {
  const state = { column: options.sort, down: true };
  const body = element("tbody", {});
  const heads = columns.map((column, k) => element("th", { scope: "col", class: column.n ? "n" : null, title: column.title, "data-name": column.name }, element("button", { type: "button", onclick: () => {
    state.down = state.column === k ? !state.down : column.n === true;
    state.column = k;
    show();
  } }, column.name)));
  holder.replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, heads)), body));
  function show() {
    heads.forEach((head, k) => { if (k === state.column) head.setAttribute("aria-sort", state.down ? "descending" : "ascending"); else head.removeAttribute("aria-sort"); });
    const key = columns[state.column].key, list = rows().slice();
    const order = (a, b) => { const x = key(a), y = key(b); return typeof x === "string" ? x.localeCompare(y) : x - y; };
    list.sort((a, b) => (state.down ? order(b, a) : order(a, b)));
    body.replaceChildren(...list.slice(0, options.most ? options.most() : list.length).map(row => options.row(row, columns.map(column => element("td", { class: column.n ? "n" : column.wide ? "wide" : null }, column.cell(row))))));
    if (options.shown) options.shown(list.length);
    mark();
  }
  show();
  return show;
}

function startKernels() {
  const rows = ranked.map(own => {
    const first = data.kernels[own.kernels[0]], counted = own.kernels.filter(k => data.kernels[k].inside === undefined);
    const each = counted.length ? own.us / counted.length : spent(first);
    return { own, first, count: own.kernels.length, each, us: own.us };
  });
  const has = data.kernels.some(kernel => kernel.measured_us !== undefined);
  const error = row => (row.first.measured_us === undefined ? 0 : row.first.expected_us / row.each - 1);
  const columns = [
    { name: "kernel", wide: true, key: row => row.first.pattern, cell: row => [element("i", { class: "dotted chip " + row.own.colour }), row.first.pattern, row.first.inside === undefined ? null : element("div", { class: "under" }, "inside of " + row.first.inside)] },
    { name: "kind", key: row => row.first.kind, cell: row => row.first.kind },
    { name: "times", n: true, key: row => row.count, cell: row => String(row.count) },
    { name: has ? "measured each" : "predicted each", n: true, key: row => row.each, cell: row => time(row.each) },
    { name: "share", n: true, key: row => row.us, cell: row => percent(row.us / total) },
    ...(has ? [{ name: "expected", n: true, key: error, title: "expected of all that it does on as many threads as ran, and how far that is from what was measured", cell: row => row.first.measured_us === undefined ? "–" : [time(row.first.expected_us), element("span", { class: "quiet" }, "  " + (error(row) >= 0 ? "+" : "−") + percent(Math.abs(error(row))))] }] : []),
    { name: "traffic", n: true, key: row => row.first.bytes, cell: row => bytes(row.first.bytes) },
    { name: "FLOP/B", n: true, key: row => row.first.flops / Math.max(row.first.bytes, 1), cell: row => digits(row.first.flops / Math.max(row.first.bytes, 1)) },
    { name: "GB/s", n: true, key: row => row.first.bytes / row.each, cell: row => digits(row.first.bytes / row.each / 1e3) },
    { name: "GFLOP/s", n: true, key: row => row.first.flops / row.each, cell: row => digits(row.first.flops / row.each / 1e3) },
    { name: "bound by", key: row => row.first.bound, cell: row => row.first.bound },
  ];
  makeTable(find("kernel-table"), columns, () => rows, { sort: 4, row: (row, cells) => element("tr", { "data-class": row.own.number, tabindex: 0, onclick: () => select({ kernel: row.own.kernels[0] }), onkeydown: pressed(() => select({ kernel: row.own.kernels[0] })) }, cells) });
  let lead = plural(data.kernels.length, "kernel") + ", " + classes.size + " of them different. Equal kernels share their code; a row opens it.";
  const off = data.measured && data.measured.fused.median_error;
  if (typeof off === "number") lead += " What is expected of those that take 20 µs or longer (where none does, of all) is off by " + percent(off) + " in the median.";
  find("kernels-lead").textContent = lead + (data.prepared ? " Besides them, " + plural(data.prepared, "kernel") + (data.prepared === 1 ? " prepares" : " prepare") + " constants once." : "");
}
const pressed = act => event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } };

const wanted = { text: "", which: "all", most: 120, alike: true };
let showDecisions = () => {};
/** Decisions that differ in nothing but the layer they are in are one. */
function grouped() {
  const groups = new Map();
  data.decisions.forEach((decision, number) => {
    const plain = name => name.replace(/[0-9]+/g, "#");
    const key = wanted.alike ? JSON.stringify([decision.rule, decision.taken, decision.reason, plain(decision.from), plain(decision.to)]) : number;
    const group = groups.get(key);
    if (group) group.all.push(number); else groups.set(key, { decision, all: [number] });
  });
  return [...groups.values()];
}
function startDecisions() {
  const isWanted = {
    all: () => true, taken: d => d.taken, refused: d => !d.taken, between: d => !d.inside, "≠": d => d.disagrees, rewrites: d => d.rewrite,
  };
  const counts = name => data.decisions.filter(isWanted[name]).length;
  const titles = { all: "all", taken: "taken", refused: "refused", between: "between operators", "≠": "≠ textbook", rewrites: "rewrites" };
  find("which").append(...Object.keys(isWanted).filter(name => name === "all" || counts(name) > 0).map(name => element("button", { type: "button", "aria-pressed": String(name === wanted.which), onclick: event => {
    wanted.which = name;
    [...find("which").children].forEach(other => other.setAttribute("aria-pressed", String(other === event.currentTarget)));
    refresh();
  } }, titles[name] + " ", element("small", {}, String(counts(name))))));
  let groups = grouped();
  const text = d => [d.id, d.rule, d.from, d.to, d.reason, d.code, d.taken ? "taken" : "refused", ...d.kernels.filter(k => k !== null).map(k => data.kernels[k].pattern)].join(" ").toLowerCase();
  const haystack = data.decisions.map(text);
  const rows = () => {
    const words = wanted.text.toLowerCase().split(/\s+/).filter(Boolean);
    return groups.filter(group => isWanted[wanted.which](group.decision) && group.all.some(number => words.every(word => haystack[number].includes(word))));
  };
  const columns = [
    { name: "decision", key: g => (g.decision.taken ? 1 : 0), cell: g => [element("span", { class: g.decision.taken ? "pill yes" : "pill no" }, g.decision.taken ? "taken" : "refused"), g.all.length > 1 ? " × " + g.all.length : null] },
    { name: "saves", n: true, title: "microseconds that it saves, or would save", key: g => Math.abs(g.decision.us), cell: g => g.decision.unpriced ? "–" : element("span", { class: g.decision.us > 0 ? "good" : g.decision.us < 0 ? "bad" : null }, (g.decision.us > 0 ? "+" : g.decision.us < 0 ? "−" : "") + time(Math.abs(g.decision.us))) },
    { name: "traffic", n: true, key: g => g.decision.bytes, cell: g => g.decision.unpriced && !g.decision.bytes ? "–" : bytes(g.decision.bytes) },
    { name: "score", n: true, title: "what textbooks would give it; ≠ where that says otherwise", key: g => (g.decision.score === undefined ? -1 : g.decision.score), cell: g => g.decision.score === undefined ? "–" : digits(g.decision.score) + (g.decision.disagrees ? " ≠" : "") },
    { name: "rule", key: g => g.decision.rule, cell: g => g.decision.rule },
    { name: "between", wide: true, key: g => g.decision.from, cell: g => [g.decision.from + " → " + g.decision.to, element("div", { class: "under" }, g.decision.reason)] },
  ];
  showDecisions = makeTable(find("decision-table"), columns, rows, {
    sort: 1, most: () => wanted.most,
    row: (group, cells) => element("tr", { "data-decisions": " " + group.all.join(" ") + " ", tabindex: 0, onclick: () => select({ decision: group.all[0] }), onkeydown: pressed(() => select({ decision: group.all[0] })) }, cells),
    shown: count => {
      find("found").textContent = count === groups.length ? plural(count, "row") : count + " of " + plural(groups.length, "row");
      find("more").hidden = count <= wanted.most;
      find("rest").textContent = count > wanted.most ? "These are the first " + wanted.most + " of " + count + " rows, in the order that was chosen on the screen." : "";
    },
  });
  const refresh = () => { wanted.most = 120; showDecisions(); };
  find("search").addEventListener("input", event => { wanted.text = event.target.value; refresh(); });
  find("alike").addEventListener("change", event => { wanted.alike = event.target.checked; groups = grouped(); refresh(); });
  find("more").addEventListener("click", () => { wanted.most += 400; showDecisions(); });
  const taken = data.decisions.filter(d => d.taken).length, other = data.decisions.filter(d => d.disagrees).length;
  find("decisions-lead").textContent = "Every way to combine two kernels that was looked at: " + taken + " taken, " + (data.decisions.length - taken) + " refused. Microseconds decide; the score is what textbooks would give" + (other ? ", and says otherwise in " + other + " (≠)." : ".");
}
