// The graph: boxes in layers, kernels that open, a view that can be moved.
const graph = { mode: "after", folded: true, open: new Set(), boxes: [], view: null, at: null };
const HEIGHT = { operator: 26, kernel: 46, input: 26, output: 26, fold: 46 };
const ROW = 34, INNER_ROW = 20, INNER = 22;

function drawing() {
  const name = graph.mode + (graph.folded && data.graph[graph.mode + "_folded"] ? "_folded" : "");
  return data.graph[name];
}
function isOpen(kind, number) { return kind === "kernel" && graph.open.has(number); }
function innerSize(number) {
  const inner = data.kernels[number].graph;
  return [inner.width + 28, 46 + inner.layers * (INNER + INNER_ROW) - INNER_ROW + 16];
}

/** Places everything: rows from top to bottom, as high as their highest box; open boxes push their neighbours aside. */
function arrange(source) {
  const rows = Array.from({ length: source.layers }, () => []);
  const boxes = source.boxes.map(([kind, number, width, layer, x], id) => {
    const open = isOpen(kind, number);
    const [w, h] = open ? innerSize(number) : [width, HEIGHT[kind]];
    const box = { id, kind, number, layer, x, w: Math.max(w, width), h, open };
    rows[layer].push(box);
    return box;
  });
  const wires = source.edges.map(([from, to, size, points]) => {
    const path = [];
    for (let k = 0; k < points.length; k += 2) {
      const point = { layer: points[k], x: points[k + 1], w: 10, h: 0 };
      rows[points[k]].push(point);
      path.push(point);
    }
    return { from, to, size, path };
  });
  let y = 20;
  for (const row of rows) {
    row.sort((a, b) => a.x - b.x);
    if (row.some(item => item.open)) {
      const middle = sum(row.map(item => item.x)) / row.length;
      for (let k = 1; k < row.length; k++) row[k].x = Math.max(row[k].x, row[k - 1].x + (row[k - 1].w + row[k].w) / 2 + 16);
      const moved = sum(row.map(item => item.x)) / row.length - middle;
      row.forEach(item => { item.x -= moved; });
    }
    const high = Math.max(...row.map(item => item.h), 0);
    row.forEach(item => { item.top = y; item.bottom = y + high; item.y = y + (high - item.h) / 2; });
    y += high + ROW;
  }
  const left = Math.min(...boxes.map(box => box.x - box.w / 2), 0), right = Math.max(...boxes.map(box => box.x + box.w / 2), 1);
  return { boxes, wires, rows, bounds: [left - 20, 0, right - left + 40, y - ROW + 20] };
}

function curve(points) {
  let path = "M" + points[0].map(Math.round).join(" ");
  for (let k = 1; k < points.length; k++) {
    const [x1, y1] = points[k - 1], [x2, y2] = points[k], half = (y2 - y1) / 2;
    path += x1 === x2 ? ` L${Math.round(x2)} ${Math.round(y2)}` : ` C${Math.round(x1)} ${Math.round(y1 + half)} ${Math.round(x2)} ${Math.round(y2 - half)} ${Math.round(x2)} ${Math.round(y2)}`;
  }
  return path;
}
function wirePath(wire, boxes, bounds) {
  const from = boxes[wire.from], to = boxes[wire.to];
  const begin = [from.x, from.y + from.h], end = [to.x, to.y];
  if (!wire.path.length && to.layer !== from.layer + 1) {
    const side = bounds[0] + 8, down = Math.sign(end[1] - begin[1]) || 1;
    return [`M${begin.map(Math.round).join(" ")} C${side} ${Math.round(begin[1] + 60)} ${side} ${Math.round(end[1] - 60 * down)} ${end.map(Math.round).join(" ")}`, true];
  }
  const middle = wire.path.flatMap(point => [[point.x, point.top], [point.x, point.bottom]]);
  return [curve([begin, ...middle, end]), false];
}

function boxLabel(box) {
  switch (box.kind) {
    case "input": return [data.inputs[box.number].name, data.inputs[box.number].type];
    case "output": return [data.outputs[box.number].name, data.outputs[box.number].type];
    case "operator": return [data.operators[box.number].op, data.operators[box.number].name];
    case "fold": {
      const fold = data.graph.folds[box.number];
      return ["the same, " + (fold.count - 1) + " more times", plural(fold.others.length, "kernel") + ": " + percent(sum(fold.others.map(k => spent(data.kernels[k]))) / total) + " of the time"];
    }
    default: {
      const kernel = data.kernels[box.number];
      return [kernel.pattern, time(spent(kernel)) + " · " + percent(spent(kernel) / total) + " · " + kernel.kind];
    }
  }
}
function boxClass(box) {
  if (box.kind === "kernel") return "box kernel " + colour(box.number) + (box.open ? " open" : "");
  if (box.kind === "operator") return homes[box.number].length ? "box " + colour(homes[box.number][0]) : "box gone";
  return box.kind === "fold" ? "box fold" : "box port";
}
function drawBox(box) {
  const [label, below] = boxLabel(box), left = box.open ? 14 : 8;
  const group = drawn("g", {
    class: boxClass(box), transform: `translate(${Math.round(box.x - box.w / 2)} ${Math.round(box.y)})`,
    "data-tip": label + "\n" + below + (box.kind === "operator" && !homes[box.number].length ? "\nin no kernel: a view, a constant, or shape arithmetic" : ""),
  });
  group.append(drawn("rect", { class: "body paint", width: box.w, height: box.h }));
  const large = box.kind === "kernel" || box.kind === "fold";
  // In the middle of the box, unless that would touch the sign at the right of a kernel.
  const sign = box.kind === "kernel" ? 26 : 8, room = box.w - left - sign, name = fitted(label, room, 12);
  const middle = widthOf(name, 12) > box.w - 2 * sign ? left + room / 2 : box.w / 2;
  group.append(drawn("text", { x: box.open ? left : middle, y: large ? 19 : box.h / 2 + 4, "text-anchor": box.open ? "start" : "middle" }, name));
  if (large) group.append(drawn("text", { class: "sub", x: box.open ? 14 : box.w / 2, y: 34, "text-anchor": box.open ? "start" : "middle" }, cut(below, Math.floor((box.w - 12) / 5.6))));
  if (box.kind === "kernel") {
    const kernel = data.kernels[box.number];
    group.append(drawn("rect", { class: "share", x: 1, y: 42, height: 3, width: Math.max(1, (box.w - 2) * Math.min(1, spent(kernel) / total)), rx: 1.5 }));
    group.append(drawn("text", { class: "sign", x: box.w - 14, y: 19, "text-anchor": "middle", "data-tip": box.open ? "close (o)" : "open (o)", onclick: event => { event.stopPropagation(); toggle(box.number); } }, box.open ? "−" : "+"));
    if (box.open) group.append(drawInner(box));
  }
  group.addEventListener("click", () => { if (!graph.dragged) choose(box); });
  group.addEventListener("dblclick", () => { if (box.kind === "kernel") toggle(box.number); });
  box.group = group;
  return group;
}
function drawInner(box) {
  const inner = data.kernels[box.number].graph, group = drawn("g", { class: "inner", transform: `translate(${Math.round((box.w - inner.width) / 2)} 54)` });
  const y = layer => layer * (INNER + INNER_ROW), at = inner.boxes.map(([, , width, layer, x]) => ({ x, w: width, layer }));
  for (const [from, to, , points] of inner.edges) {
    const path = [[at[from].x, y(at[from].layer) + INNER]];
    for (let k = 0; k < points.length; k += 2) path.push([points[k + 1], y(points[k])], [points[k + 1], y(points[k]) + INNER]);
    path.push([at[to].x, y(at[to].layer)]);
    group.append(drawn("path", { d: curve(path) }));
  }
  inner.boxes.forEach(([, number, width, layer, x]) => {
    const operator = data.operators[number];
    const chip = drawn("g", { transform: `translate(${x - width / 2} ${y(layer)})`, "data-tip": operator.op + "\n" + operator.name, onclick: event => { event.stopPropagation(); if (!graph.dragged) select({ operator: number }); } });
    chip.append(drawn("rect", { width, height: INNER }), drawn("text", { x: width / 2, y: 15, "text-anchor": "middle" }, cut(operator.op, Math.floor((width - 10) / 6))));
    group.append(chip);
  });
  return group;
}

function drawGraph(keepView) {
  const canvas = find("canvas"), source = drawing(), laid = arrange(source);
  graph.boxes = laid.boxes; graph.rows = laid.rows; graph.bounds = laid.bounds;
  const layer = drawn("g", {});
  graph.wires = laid.wires.map(wire => {
    const [d, far] = wirePath(wire, laid.boxes, laid.bounds);
    const tipText = wire.size > 0 ? bytes(wire.size) : null;
    const path = drawn("path", { d, class: far ? "wire far" : "wire", "data-tip": tipText });
    layer.append(path);
    return { ...wire, element: path };
  });
  laid.boxes.forEach(box => layer.append(drawBox(box)));
  graph.svg = drawn("svg", { role: "img", "aria-label": graph.mode === "after" ? "kernels" : "operators" }, layer);
  // As high as there is something to see.
  if (!keepView) canvas.style.height = Math.round(Math.max(440, Math.min(innerHeight * 0.72, 760, laid.bounds[3] * 1.2 + 40))) + "px";
  canvas.replaceChildren(graph.svg, element("div", { class: "hint" }, "drag to move · scroll with Ctrl to zoom · + opens a kernel"));
  if (!keepView || !graph.view) fitGraph(); else look();
  mark();
  find("before").setAttribute("aria-pressed", graph.mode === "before");
  find("after").setAttribute("aria-pressed", graph.mode === "after");
  find("open-all").hidden = graph.mode === "before";
  find("open-all").textContent = graph.open.size ? "Close all" : "Open all";
}
function look() { graph.svg.setAttribute("viewBox", graph.view.map(n => Math.round(n * 10) / 10).join(" ")); }
function size() { const box = find("canvas").getBoundingClientRect(); return [Math.max(box.width, 50), Math.max(box.height, 50)]; }
/** All of it where that can be read, otherwise its beginning at a size that can be. */
function fitGraph(whole) {
  const [w, h] = size(), [left, top, width, height] = graph.bounds;
  const zoom = whole ? Math.min(w / width, h / height, 1.4) : Math.max(Math.min(w / width, h / height, 1.15), Math.min(0.62, w / Math.min(width, 900)));
  const seen = [w / zoom, h / zoom];
  graph.view = [left + (width - seen[0]) / 2, height <= seen[1] ? top + (height - seen[1]) / 2 : top, ...seen];
  if (width > seen[0] && graph.boxes.length) { const first = graph.boxes.reduce((a, b) => (b.layer < a.layer ? b : a)); graph.view[0] = first.x - seen[0] / 2; }
  look();
}
function zoomBy(factor, x, y) {
  const [w, h] = size(), view = graph.view, part = [x === undefined ? 0.5 : x / w, y === undefined ? 0.5 : y / h];
  const most = Math.max(graph.bounds[2], graph.bounds[3] * w / h) * 1.5, wide = Math.min(Math.max(view[2] / factor, w / 4), Math.max(most, w));
  const high = wide * h / w;
  graph.view = [view[0] + (view[2] - wide) * part[0], view[1] + (view[3] - high) * part[1], wide, high];
  look();
}
function pan(dx, dy) { graph.view[0] += dx; graph.view[1] += dy; look(); }
/** Brings a box into sight. */
function reveal(box) {
  const view = graph.view, margin = 30;
  if (box.x - box.w / 2 < view[0] + margin || box.x + box.w / 2 > view[0] + view[2] - margin) view[0] = box.x - view[2] / 2;
  if (box.y < view[1] + margin || box.y + box.h > view[1] + view[3] - margin) view[1] = box.y + box.h / 2 - view[3] / 2;
  look();
}
function toggle(number) {
  if (graph.open.has(number)) graph.open.delete(number); else graph.open.add(number);
  drawGraph(true);
  const box = graph.boxes.find(box => box.kind === "kernel" && box.number === number);
  if (box) reveal(box);
}
function choose(box) {
  graph.at = box.id;
  if (box.kind === "kernel") select({ kernel: box.number });
  else if (box.kind === "operator") select({ operator: box.number });
  else if (box.kind === "fold") { graph.folded = false; find("fold").checked = false; drawGraph(); }
}
/** Shows where something is: in the graph that is shown if it is there, unfolded if it must be. */
function showInGraph(what) {
  const wanted = () => graph.boxes.find(box => what.kernel !== undefined ? box.kind === "kernel" && box.number === what.kernel : box.kind === "operator" && box.number === what.operator);
  const mode = what.kernel !== undefined ? "after" : "before";
  if (graph.mode !== mode) { graph.mode = mode; drawGraph(); }
  if (!wanted()) { graph.folded = false; find("fold").checked = false; drawGraph(); }
  const box = wanted();
  if (box) { graph.at = box.id; reveal(box); mark(); }
  find("graph").scrollIntoView();
}
function moveFocus(key) {
  const now = graph.boxes[graph.at] || graph.boxes[0];
  if (!now) return;
  let best = null;
  const inRow = graph.rows[now.layer].filter(item => item.id !== undefined);
  if (key === "ArrowLeft" || key === "ArrowRight") best = inRow[inRow.indexOf(now) + (key === "ArrowLeft" ? -1 : 1)];
  else for (let layer = now.layer + (key === "ArrowUp" ? -1 : 1); layer >= 0 && layer < graph.rows.length && !best; layer += key === "ArrowUp" ? -1 : 1) {
    best = graph.rows[layer].filter(item => item.id !== undefined).sort((a, b) => Math.abs(a.x - now.x) - Math.abs(b.x - now.x))[0];
  }
  if (graph.at === null) best = now;
  if (best) { graph.at = best.id; reveal(best); mark(); }
}
function startGraph() {
  const canvas = find("canvas");
  find("before").addEventListener("click", () => { graph.mode = "before"; graph.at = null; drawGraph(); });
  find("after").addEventListener("click", () => { graph.mode = "after"; graph.at = null; drawGraph(); });
  find("fold").addEventListener("change", event => { graph.folded = event.target.checked; graph.at = null; drawGraph(); });
  find("fold-label").hidden = !data.graph.after_folded;
  find("larger").addEventListener("click", () => zoomBy(1.25));
  find("smaller").addEventListener("click", () => zoomBy(0.8));
  find("fit").addEventListener("click", () => fitGraph(true));
  find("open-all").addEventListener("click", () => {
    if (graph.open.size) graph.open.clear(); else graph.boxes.forEach(box => { if (box.kind === "kernel") graph.open.add(box.number); });
    drawGraph();
  });
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey) zoomBy(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
    else { const scale = graph.view[2] / box.width; pan(event.deltaX * scale, event.deltaY * scale); }
  }, { passive: false });
  const touches = new Map();
  canvas.addEventListener("pointerdown", event => { touches.set(event.pointerId, event); graph.dragged = false; });
  canvas.addEventListener("pointermove", event => {
    const last = touches.get(event.pointerId);
    if (!last) return;
    const scale = graph.view[2] / canvas.getBoundingClientRect().width;
    if (touches.size === 2) {
      const other = [...touches].find(([id]) => id !== event.pointerId)[1];
      const far = e => Math.hypot(e.clientX - other.clientX, e.clientY - other.clientY), box = canvas.getBoundingClientRect();
      zoomBy(far(event) / Math.max(far(last), 1), (event.clientX + other.clientX) / 2 - box.left, (event.clientY + other.clientY) / 2 - box.top);
      graph.dragged = true;
    } else if (graph.dragged || Math.hypot(event.clientX - last.clientX, event.clientY - last.clientY) > 4) {
      graph.dragged = true;
      pan((last.clientX - event.clientX) * scale, (last.clientY - event.clientY) * scale);
    } else return;
    touches.set(event.pointerId, event);
  });
  ["pointerup", "pointercancel", "pointerleave"].forEach(name => canvas.addEventListener(name, event => touches.delete(event.pointerId)));
  canvas.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const box = graph.boxes[graph.at];
    if (event.key.startsWith("Arrow")) { if (event.shiftKey) pan(...({ ArrowLeft: [-60, 0], ArrowRight: [60, 0], ArrowUp: [0, -60], ArrowDown: [0, 60] })[event.key]); else moveFocus(event.key); }
    else if (event.key === "Enter" || event.key === " ") { if (box) choose(box); }
    else if (event.key === "o") { if (box && box.kind === "kernel") toggle(box.number); }
    else if (event.key === "+" || event.key === "=") zoomBy(1.25);
    else if (event.key === "-") zoomBy(0.8);
    else if (event.key === "0") fitGraph(true);
    else if (event.key === "b") { graph.mode = graph.mode === "after" ? "before" : "after"; graph.at = null; drawGraph(); }
    else return;
    event.preventDefault();
  });
  let width = 0;
  new ResizeObserver(() => {
    const [w, h] = size(), view = graph.view;
    if (Math.abs(w - width) <= 1 || !graph.svg) return;
    if (width && view) { // the same middle at the same size
      const scale = view[2] / width, seen = [w * scale, h * scale];
      graph.view = [view[0] + (view[2] - seen[0]) / 2, view[1], ...seen];
      look();
    } else fitGraph();
    width = w;
  }).observe(canvas);
  drawGraph();
}
