//! The page of `fuseline report` in a browser: it is clicked, searched and typed at, and must have nothing to complain about.
//!
//! Runs where a Chromium is installed; elsewhere it says that it did not. What does not need one is in `report.rs`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A Chromium, if there is one.
fn browser() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let all = std::env::split_paths(&folders).flat_map(|folder| names.map(|name| folder.join(name)));
    all.into_iter().find(|path| path.is_file())
}

/// Takes down all that goes wrong; first in the page.
const WATCH: &str = "<script>window.wrong = [];
addEventListener('error', event => wrong.push(String(event.message)));
addEventListener('unhandledrejection', event => wrong.push(String(event.reason)));
addEventListener('securitypolicyviolation', event => wrong.push('blocked ' + event.violatedDirective + ' ' + event.blockedURI));
window.alert = words => wrong.push('alert ' + words);
for (const name of ['error', 'warn']) console[name] = (...words) => wrong.push(name + ' ' + words.join(' '));
</script>";

/// Looks at a page as it is printed.
const PAPER: &str = r#"<script>
function onPaper(look) {
  const rules = [...document.styleSheets].flatMap(sheet => [...sheet.cssRules]).filter(rule => rule.media && rule.media.mediaText === 'print');
  rules.forEach(rule => { rule.media.mediaText = 'all'; });
  document.body.style.width = '680px';
  dispatchEvent(new Event('beforeprint'));
  const seen = look();
  dispatchEvent(new Event('afterprint'));
  document.body.style.width = '';
  rules.forEach(rule => { rule.media.mediaText = 'print'; });
  return rules.length > 0 && seen;
}
// Letters of five points, and no line that is higher than a page.
function graphCanBeRead() {
  const paper = find('paper'), boxes = [...paper.querySelectorAll('.box')], lines = [...paper.children].map(line => line.getBoundingClientRect());
  const letters = boxes.map(box => box.querySelector('text').getScreenCTM().a * 12 * 0.75);
  return boxes.length === graph.boxes.length && Math.min(...letters) >= 4.5 && lines.every(line => line.height < 900 && line.width <= 680)
    && find('canvas').getBoundingClientRect().height === 0;
}
"#;

/// What a user does, as steps with a name; each is true if it did what it should.
const VISIT: &str = r#"
const press = (target, key) => target.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
const click = target => target.dispatchEvent(new MouseEvent('click', { bubbles: true }));
const rows = () => document.querySelectorAll('#decision-table tbody tr').length;
const steps = {
  'kernels are drawn': () => document.querySelectorAll('#canvas .box.kernel').length === data.kernels.length,
  'a kernel opens': () => { toggle(0); return document.querySelectorAll('#canvas .box.open .inner g').length === data.kernels[0].graph.boxes.length; },
  'a kernel is chosen': () => { click(document.querySelector('#canvas .box.kernel')); return !find('drawer').hidden && find('drawer').querySelector('pre').textContent.includes('schedule'); },
  'and marked everywhere': () => document.querySelector('#time .span.on') !== null && document.querySelector('#kernel-table tr.on') !== null,
  'its code is shown': () => { const buttons = find('drawer').querySelectorAll('.choice button'); click(buttons[1]); return find('drawer').querySelector('pre').textContent.includes('tasks'); },
  'Escape closes it': () => { press(document, 'Escape'); return find('drawer').hidden; },
  'a long name keeps off its sign': () => {
    const kernel = data.kernels[0], name = kernel.pattern;
    kernel.pattern = 'MatMul + WWWW + '.repeat(9);
    const apart = [0, 1].map(() => {
      toggle(0);
      const group = graph.boxes.find(box => box.kind === 'kernel' && box.number === 0).group;
      const label = group.querySelector(':scope > text'), sign = group.querySelector('.sign');
      return label.textContent.endsWith('…') && label.getBBox().x + label.getBBox().width < sign.getBBox().x;
    });
    kernel.pattern = name;
    drawGraph(true);
    return apart.every(Boolean);
  },
  'the model before': () => { click(find('before')); return graph.boxes.filter(box => box.kind === 'operator').length === data.operators.length; },
  'arrows move': () => { press(find('canvas'), 'ArrowDown'); press(find('canvas'), 'ArrowDown'); return document.querySelector('#canvas .box.at') !== null; },
  'Enter chooses': () => { press(find('canvas'), 'Enter'); return !find('drawer').hidden || graph.boxes[graph.at].kind === 'input'; },
  'b goes back': () => { press(find('canvas'), 'b'); return graph.mode === 'after'; },
  'what can be searched is told': () => { const box = find('search'), style = getComputedStyle(box); return widthOf(box.placeholder, parseFloat(style.fontSize)) <= box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight); },
  'a slash searches': () => { press(document.body, '/'); return document.activeElement === find('search'); },
  'search finds less': () => { const all = rows(); find('search').value = data.decisions[0].id; find('search').dispatchEvent(new Event('input')); return rows() > 0 && rows() < all; },
  'search finds nothing': () => { find('search').value = 'no such thing'; find('search').dispatchEvent(new Event('input')); return rows() === 0; },
  'and all again': () => { find('search').value = ''; find('search').dispatchEvent(new Event('input')); return rows() > 1; },
  'columns sort': () => { const head = document.querySelectorAll('#decision-table th button')[3]; click(head); const down = head.parentNode.getAttribute('aria-sort'); click(head); return down === 'descending' && head.parentNode.getAttribute('aria-sort') === 'ascending'; },
  'all of a header sorts': () => [...document.querySelectorAll('#decision-table th, #kernel-table th')].every(head => {
    const [cell, button] = [head, head.querySelector('button')].map(part => part.getBoundingClientRect());
    return cell.width === 0 || (button.width >= cell.width - 2 && button.height >= cell.height - 3);
  }),
  'a decision is chosen': () => { click(document.querySelector('#decision-table tbody tr')); return find('drawer').textContent.includes('--flip'); },
  'filters filter': () => { click([...find('which').children].find(button => button.textContent.startsWith('taken'))); return [...document.querySelectorAll('#decision-table .pill')].every(pill => pill.textContent === 'taken'); },
  'limits are measured': () => find('roofline-lead').textContent.includes('limits were measured with the runs'),
  'a description is called one': () => { const known = data.machine.source; data.machine.source = 'built in'; const said = limitsKnown(); data.machine.source = known; return said.includes('built-in description, not measured'); },
  'dots are there': () => document.querySelectorAll('#roof .fused').length > 0 && document.querySelectorAll('#roof .unfused').length > 0,
  'a dot is chosen': () => { click(document.querySelector('#roof .fused')); return find('drawer').textContent.includes('intensity'); },
  'both lanes have bars': () => document.querySelectorAll('#time .span').length > data.kernels.length,
  'memory is drawn': () => document.querySelectorAll('#live .area').length === 2,
  't turns the colours': () => { find('search').blur(); const paper = () => getComputedStyle(document.body).backgroundColor; const before = paper(); press(document.body, 't'); return paper() !== before; },
  'tables fit on paper and repeat their heads': () => onPaper(() => {
    // How far measurements are off, and so how long numbers are, is different every time: they are as long as can be here.
    const expected = data.kernels.map(kernel => kernel.expected_us);
    data.kernels.forEach(kernel => { kernel.expected_us *= 1e5; });
    startKernels();
    const fits = ['kernel-table', 'decision-table'].every(id => {
      const holder = find(id), style = getComputedStyle(holder.querySelector('thead')), head = holder.querySelector('th');
      const isText = getComputedStyle(head.querySelector('button')).display === 'none' && getComputedStyle(head, '::before').content === '"' + head.textContent + '"';
      return isText && holder.scrollWidth <= holder.clientWidth + 1 && style.display === 'table-header-group' && style.breakInside === 'avoid';
    });
    data.kernels.forEach((kernel, k) => { kernel.expected_us = expected[k]; });
    startKernels();
    return fits;
  }),
  'all of the timeline is on paper': () => {
    click([...find('stretch').querySelectorAll('button')][1]);
    const whole = () => find('time').querySelector('svg').viewBox.baseVal.width === 1130;
    const fits = () => find('time').querySelector('svg').getBoundingClientRect().width <= find('time').getBoundingClientRect().width + 1;
    const near = !whole(), told = onPaper(() => whole() && fits()), again = !whole();
    click([...find('stretch').querySelectorAll('button')][0]);
    return near && told && again && whole();
  },
  'the graph can be read on paper': () => onPaper(graphCanBeRead) && find('paper').childElementCount === 0,
  'nothing is wider than the window': () => document.documentElement.scrollWidth <= innerWidth,
};
addEventListener('load', () => {
  const failed = [];
  for (const [name, step] of Object.entries(steps)) {
    try { if (!step()) failed.push(name); } catch (error) { failed.push(name + ': ' + error); }
  }
  const told = document.createElement('pre');
  told.id = 'outcome';
  told.textContent = JSON.stringify({ failed, wrong, steps: Object.keys(steps).length });
  document.body.append(told);
});
</script>"#;

/// The document of a page after it was loaded, as text.
fn loaded(browser: &Path, page: &Path, folder: &Path, width: u32) -> String {
    visit(browser, page, folder, &["--dump-dom", &format!("--window-size={width},900")])
}

/// Opens a page in a browser, with some options; what it writes.
fn visit(browser: &Path, page: &Path, folder: &Path, options: &[&str]) -> String {
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(options)
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            panic!("the browser does not end");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    reader.join().unwrap().unwrap()
}

/// A copy of a page that takes down what goes wrong, with a script at its end.
fn watched(page: &Path, script: &str) -> PathBuf {
    let text = std::fs::read_to_string(page).unwrap();
    let (head, rest) = text.split_once("<title>").unwrap();
    let watched = format!("{head}{WATCH}<title>{rest}").replace("</body>", &format!("{PAPER}{script}</body>"));
    let path = page.with_extension("watched.html");
    std::fs::write(&path, watched).unwrap();
    path
}

/// What the script of a page has told.
fn outcome(document: &str) -> Value {
    let (_, behind) = document.split_once("<pre id=\"outcome\">").unwrap_or_else(|| panic!("no outcome: {document}"));
    let told = behind.split_once("</pre>").unwrap().0.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&told).unwrap()
}

/// Tells how many kernels are drawn, whether they can be read on paper, and what went wrong.
const LOOK: &str = r#"
const told = { wrong, drawn: document.querySelectorAll('#canvas .box.kernel').length, read: onPaper(graphCanBeRead) };
document.body.append(Object.assign(document.createElement('pre'), { id: 'outcome', textContent: JSON.stringify(told) }));
</script>"#;

/// A network in the folder of those without weights.
fn structure(name: &str) -> String {
    format!("{}/../../tests/models/structure/{name}.onnx", env!("CARGO_MANIFEST_DIR"))
}

/// How many bytes are drawn on each page of a PDF.
fn drawn_on_pages(pdf: &[u8]) -> Vec<usize> {
    let text = String::from_utf8_lossy(pdf);
    let number_behind = |text: &str, word: &str| -> Option<usize> {
        let (_, behind) = text.split_once(word)?;
        behind.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let pages = text.split("/Type /Page\n").skip(1);
    let contents = pages.map(|page| number_behind(page, "/Contents").expect("a page has contents"));
    let length = |object: usize| number_behind(text.split_once(&format!("\n{object} 0 obj"))?.1, "/Length");
    contents.map(|object| length(object).expect("contents have a length")).collect()
}

#[test]
fn a_network_prints_without_blank_pages() {
    let Some(browser) = browser() else {
        eprintln!("not tried: there is no Chromium here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let [page, pdf] = ["page.html", "page.pdf"].map(|name| folder.path().join(name));
    let done = Command::new(env!("CARGO_BIN_EXE_fuseline"))
        .args(["report", &structure("bert_base.dynamo"), "--no-run", "-q", "-o"])
        .arg(&page)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let print = format!("--print-to-pdf={}", pdf.display());
    visit(&browser, &page, folder.path(), &["--no-pdf-header-footer", &print]);
    let drawn = drawn_on_pages(&std::fs::read(pdf).unwrap());
    // The head with the graph, the pictures, kernels, and the table of decisions.
    assert!((4..=8).contains(&drawn.len()), "{drawn:?}");
    assert!(drawn.iter().all(|bytes| *bytes > 1500), "a page that is next to empty: {drawn:?}");
}

/// Decisions of attention, and of networks, are also about what is no kernel.
#[test]
fn pages_of_networks_open_without_any_complaint() {
    let Some(browser) = browser() else {
        eprintln!("not tried: there is no Chromium here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for model in
        ["gallery:attention", "demo:encoder", &structure("bert_base.dynamo"), &structure("mobilenetv3l.dynamo")]
    {
        let page = folder.path().join("page.html");
        let done = Command::new(env!("CARGO_BIN_EXE_fuseline"))
            .args(["report", model, "--no-run", "-q", "-o"])
            .arg(&page)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let outcome = outcome(&loaded(&browser, &watched(&page, LOOK), folder.path(), 1280));
        assert_eq!(outcome["wrong"], Value::Array(Vec::new()), "{model}: {outcome:#}");
        assert!(outcome["drawn"] != 0 && outcome["read"] == true, "{model}: {outcome:#}");
    }
}

#[test]
fn a_page_can_be_used_without_any_complaint() {
    let Some(browser) = browser() else {
        eprintln!("not tried: there is no Chromium here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    // Names that would run if they were ever taken for markup.
    let graph = Command::new(env!("CARGO_BIN_EXE_fuseline"))
        .args(["inspect", "gallery:transformer_sublayer", "--graph"])
        .output()
        .unwrap();
    let evil = "\"</script><script>alert(1)</script><img src=x onerror=alert(2)> gelu\"";
    let model = folder.path().join("evil.ir");
    std::fs::write(&model, String::from_utf8(graph.stdout).unwrap().replace("\"gelu\"", evil)).unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_fuseline"))
        .args(["report", model.to_str().unwrap(), "--sizes", "tokens=8,features=32", "--iters", "2", "-q", "-o"])
        .arg(&page)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let visited = watched(&page, VISIT);
    for width in [1280, 420] {
        let outcome = outcome(&loaded(&browser, &visited, folder.path(), width));
        assert!(outcome["steps"].as_u64().unwrap() > 20, "{outcome:#}");
        assert_eq!(outcome["failed"], Value::Array(Vec::new()), "at {width}: {outcome:#}");
        assert_eq!(outcome["wrong"], Value::Array(Vec::new()), "at {width}: {outcome:#}");
    }
}
