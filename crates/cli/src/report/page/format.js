"use strict";
// Everything on this page comes from one JSON element. Names are the model's own: they become text, never markup.
const data = JSON.parse(document.getElementById("data").textContent);
const find = id => document.getElementById(id);

/** An HTML element with attributes and children; children that are strings become text. */
function element(tag, attributes, ...children) { return build(document.createElement(tag), attributes, children); }
/** The same for SVG. */
function drawn(tag, attributes, ...children) { return build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children); }
function build(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
  return made;
}

/** Three digits that count. */
function digits(x) {
  const a = Math.abs(x);
  if (!isFinite(x)) return "–";
  if (a >= 99.95) return x.toFixed(0);
  if (a >= 9.995) return x.toFixed(1);
  return x.toFixed(2);
}
function scaled(x, unit, step = 1000, names = ["", "k", "M", "G", "T", "P"]) {
  let n = 0;
  while (Math.abs(x) >= step * 0.9995 && n + 1 < names.length) { x /= step; n++; }
  return (n === 0 && Number.isInteger(x) ? String(x) : digits(x)) + " " + names[n] + unit;
}
const bytes = x => scaled(x, "B");
const flops = x => scaled(x, "FLOP");
function time(us) {
  if (us === null || us === undefined || !isFinite(us)) return "–";
  if (us >= 1e6) return digits(us / 1e6) + " s";
  if (us >= 1e3) return digits(us / 1e3) + " ms";
  return digits(us) + " µs";
}
const percent = x => (isFinite(x) ? (100 * x).toFixed(Math.abs(x) < 0.0995 ? 1 : 0) + " %" : "–");
const cut = (text, most) => ([...text].length > most ? [...text].slice(0, Math.max(1, most - 1)).join("") + "…" : text);
const pen = document.createElement("canvas").getContext("2d");
/** How wide a text is in the letters of the page, of this size. */
function widthOf(text, size) {
  pen.font = size + "px " + getComputedStyle(document.body).fontFamily;
  return pen.measureText(text).width;
}
/** As much of a text as there is room for. */
function fitted(text, room, size) {
  if (widthOf(text, size) <= room) return text;
  const letters = [...text], part = count => letters.slice(0, count).join("").trimEnd() + "…";
  let low = 1, high = letters.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (widthOf(part(middle), size) <= room) low = middle; else high = middle - 1;
  }
  return part(low);
}
const plural = (n, word) => n + " " + word + (n === 1 ? "" : "s");
const sum = list => list.reduce((a, b) => a + b, 0);

// Kernels by what they cost: the same kernel has the same colour everywhere, and the dearest have the first colours.
const spent = kernel => (kernel.measured_us === undefined ? kernel.us : kernel.measured_us);
const outer = data.kernels.filter(kernel => kernel.inside === undefined);
const total = sum(outer.map(spent));
const classes = new Map();
data.kernels.forEach((kernel, number) => {
  const own = classes.get(kernel.class) || { number: kernel.class, kernels: [], us: 0 };
  own.kernels.push(number);
  if (kernel.inside === undefined) own.us += spent(kernel);
  classes.set(kernel.class, own);
});
const ranked = [...classes.values()].sort((a, b) => b.us - a.us || a.number - b.number);
ranked.forEach((own, rank) => { own.colour = "c" + (rank < 12 ? rank : 12 + rank % 12); });
const colour = kernel => classes.get(data.kernels[kernel].class).colour;

// Which kernels an operator went into.
const homes = data.operators.map(() => []);
data.kernels.forEach((kernel, number) => kernel.operators.forEach(operator => homes[operator].push(number)));
const operatorByName = new Map();
data.operators.forEach((operator, number) => { if (!operatorByName.has(operator.name)) operatorByName.set(operator.name, number); });
/** The fused kernel that an unfused one went into. */
function homeOf(unfused) {
  for (const name of unfused.operators) {
    const number = operatorByName.get(name);
    if (number !== undefined && homes[number].length) return homes[number][0];
  }
  return null;
}

// A small text beside the pointer.
const tip = find("tip");
document.addEventListener("pointermove", event => {
  const owner = event.target.closest && event.target.closest("[data-tip]");
  if (!owner) { tip.hidden = true; return; }
  tip.textContent = owner.dataset.tip;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(6, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
});
document.addEventListener("pointerleave", () => { tip.hidden = true; });
