"""Run the fuseline command on every feed and compare its answers with ONNX Runtime's.

An output of floats agrees when  max|ours - ort| <= 1e-4 max|ort| + 2 max|ort - ort0|,  where ort is ONNX Runtime
with all its optimisations and ort0 is ONNX Runtime with none: the second term is what ONNX Runtime itself does not
know for sure. Infinities and NaN must stand in the same places. Integers and booleans must be equal wherever ort and
ort0 are.
"""
import json
import subprocess
import time
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np


@dataclass
class Row:
    """One line of the report: a model with one feed, or a model that has none."""

    model: str
    verdict: str  # "ok", or what is wrong
    feed: int = 0
    sizes: str = ""
    error: float = 0.0
    bound: float = 0.0
    seconds: float = 0.0

    @property
    def agrees(self):
        return self.verdict == "ok" or self.verdict.startswith("ok: ")

    def cells(self):
        numbers = f"{self.error:.3g}", f"{self.bound:.3g}", f"{self.seconds:.2f}"
        return self.model, str(self.feed), self.sizes, *numbers, self.verdict


HEADER = "model", "feed", "sizes", "error", "bound", "seconds", "verdict"


def compare_all(folder, models, command, device, timeout, failures):
    """Compare every feed of these models, print and write the report, and say whether all agree.

    `failures` maps a model to the reason why it could not be prepared; it becomes a row too.
    """
    width = max(map(len, [*models, *failures]), default=0)
    line = f"{{:{width}}}  {{:>4}}  {{:30}}  {{:>9}}  {{:>9}}  {{:>8}}  {{}}".format
    print(line(*HEADER), flush=True)
    rows = []
    for row in all_rows(folder, models, command, device, timeout, failures):
        print(line(*row.cells()), flush=True)
        rows.append(row)
    write_report(folder, rows, device)
    agreeing = sum(row.agrees for row in rows)
    print(f"{agreeing} of {len(rows)} agree; see {folder / 'report.md'}")
    return agreeing == len(rows)


def all_rows(folder, models, command, device, timeout, failures):
    for model, reason in failures.items():
        yield refused(folder, model, command, reason, timeout)
    for model in models:
        if model in failures:
            continue
        feeds = sorted((folder / "feeds").glob(f"{model}.[0-9].npz"))
        if not feeds:
            yield Row(model, "has no feeds: run the stage `prepare`")
        for feed in feeds:
            yield compare_feed(folder, model, feed, command, device, timeout)


def refused(folder, model, command, reason, timeout):
    """The row of a model that ONNX Runtime does not take: an error that says why is as good an answer as any other."""
    path = folder / f"{model}.onnx"
    ours = run([command, "inspect", path], timeout) if path.exists() else None
    if ours and ours.startswith("exit status"):
        return Row(model, f"ok: neither runs it; {ours}")
    return Row(model, reason)


def compare_feed(folder, model, feed, command, device, timeout):
    stem = feed.with_suffix("")
    k = int(stem.suffix[1:])
    ours_path = feed.with_suffix(".ours.npz")
    ours_path.unlink(missing_ok=True)
    with np.load(feed) as inputs:
        sizes = " ".join("x".join(map(str, inputs[name].shape)) or "scalar" for name in inputs.files)
    options = ["--device", device, "--inputs", feed, "--outputs", ours_path]
    start = time.perf_counter()
    problem = run([command, "run", folder / f"{model}.onnx", *options], timeout)
    seconds = time.perf_counter() - start
    error = bound = 0.0
    if not problem:
        try:
            with np.load(ours_path) as ours, np.load(f"{stem}.ort.npz") as ort, np.load(f"{stem}.ort0.npz") as ort0:
                error, bound, problem = worst_output(ours, ort, ort0)
        except (OSError, ValueError, zipfile.BadZipFile) as exception:
            problem = f"cannot read the outputs: {exception}"
    return Row(model, problem or "ok", k, sizes, error, bound, seconds)


def run(command, timeout):
    """Run a command; None, or what went wrong in one line."""
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout} s"
    except OSError as error:
        return f"cannot start {command[0]}: {error}"
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip() or "no message"
        return f"exit status {done.returncode}: " + " / ".join(line.strip() for line in said.splitlines()[:2])
    return None


def worst_output(ours, ort, ort0):
    """Error, bound and problem of the output that agrees least; the problem is None when all agree."""
    worst, largest = (0.0, 0.0, None), -1.0
    for name in ort.files:
        if name not in ours.files:
            return 0.0, 0.0, f"output {name} is missing"
        error, bound, problem = judge(ours[name], ort[name], ort0[name])
        if problem:
            return error, bound, f"output {name}: {problem}"
        share = error / bound if bound else 0.0
        if share > largest:
            worst, largest = (error, bound, None), share
    return worst


def judge(ours, ort, ort0):
    if ours.shape != ort.shape:
        return 0.0, 0.0, f"shape {ours.shape} instead of {ort.shape}"
    if ours.dtype != ort.dtype:
        return 0.0, 0.0, f"type {ours.dtype} instead of {ort.dtype}"
    if not np.issubdtype(ort.dtype, np.floating):
        differing = int(((ours != ort) & (ort == ort0)).sum())
        return float(differing), 0.0, f"{differing} of {ort.size} elements differ" if differing else None
    ours, ort, ort0 = (array.astype(np.float64) for array in (ours, ort, ort0))
    finite = np.isfinite(ort)
    if not np.array_equal(ours[~finite], ort[~finite], equal_nan=True) or not np.isfinite(ours[finite]).all():
        return 0.0, 0.0, "infinities or NaN in other places"
    ours, ort, ort0 = ours[finite], ort[finite], ort0[finite]
    error = np.abs(ours - ort).max(initial=0.0)
    doubt = np.abs(ort - ort0).max(initial=0.0, where=np.isfinite(ort0))
    bound = 1e-4 * np.abs(ort).max(initial=0.0) + 2 * doubt
    return float(error), float(bound), None if error <= bound else "beyond the bound"


def write_report(folder, rows, device):
    (folder / "report.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    agreeing = sum(row.agrees for row in rows)
    lines = [
        "# Real models against ONNX Runtime",
        "",
        f"{agreeing} of {len(rows)} agree. Bound: 1e-4 max|ort| + 2 max|ort - ort0| (see tests/models/compare.py).",
        f"Device {device}, commit {commit()}, {time.strftime('%Y-%m-%d')}.",
        "",
        markdown(HEADER),
        markdown(["---"] * len(HEADER)),
        *(markdown(row.cells()) for row in rows),
    ]
    (folder / "report.md").write_text("\n".join(lines) + "\n")


def commit():
    """What is checked out where this file lies."""
    ask = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(ask, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def markdown(cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
