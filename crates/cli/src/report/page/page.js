// What is chosen, its details, and the frame around everything.
let chosen = {};
function select(what) {
  chosen = what;
  showDrawer();
  mark();
}
/** Marks what is chosen wherever it is shown. */
function mark() {
  const decision = chosen.decision === undefined ? null : data.decisions[chosen.decision];
  const kernels = new Set(chosen.kernel !== undefined ? [chosen.kernel] : chosen.operator !== undefined ? homes[chosen.operator] : decision ? decision.kernels.filter(k => k !== null) : []);
  const operators = new Set(chosen.operator !== undefined ? [chosen.operator] : decision ? decision.operators.filter(k => k !== null) : []);
  for (const box of graph.boxes) {
    if (!box.group) continue;
    const on = box.kind === "kernel" ? kernels.has(box.number) : box.kind === "operator" ? operators.has(box.number) || (chosen.kernel !== undefined && homes[box.number].includes(chosen.kernel)) : false;
    box.group.classList.toggle("on", on);
    box.group.classList.toggle("at", box.id === graph.at);
  }
  for (const wire of graph.wires || []) {
    const ends = [graph.boxes[wire.from], graph.boxes[wire.to]];
    const on = decision ? ends.every(end => end.group.classList.contains("on")) : ends.some(end => end.group.classList.contains("on"));
    wire.element.classList.toggle("on", on);
  }
  document.querySelectorAll("[data-kernel]").forEach(shown => shown.classList.toggle("on", kernels.has(Number(shown.dataset.kernel))));
  document.querySelectorAll("[data-home]").forEach(shown => shown.classList.toggle("on", kernels.has(Number(shown.dataset.home))));
  const numbers = new Set([...kernels].map(kernel => String(data.kernels[kernel].class)));
  document.querySelectorAll("[data-class]").forEach(row => row.classList.toggle("on", numbers.has(row.dataset.class)));
  document.querySelectorAll("[data-decisions]").forEach(row => row.classList.toggle("on", chosen.decision !== undefined && row.dataset.decisions.includes(" " + chosen.decision + " ")));
}

let before = null;
function showDrawer() {
  const drawer = find("drawer");
  if (drawer.hidden) before = document.activeElement;
  const parts = chosen.kernel !== undefined ? kernelDetails(chosen.kernel) : chosen.operator !== undefined ? operatorDetails(chosen.operator) : decisionDetails(chosen.decision);
  drawer.replaceChildren(element("button", { type: "button", class: "close", onclick: closeDrawer, "aria-label": "Close (Esc)", title: "Close (Esc)" }, "✕"), ...parts);
  drawer.hidden = false;
  document.body.classList.add("aside");
  drawer.scrollTop = 0;
}
function closeDrawer() {
  find("drawer").hidden = true;
  document.body.classList.remove("aside");
  chosen = {};
  mark();
  if (before && before.isConnected) before.focus({ preventScroll: true });
}
const terms = pairs => element("dl", {}, pairs.filter(pair => pair).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
const jump = (words, act) => element("button", { type: "button", onclick: act }, words);
const listed = items => element("ul", {}, items.map(item => element("li", {}, item)));

function kernelDetails(number) {
  const kernel = data.kernels[number], own = classes.get(kernel.class), us = spent(kernel);
  const about = data.decisions.map((decision, k) => [decision, k]).filter(([decision]) => decision.kernels.includes(number));
  const outside = about.filter(([decision]) => !decision.inside);
  const source = data.sources.list[kernel.class];
  return [
    element("h2", {}, kernel.pattern),
    element("p", { class: "quiet" }, element("i", { class: "dotted chip " + own.colour }), kernel.name + (own.kernels.length > 1 ? " · one of " + own.kernels.length + " equal ones" : "") + (kernel.inside === undefined ? "" : " · inside of " + kernel.inside)),
    terms([
      ["kind", kernel.kind],
      kernel.measured_us === undefined ? null : ["measured", time(kernel.measured_us) + " · " + percent(us / total) + " of the run"],
      kernel.expected_us === undefined ? null : ["expected", time(kernel.expected_us) + " of all that it does on " + plural(data.measured.threads, "thread")],
      [kernel.measured_us === undefined ? "predicted" : "price in the plan", time(kernel.us) + (kernel.measured_us === undefined ? " · " + percent(us / total) + " of the run" : "")],
      ["bound by", kernel.bound],
      ["traffic", bytes(kernel.bytes) + " · " + digits(kernel.bytes / us / 1e3) + " GB/s"],
      ["work", flops(kernel.flops) + " · " + digits(kernel.flops / us / 1e3) + " GFLOP/s"],
      ["intensity", kernel.bytes > 0 ? digits(kernel.flops / kernel.bytes) + " FLOP/byte" : "–"],
      kernel.score === undefined ? null : ["textbook score", digits(kernel.score)],
    ]),
    element("p", {}, jump("Show in the graph", () => { if (window.innerWidth < 1000) closeDrawer(); showInGraph({ kernel: number }); })),
    element("h3", {}, plural(kernel.operators.length, "operator") + " of the model"),
    listed(kernel.operators.slice(0, 40).map(k => jump(data.operators[k].op + "  " + data.operators[k].name, () => select({ operator: k }))).concat(kernel.operators.length > 40 ? ["and " + (kernel.operators.length - 40) + " more"] : [])),
    ...decisionsAbout(outside, 12),
    ...(source ? sourceDetails(source) : []),
  ];
}
function sourceDetails(source) {
  const shown = element("pre", { tabindex: 0 }), forms = [["tile", source.tile], [data.sources.form, source.code]].filter(([name, text], k) => text && (k === 0 || name !== "tile"));
  const buttons = forms.map(([name, text], k) => element("button", { type: "button", "aria-pressed": String(k === 0), onclick: event => {
    [...event.target.parentNode.children].forEach(other => other.setAttribute("aria-pressed", String(other === event.target)));
    shown.textContent = text;
  } }, name));
  shown.textContent = forms.length ? forms[0][1] : "";
  const copied = element("button", { type: "button", onclick: event => { copy(shown.textContent, event.target); } }, "Copy");
  return [element("h3", {}, "Source"), element("div", { class: "bar" }, element("div", { class: "choice", role: "group", "aria-label": "Form" }, buttons), element("span", { class: "spring" }), copied), shown];
}
function copy(text, button) {
  const said = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1200); };
  if (navigator.clipboard && window.isSecureContext) { navigator.clipboard.writeText(text).then(said, () => {}); return; }
  const area = element("textarea", {});
  area.value = text;
  document.body.append(area);
  area.select();
  if (document.execCommand("copy")) said();
  area.remove();
}
function operatorDetails(number) {
  const operator = data.operators[number];
  const about = data.decisions.map((decision, k) => [decision, k]).filter(([decision]) => decision.operators.includes(number));
  return [
    element("h2", {}, operator.op),
    element("p", { class: "quiet" }, operator.name),
    element("p", {}, jump("Show in the graph", () => { if (window.innerWidth < 1000) closeDrawer(); showInGraph({ operator: number }); })),
    element("h3", {}, homes[number].length ? "Became part of" : "In no kernel"),
    homes[number].length ? listed(homes[number].map(k => jump(data.kernels[k].pattern + "  " + data.kernels[k].name, () => select({ kernel: k })))) : element("p", { class: "quiet" }, "It is a view, a constant, or shape arithmetic, and was done while compiling or goes into the addresses of others."),
    ...decisionsAbout(about, 20),
  ];
}
// Some decisions with rule and price, those that read alike once.
function decisionsAbout(about, most) {
  const groups = new Map();
  for (const [decision, k] of about) {
    const price = decision.unpriced ? "" : "  " + (decision.us < 0 ? "−" : "+") + time(Math.abs(decision.us));
    const text = (decision.taken ? "✓ " : "✕ ") + decision.from + " → " + decision.to + "  " + decision.rule + price;
    const known = groups.get(text);
    if (known) known.count += 1; else groups.set(text, { k, count: 1, reason: decision.reason });
  }
  const rows = [...groups].slice(0, most).map(([text, { k, count, reason }]) => {
    const row = jump(text + (count > 1 ? "  × " + count : ""), () => select({ decision: k }));
    row.title = reason;
    return row;
  });
  return rows.length ? [element("h3", {}, "Decisions about it"), listed(rows)] : [];
}

function decisionDetails(number) {
  const decision = data.decisions[number], command = "fuseline explain " + quoted(data.model) + " --flip " + decision.id;
  const places = [...new Set(decision.kernels.filter(k => k !== null))];
  return [
    element("h2", {}, decision.from + " → " + decision.to),
    element("p", {}, element("span", { class: decision.taken ? "pill yes" : "pill no" }, decision.taken ? "taken" : "refused"), " " + decision.reason),
    terms([
      ["rule", decision.rule + (decision.rewrite ? " (a rewrite)" : "")],
      decision.unpriced ? null : [decision.taken ? "saves" : decision.us >= 0 ? "would save" : "would cost", time(Math.abs(decision.us))],
      decision.unpriced ? null : ["traffic saved", bytes(decision.bytes)],
      decision.score === undefined ? null : ["textbook score", digits(decision.score) + (decision.disagrees ? " ≠ says the opposite" : "")],
      ["code", decision.code],
      ["id", element("code", {}, decision.id)],
    ]),
    ...(places.length ? [element("h3", {}, decision.taken ? "Its kernel" : "Where"), listed(places.map(k => jump(data.kernels[k].pattern + "  " + data.kernels[k].name, () => { select({ decision: number }); if (window.innerWidth < 1000) closeDrawer(); showInGraph({ kernel: k }); })))] : []),
    ...(decision.operators.some(k => k !== null) ? [element("h3", {}, "Operators"), listed([...new Set(decision.operators.filter(k => k !== null))].map(k => jump(data.operators[k].op + "  " + data.operators[k].name, () => select({ operator: k }))))] : []),
    element("h3", {}, "What would the other way cost?"),
    element("pre", { class: "line" }, command),
  ];
}
const quoted = name => (/^[\w@%+=:,./-]+$/.test(name) ? name : "'" + name.replace(/'/g, "'\\''") + "'");

function startHead() {
  const parts = data.model.split(/[\\/]/), short = parts[parts.length - 1];
  if (short && short !== data.model) { find("model").textContent = short; find("path").textContent = data.model; }
  const sizes = Object.entries(data.sizes).map(([name, size]) => name + "=" + size).join(", ");
  find("about").textContent = ["on " + data.target.name + ", " + data.target.doc, sizes, data.numerics === "default" ? "" : data.numerics + " numerics", data.precision === "f32" ? "" : "products in " + data.precision].filter(Boolean).join(" · ");
  const { fused, unfused: apart } = data.predicted;
  const cards = [];
  const card = (title, big, below, was, now, format) => {
    const most = Math.max(was, now, 1e-12);
    const row = (value, name) => { const barElement = element("i", { class: name }); barElement.style.width = 100 * value / most + "%"; return [barElement, element("span", {}, format(value))]; };
    cards.push(element("div", { class: "number" }, element("h3", {}, title), element("strong", {}, big), element("p", {}, below), element("div", { class: "pair" }, row(was, "was"), row(now, "now"))));
  };
  const ratio = (was, now) => (now > 0 ? was / now : 1);
  const isNothing = fused.kernels === 0 && apart.kernels === 0;
  if (isNothing) cards.push(element("div", { class: "number" }, element("h3", {}, "Nothing is computed"), element("p", {}, "Outputs are inputs or constants: there is no kernel, and nothing to measure.")));
  else if (measured) card("Speed", digits(ratio(measured.unfused.median_us, measured.fused.median_us)) + " ×", "measured, median of " + plural(measured.fused.runs, "run") + ", beside one kernel per node", measured.unfused.median_us, measured.fused.median_us, time);
  else card("Speed", digits(ratio(apart.us, fused.us)) + " ×", "predicted, beside one kernel per node", apart.us, fused.us, time);
  if (!isNothing) card("Kernels", fused.kernels + " of " + apart.kernels, "are left of one per node", apart.kernels, fused.kernels, String);
  if (!isNothing) card("Memory traffic", apart.bytes > 0 ? percent(1 - fused.bytes / apart.bytes) + " less" : "0 B", "bytes read and written by kernels", apart.bytes, fused.bytes, bytes);
  if (!isNothing && data.unfused && data.unfused.memory) card("Memory between kernels", data.unfused.memory.arena > 0 ? percent(1 - data.memory.arena / data.unfused.memory.arena) + " less" : "none", "for values that kernels hand on", data.unfused.memory.arena, data.memory.arena, bytes);
  find("numbers").append(...cards);
  // A sentence, as all of the page: the note begins as a part of one.
  if (data.load) find("numbers").after(element("p", { class: "quiet", id: "load" }, data.load.note[0].toUpperCase() + data.load.note.slice(1) + "."));
  const repeats = data.graph.folds.map(fold => "a layer of " + plural(fold.first.length, "kernel") + " repeats " + fold.count + " times").join("; ");
  if (isNothing && !data.operators.length) { find("graph-lead").textContent = "There is no operator: nothing to draw."; find("canvas").hidden = true; }
  else find("graph-lead").textContent = plural(data.operators.length, "operator") + " become " + plural(fused.kernels, "kernel") + ". Equal kernels have the same colour." + (repeats ? " Drawn once: " + repeats + "." : "");
  find("foot").textContent = "Made by fuseline " + data.version + " on " + new Date(data.made * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC. This file needs no network.";
}
function startFrame() {
  const keys = [["/", "search decisions"], ["t", "light or dark"], ["Esc", "close the details"], ["arrows", "move between boxes of the graph (with Shift: move the view)"], ["Enter", "show the box, row or dot"], ["o", "open or close a kernel in the graph"], ["b", "before or after"], ["+ − 0", "larger, smaller, fit"], ["?", "these keys"]];
  const dialog = find("keys");
  dialog.append(element("h2", {}, "Keys"), element("dl", {}, keys.flatMap(([key, what]) => [element("dt", {}, key), element("dd", {}, what)])), element("button", { type: "button", onclick: () => dialog.close() }, "Close"));
  find("help").addEventListener("click", () => dialog.showModal());
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const turn = () => {
    const now = document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  };
  find("theme").addEventListener("click", turn);
  document.addEventListener("keydown", event => {
    const typing = event.target.matches && event.target.matches("input, textarea, select");
    if (event.key === "Escape") { if (!find("drawer").hidden) closeDrawer(); else if (typing) event.target.blur(); return; }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); find("search").focus(); }
    else if (event.key === "t") turn();
    else if (event.key === "?") dialog.showModal();
  });
  const links = [...document.querySelectorAll(".nav a")];
  const seen = new IntersectionObserver(entries => entries.forEach(entry => { if (entry.isIntersecting) links.forEach(link => link.classList.toggle("here", link.getAttribute("href") === "#" + entry.target.id)); }), { rootMargin: "-20% 0px -70% 0px" });
  document.querySelectorAll("main section").forEach(section => seen.observe(section));
}
startHead();
startFrame();
startRoofline();
startKernels();
startDecisions();
startTimeline();
drawMemory();
startGraph();
