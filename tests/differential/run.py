#!/usr/bin/env python3
"""Random models, operator by operator, against ONNX Runtime.

    target/models/venv/bin/python tests/differential/run.py                  # every operator, 40 models each
    target/models/venv/bin/python tests/differential/run.py Conv Resize --count 500 --seed 7
    target/models/venv/bin/python tests/differential/run.py Conv --only 37 --keep /tmp/found

Each generator draws a model of one or a few nodes: attributes, shapes (empty ones and those of size 1 included), element types,
versions of the operator set, operands as constants or as inputs, sizes as numbers or as symbols. ONNX Runtime without optimisations and
`fuseline run` on each device answer it. Where they differ, ONNX's own reference evaluator is asked too, and the line says with
whom it agrees. A model that ONNX Runtime refuses is compared with the reference evaluator; where that refuses too, only a panic or a
bug is a finding. Floats may be apart by 1e-4 of the largest (f16: 4e-3), integers not at all, quantised ones by a step.

Needs the environment of `tests/models/check.py prepare` and a release build. Lines that are printed are for somebody to judge
by the standard: ONNX Runtime is not always right, and `known.py` holds, with its reason, where it is not.
"""

import argparse
import collections
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import onnxruntime

sys.path.insert(0, str(Path(__file__).parent))
import attention, contributed, control, elements, moving, other, quantised, recurrent, sums, windows  # noqa: E401, E402, F401
from known import known  # noqa: E402
from net import GENERATORS, Draw  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", help="names of generators; all if there are none")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="only the case of this number")
    parser.add_argument("--keep", type=Path, help="where to keep the models that are findings")
    parser.add_argument("--command", type=Path, default=ROOT / "target/release/fuseline")
    parser.add_argument("--devices", default="reference,cpu")
    parser.add_argument("--explain", action="store_true", help="say why ONNX Runtime refuses a model that nobody judges")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    totals = collections.Counter()
    for name in options.ops or GENERATORS:
        counts = sweep(name, options)
        print(f"{name:28} {' '.join(f'{k} {n}' for k, n in sorted(counts.items()))}", flush=True)
        totals.update(counts)
    print("all", dict(totals))
    return 1 if any(totals[kind] for kind in ("wrong", "refused", "bug")) else 0


def sweep(name, options):
    """Compare the cases of a generator. ONNX Runtime ends with the process on some models; the next process goes on behind them."""
    cases = [options.only] if options.only is not None else list(range(options.count))
    counts = collections.Counter()
    while cases:
        for kind in in_a_process_of_its_own(lambda: one_by_one(name, cases, options)):
            counts[kind] += 1
            cases.pop(0)
        if cases:
            counts["ended ONNX Runtime"] += 1
            cases.pop(0)
    return counts


def in_a_process_of_its_own(work):
    """What `work` yields, as far as it comes."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as out:
            for word in work():
                print(word, file=out, flush=True)
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        words = said.read().split()
    os.waitpid(child, 0)
    return words


def one_by_one(name, cases, options):
    with tempfile.TemporaryDirectory() as folder:
        for k in cases:
            try:
                net = GENERATORS[name](Draw(options.seed, name, k))
                model = net.model()
            except Exception as error:  # a generator that draws what cannot be
                print(f"{name} {k}: cannot be drawn: {type(error).__name__} {error}", flush=True)
                yield "undrawn"
                continue
            kind, lines = compare(name, net, model, Path(folder), options)
            for line in lines:
                print(f"{name} {k}: {kind}: {line}\n    {describe(net)}", flush=True)
            if lines and options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(folder) / "m.onnx", options.keep / f"{name}.{k}.onnx")
                shutil.copy(Path(folder) / "x.npz", options.keep / f"{name}.{k}.npz")
            yield kind


KINDS = ["agree", "unjudged", "known", "refused", "wrong", "bug"]  # the worst last


def compare(name, net, model, folder, options):
    """The worst kind of all devices, and what is to be said."""
    theirs, complaint = peer(model, net.feed)
    if theirs is None:
        theirs, _ = evaluator(model, net.feed)
    if theirs is None and options.explain:
        print(f"{name}: {complaint[:300]}\n    {describe(net)}", flush=True)
    typed = theirs is not None and all(isinstance(t, np.ndarray | list) for t in theirs)
    onnx.save(net.model(dict(zip(net.outputs, theirs)) if typed else None), folder / "m.onnx")
    save_feed(folder / "x.npz", net.feed)
    worst, lines = "agree", []
    for device in options.devices.split(","):
        ours, trouble = answer(options.command, device, folder)
        kind, line = judge(name, net, model, ours, trouble, theirs, complaint)
        worst = max(worst, kind, key=KINDS.index)
        if line:
            lines.append(f"{device}: {line}")
    return worst, lines


def judge(name, net, model, ours, trouble, theirs, complaint):
    """The kind of one answer (or of the trouble there was), and what is to be said about it."""
    if trouble and any(sign in trouble for sign in ("panicked", "bug", "status -", "status 101", "no answer")):
        return "bug", trouble
    if theirs is None:
        return "unjudged", None
    says = "ORT refused: " + complaint[:100] if complaint else "ORT"
    problem = trouble or disagreement(net, theirs, ours)
    if problem is None:
        return "agree", None
    if not trouble and not complaint:
        says = "the evaluator cannot say"
        also, _ = evaluator(model, net.feed)
        if also is not None:
            answers = ("ours", ours), ("ORT's", dict(zip(net.outputs, theirs)))
            agreeing = [who for who, answer in answers if disagreement(net, also, answer) is None]
            says = f"the evaluator's is {' and '.join(agreeing) or 'another'}"
    if known(name, net, problem, says):
        return "known", None
    return "refused" if trouble else "wrong", f"[{says}] {problem}"


def peer(model, feed):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, feed), None
    except Exception as error:
        return None, str(error).replace("\n", " ")


def evaluator(model, feed):
    try:
        with np.errstate(all="ignore"):
            results = onnx.reference.ReferenceEvaluator(model).run(None, feed)
        return [r if isinstance(r, list) else np.asarray(r) for r in results], None
    except BaseException as error:
        return None, f"{type(error).__name__} {error}"


def answer(command, device, folder):
    outputs = folder / "y.npz"
    outputs.unlink(missing_ok=True)
    line = [
        command,
        "run",
        folder / "m.onnx",
        "--inputs",
        folder / "x.npz",
        "--outputs",
        outputs,
        "--device",
        device,
        "-q",
        "--threads",
        "2",
    ]
    if device != "cpu":
        line = line[:-2]
    try:
        done = subprocess.run(list(map(str, line)), capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return None, "no answer within 60 s"
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or "no message"
        return None, f"status {done.returncode}: " + " / ".join(s.strip() for s in said.splitlines()[:4])
    with np.load(outputs) as arrays:
        return dict(arrays), None


def save_feed(path, feed):
    arrays = {}
    for name, array in feed.items():
        arrays[name] = np.char.encode(array.astype(str), "utf-8") if array.dtype.kind == "O" else array
    np.savez(path, **arrays)


def disagreement(net, theirs, ours):
    """None, or what is different first."""
    for name, b in zip(net.outputs, theirs):
        if b is None:
            continue
        if isinstance(b, list):
            a = (
                [ours[f"{name}.{k}"] for k in range(len(b)) if f"{name}.{k}" in ours]
                if isinstance(ours, dict) and name not in ours
                else ours.get(name, [])
            )
            if len(a) != len(b) or f"{name}.{len(b)}" in ours:
                return f"{name}: {len(a)} elements instead of {len(b)}"
            pairs = list(zip(a, b))
        else:
            if name not in ours:
                return f"{name} is missing"
            pairs = [(ours[name], b)]
        for a, b in pairs:
            problem = tell_apart(np.asarray(a), np.asarray(b), net)
            if problem:
                return f"{name}: {problem}"
    return None


def tell_apart(a, b, net):
    if b.dtype.kind in "OUS":
        a = np.char.decode(a, "utf-8") if a.dtype.kind == "S" else a.astype(str)
        b = b.astype(str)
        return None if a.shape == b.shape and (a == b).all() else f"{a.tolist()} instead of {b.tolist()}"
    if a.shape != b.shape:
        return f"shape {a.shape} instead of {b.shape}"
    if a.dtype != b.dtype:
        return f"type {a.dtype} instead of {b.dtype}"
    if not a.size:
        return None
    a, b = np.atleast_1d(a, b)
    if b.dtype.kind not in "fc":
        far = np.abs(a.astype(object) - b.astype(object)) if b.dtype.kind != "b" else (a != b)
        wrong = far > net.steps
        if not wrong.any():
            return None
        at = tuple(int(i[0]) for i in np.nonzero(wrong))
        return f"{int(wrong.sum())} of {wrong.size} differ, at {at} {a[at]} instead of {b[at]}"
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        wrong = ~((a == b) | (np.isnan(a) & np.isnan(b))) & ~(np.isfinite(a) & finite)
        at = tuple(int(i[0]) for i in np.nonzero(wrong))
        return f"{int(wrong.sum())} of {wrong.size} not finite elsewhere, at {at} {a[at]} instead of {b[at]}"
    x, y = a[finite].astype(np.complex128), b[finite].astype(np.complex128)
    if not x.size:
        return None
    far = np.abs(x - y)
    bound = (net.tolerance or (4e-3 if b.dtype == np.float16 else 1e-4)) * max(np.abs(y).max(), 1e-2)
    if far.max() <= bound:
        return None
    at = int(far.argmax())
    beyond = f"{int((far > bound).sum())} of {far.size}"
    return f"off by {far.max():.3g} of {np.abs(y).max():.3g}: {x[at].real:.6g} instead of {y[at].real:.6g}, {beyond}"


def describe(net):
    """The model in a line."""
    constants = {c.name: onnx.numpy_helper.to_array(c) for c in net.constants}
    parts = []
    for node in net.nodes:
        attributes = ", ".join(f"{a.name}={show_attribute(a)}" for a in node.attribute)
        inputs = ", ".join(show_operand(n, net.feed, constants) for n in node.input)
        parts.append(f"{node.domain + '.' if node.domain else ''}{node.op_type}({inputs}; {attributes}) -> {','.join(node.output)}")
    return f"opset {net.opset}: " + " | ".join(parts)


def show_attribute(a):
    value = onnx.helper.get_attribute_value(a)
    return "graph" if a.type == onnx.AttributeProto.GRAPH else str(value)[:80].replace("\n", " ")


def show_operand(name, feed, constants):
    kind, array = ("in", feed[name]) if name in feed else ("const", constants.get(name))
    if array is None:
        return name or "-"
    values = f"={array.tolist()}" if array.size <= 8 and array.dtype.kind in "iubO" else ""
    return f"{name}:{kind} {array.dtype.str[1:]}{list(array.shape)}{values}"


if __name__ == "__main__":
    sys.exit(main())
