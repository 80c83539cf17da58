// Time and memory.
const measured = data.measured || null;
const spansOf = side => (measured && measured[side] ? measured[side].spans : null);
const unfused = (data.unfused && data.unfused.kernels) || [];

/** The spans of the fused run; predicted ones where nothing was measured. */
function fusedSpans() {
  const spans = spansOf("fused");
  if (spans) return spans;
  let begin = 0;
  return data.kernels.map((kernel, number) => [number, kernel]).filter(([, kernel]) => kernel.inside === undefined).map(([number, kernel]) => {
    const span = [number, begin, kernel.us, null, 0];
    begin += kernel.us;
    return span;
  });
}
function unfusedSpans() {
  const spans = spansOf("unfused");
  if (spans) return spans;
  let begin = 0;
  return unfused.map((kernel, number) => { const span = [number, begin, kernel.us, null, 0]; begin += kernel.us; return span; });
}
const endOf = spans => (spans.length ? Math.max(...spans.map(span => span[1] + span[2])) : 0);

/** Round numbers for an axis. */
function ticks(most, count) {
  const rough = most / count, power = 10 ** Math.floor(Math.log10(rough || 1)), step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough) || power * 10;
  const list = [];
  for (let x = 0; x <= most * 1.0001; x += step) list.push(x);
  return list;
}

let stretch = 1;
function drawTimeline() {
  const now = fusedSpans(), was = unfusedSpans(), end = Math.max(endOf(now), endOf(was), 1e-9);
  const width = 1130 * stretch, left = 84, high = 44, x = us => left + us / end * (width - left - 12);
  const svg = drawn("svg", { class: "chart", viewBox: `0 0 ${width} 168`, role: "img", "aria-label": "timeline of a run, unfused and fused" });
  svg.style.width = 100 * stretch + "%";
  for (const tick of ticks(end, 6 * stretch)) {
    svg.append(drawn("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 8, y2: 140 }));
    svg.append(drawn("text", { class: "small", x: x(tick), y: 156, "text-anchor": "middle" }, tick === 0 ? "0" : time(tick)));
  }
  const lane = (name, spans, y, bar) => {
    svg.append(drawn("text", { x: left - 12, y: y + 19, "text-anchor": "end" }, name), drawn("text", { class: "small", x: left - 12, y: y + 34, "text-anchor": "end" }, time(endOf(spans))));
    for (const span of spans) {
      const [, begin, took] = span, wide = Math.max(x(begin + took) - x(begin), 0.4);
      svg.append(bar(span, { x: x(begin).toFixed(2), width: wide.toFixed(2), y, height: high }));
    }
  };
  lane("unfused", was, 16, ([number, , took, phase], place) => {
    const kernel = unfused[number], home = kernel ? homeOf(kernel) : null;
    const bar = drawn("rect", { ...place, class: "span paint dim " + (home === null ? "c24" : colour(home)), "data-kernel": home, "data-tip": (kernel ? kernel.pattern + "\n" + kernel.operators.slice(0, 3).join(", ") + "\n" : "") + time(took) + (phase ? " · " + phase : "") });
    if (home !== null) bar.addEventListener("click", () => select({ kernel: home }));
    return bar;
  });
  lane("fused", now, 84, ([number, , took, phase, tasks], place) => {
    const kernel = data.kernels[number];
    const bar = drawn("rect", { ...place, class: "span paint " + colour(number), "data-kernel": number, "data-tip": kernel.pattern + "\n" + time(took) + (phase ? " · " + phase + ", " + plural(tasks, "task") : "") });
    bar.addEventListener("click", () => select({ kernel: number }));
    return bar;
  });
  find("time").replaceChildren(svg);
  mark();
}
function startTimeline() {
  const buttons = [1, 4, 16].map(factor => element("button", { type: "button", "aria-pressed": String(factor === 1), onclick: event => {
    stretch = factor;
    [...event.target.parentNode.children].forEach(other => other.setAttribute("aria-pressed", String(other === event.target)));
    drawTimeline();
  } }, factor + " ×"));
  find("stretch").append(...buttons);
  const list = ranked.filter(own => own.us > 0).slice(0, 12).map(own => element("button", { type: "button", onclick: () => select({ kernel: own.kernels[0] }) },
    element("i", { class: "dotted chip " + own.colour }), cut(data.kernels[own.kernels[0]].pattern, 40) + (own.kernels.length > 1 ? " × " + own.kernels.length : "") + "  " + percent(own.us / total)));
  find("share").append(...list);
  // Paper shows all of a run, however closely the screen looks at a part of it.
  let looked = stretch;
  addEventListener("beforeprint", () => { looked = stretch; stretch = 1; drawTimeline(); });
  addEventListener("afterprint", () => { stretch = looked; drawTimeline(); });
  find("timeline-lead").textContent = measured && spansOf("fused")
    ? "The fastest of " + plural(measured.fused.runs, "more run") + " of each plan, in turns, which were timed kernel by kernel, on one scale, with " + plural(measured.threads, "thread") + "; the times above are of runs before them. An unfused kernel has the colour of the kernel that it became part of."
    : "As predicted: " + (measured ? "the time of single kernels cannot be measured on this device." : "nothing was run.") + " An unfused kernel has the colour of the kernel that it became part of.";
  drawTimeline();
}

/** When every kernel of a plan begins and ends, as parts of the time of the slower plan. */
function kernelTimes(spans, steps, number, whole) {
  const end = endOf(spans), part = whole > 0 ? end / whole : 1;
  const times = Array.from({ length: steps }, (_, k) => [k / steps * part, (k + 1) / steps * part]);
  if (end <= 0) return times;
  const seen = new Map();
  for (const [kernel, begin, took] of spans) {
    const known = seen.get(kernel) || [begin, begin];
    seen.set(kernel, [Math.min(known[0], begin), Math.max(known[1], begin + took)]);
  }
  for (let k = 0; k < steps; k++) { const found = seen.get(number(k)); if (found) times[k] = [found[0] / whole, found[1] / whole]; }
  return times;
}
function drawMemory() {
  const now = data.memory, was = data.unfused ? data.unfused.memory : null;
  const outerNumbers = data.kernels.map((kernel, number) => number).filter(number => data.kernels[number].inside === undefined);
  const whole = Math.max(endOf(fusedSpans()), endOf(unfusedSpans()));
  const timesNow = kernelTimes(fusedSpans(), now.live.length, k => outerNumbers[k], whole);
  const timesWas = was ? kernelTimes(unfusedSpans(), was.live.length, k => k, whole) : [];
  const most = Math.max(...now.live, ...(was ? was.live : [0]), 1), width = 1130, height = 190, left = 84;
  const x = part => left + part * (width - left - 12), y = size => height - 26 - size / most * (height - 42);
  const svg = drawn("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "bytes of values between kernels over the time of a run" });
  for (const tick of ticks(most, 4)) svg.append(drawn("line", { class: "grid", x1: left, x2: width - 12, y1: y(tick), y2: y(tick) }), drawn("text", { class: "small", x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, tick === 0 ? "0" : bytes(tick)));
  const area = (live, times, name) => {
    if (!live.length) return;
    let path = `M${x(0)} ${y(0)}`;
    live.forEach((size, k) => { path += ` H${x(times[k][0]).toFixed(1)} V${y(size).toFixed(1)} H${x(times[k][1]).toFixed(1)}`; });
    svg.append(drawn("path", { class: name, d: path + ` L${x(times[live.length - 1][1]).toFixed(1)} ${y(0)} Z` }));
  };
  if (was) area(was.live, timesWas, "area was");
  area(now.live, timesNow, "area");
  svg.append(drawn("text", { class: "small", x: left, y: height - 8 }, "begin of the run"), drawn("text", { class: "small", x: width - 12, y: height - 8, "text-anchor": "end" }, time(whole)));
  find("live").replaceChildren(svg);
  if (now.values.length > 1) drawPlaces(now, timesNow, outerNumbers);
  const peak = list => Math.max(...list, 0);
  find("memory-lead").textContent = "Bytes of the values that kernels hand on, over the time of a run: fused at most " + bytes(peak(now.live))
    + (was ? ", unfused (grey) " + bytes(peak(was.live)) : "") + ". All of them together would be " + bytes(now.all) + (was ? " and " + bytes(was.all) : "")
    + "; with a place for each, used again and again, " + bytes(now.arena) + (was ? " and " + bytes(was.arena) : "") + " beside the outputs."
    + (now.unknown ? " " + plural(now.unknown, "value") + " whose sizes are known only in a run are not shown." : "");
}
/** Which value lies where, when. */
function drawPlaces(now, times, numbers) {
  const width = 1130, height = 230, left = 84, x = part => left + part * (width - left - 12), y = at => 10 + at / Math.max(now.arena, 1) * (height - 36);
  const svg = drawn("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "where values lie in memory over the time of a run" });
  for (const tick of ticks(now.arena, 4)) svg.append(drawn("text", { class: "small", x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, tick === 0 ? "0" : bytes(tick)));
  for (const [first, last, offset, size] of now.values) {
    const number = numbers[first], begin = times[first][0], end = times[last][1];
    svg.append(drawn("rect", { class: "place paint " + colour(number), "data-kernel": number, x: x(begin).toFixed(1), width: Math.max(x(end) - x(begin), 0.7).toFixed(1), y: y(offset).toFixed(1), height: Math.max(y(offset + size) - y(offset), 0.7).toFixed(1), rx: 2,
      "data-tip": bytes(size) + " by " + data.kernels[number].pattern + "\nfrom kernel " + first + " to " + last, onclick: () => select({ kernel: number }) }));
  }
  svg.append(drawn("text", { class: "small", x: left, y: height - 6 }, "where each value lies, in the colour of the kernel that wrote it"));
  find("places").replaceChildren(svg);
}
/** What the lines of the roofline are, and how they are known. */
function limitsKnown() {
  const { name, source } = data.machine;
  if (source === "measured") return "limits were measured with the runs: " + name + ".";
  if (source === "file") return "limits are as the file of the target states them: " + name + ".";
  return "limits are a built-in description, not measured: " + name + "; `fuseline roofline --write here.spec` measures this machine, and `--target here.spec` draws that.";
}
/** What is to be said of kernels that did more than the lines allow. */
function excess() {
  const { memories, peaks } = data.machine, highest = lines => Math.max(...lines.map(line => line[1])) * 1.005;
  const isAbove = kernel => {
    const us = kernel.measured_us ?? kernel.us;
    return us > 0 && (kernel.flops / us / 1e3 > highest(peaks) || kernel.bytes / us / 1e3 > highest(memories));
  };
  return measured && [...outer, ...unfused].some(isAbove)
    ? " A dot above all lines: the lines were measured in another moment, when other programs had more of the machine, or not all that counts as an operation takes one of these units."
    : "";
}
function startRoofline() {
  const roof = find("roof");
  const lead = unfused.length || measured ? "Each dot is a kernel, as large as its part of the time; the lines are what the machine can do at most. Fusion moves dots to the right (fewer bytes for the same work) and up." : "Each dot is a kernel, as large as its part of the time; the lines are what the machine can do at most.";
  const still = outer.filter(kernel => !(kernel.flops > 0)).length;
  find("roofline-lead").textContent = lead + " " + (measured && spansOf("fused") ? "Rates are measured; " : "Rates are predicted; ") + limitsKnown() + (still ? " " + (still === 1 ? "One kernel only moves data and is" : still + " kernels only move data and are") + " not shown." : "") + excess();
  roof.querySelectorAll("circle").forEach(dot => {
    const title = dot.querySelector("title");
    if (title) { dot.dataset.tip = title.textContent; title.remove(); }
    const kernel = dot.dataset.kernel;
    if (kernel !== undefined) { dot.setAttribute("class", "dot fused " + colour(Number(kernel))); dot.addEventListener("click", () => select({ kernel: Number(kernel) })); }
    else {
      const home = unfused[Number(dot.dataset.unfused)] ? homeOf(unfused[Number(dot.dataset.unfused)]) : null;
      if (home !== null) { dot.dataset.home = home; dot.addEventListener("click", () => select({ kernel: home })); }
    }
  });
  find("show-unfused").addEventListener("change", event => roof.classList.toggle("hide-unfused", !event.target.checked));
}
