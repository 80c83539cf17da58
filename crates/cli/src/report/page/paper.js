// The graph on paper: all of it at a size that can be read, cut between its layers, with as many pieces beside each other as fit.
const PAPER = { width: 680, piece: 430, scales: [0.8, 0.66, 0.52], few: 3, most: 16 };

/** From where to where a piece reaches, for some layers: as wide as its boxes, and as what passes them where there is room. */
function paperPiece(rows, top, bottom, scale) {
  const range = items => [Math.min(...items.map(item => item.x - item.w / 2)) - 12, Math.max(...items.map(item => item.x + item.w / 2)) + 12];
  const all = rows.flat(), wide = range(all), narrow = range(all.filter(item => item.id !== undefined));
  const [left, right] = (wide[1] - wide[0]) * scale <= PAPER.width ? wide : narrow;
  return { left, top, width: right - left, height: bottom - top };
}
/** The graph in pieces of whole layers, and pieces in lines; null where one is wider than paper. */
function paperLines(rows, scale) {
  const lines = [];
  let room = 0, some = [], top = 0;
  const end = () => {
    const last = some[some.length - 1], bottom = last[0].bottom + ROW / 2, piece = paperPiece(some, top, bottom, scale);
    if (piece.width * scale > room) { lines.push([]); room = PAPER.width; }
    lines[lines.length - 1].push(piece);
    room -= piece.width * scale;
    some = []; top = bottom;
    return room >= 0;
  };
  for (const row of rows.filter(row => row.some(item => item.id !== undefined))) {
    if (some.length && (row[0].bottom + ROW / 2 - top) * scale > PAPER.piece && !end()) return null;
    some.push(row);
  }
  return some.length && !end() ? null : lines;
}
/** As large as fits on a page or two; otherwise as small as can be read. */
function paperLayout(rows) {
  let found = null;
  for (const scale of PAPER.scales) {
    const lines = paperLines(rows, scale);
    if (lines) found = { scale, lines };
    if (lines && lines.length <= PAPER.few) break;
  }
  return found;
}
function drawPaper() {
  const laid = arrange(drawing()), layout = laid.boxes.length ? paperLayout(laid.rows) : { lines: [] };
  const words = text => find("paper").replaceChildren(element("p", { class: "note" }, text));
  if (!layout || layout.lines.length > PAPER.most) return words("The graph is too " + (layout ? "long" : "wide") + " for paper: its kernels are in the table below.");
  const draw = ({ left, top, width, height }) => {
    const svg = drawn("svg", { viewBox: [left, top, width, height].map(Math.round).join(" "), role: "img", "aria-label": "a part of the graph" });
    svg.style.width = 100 * width * layout.scale / PAPER.width + "%";
    for (const wire of laid.wires) {
      const ends = [laid.boxes[wire.from].y, laid.boxes[wire.to].y];
      if (Math.max(...ends) < top || Math.min(...ends) > top + height) continue;
      const [d, far] = wirePath(wire, laid.boxes, laid.bounds);
      svg.append(drawn("path", { d, class: far ? "wire far" : "wire" }));
    }
    laid.boxes.filter(box => box.y < top + height && box.y + box.h > top).forEach(box => svg.append(drawBox(box)));
    return svg;
  };
  find("paper").replaceChildren(...layout.lines.map(line => element("div", { class: "line" }, line.map(draw))));
}
addEventListener("beforeprint", drawPaper);
addEventListener("afterprint", () => find("paper").replaceChildren());
