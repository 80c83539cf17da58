#!/usr/bin/env python3
"""Whose answer is it, where a network quantises at run time and two runtimes disagree?

    target/models/venv/bin/python tests/models/boundaries.py

`ddddocr/common_old` rounds its activations to 8 bits between layers. A value that lies on a boundary of that rounding falls to either
side by its last bit, so that answers which differ in last bits become answers which differ by whole steps. For each feed, the program
prints the largest distances between: ONNX Runtime with and without optimisations; the same with every Sigmoid computed in f64 and
rounded once; the same with an input that is moved by 1e-7 of itself; and Fuseline in each of its readings. Needs `check.py prepare`
and a release build.
"""
import copy
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
MODEL = "real/ddddocr/common_old"
READINGS = {
    "exact": ["--device", "reference"],
    "rounded": ["--device", "reference", "--reading", "rounded"],
    "cpu, strict": ["--device", "cpu", "--numerics", "strict"],
    "cpu": ["--device", "cpu"],
}


def with_wide_sigmoids(model):
    """The model with every Sigmoid between conversions to f64 and back: the rounded value of the function."""
    model, nodes = copy.deepcopy(model), []
    for node in model.graph.node:
        if node.op_type != "Sigmoid":
            nodes.append(node)
            continue
        (x,), (y,) = node.input, node.output
        nodes.append(helper.make_node("Cast", [x], [f"{x}_wide"], to=TensorProto.DOUBLE))
        nodes.append(helper.make_node("Sigmoid", [f"{x}_wide"], [f"{y}_wide"]))
        nodes.append(helper.make_node("Cast", [f"{y}_wide"], [y], to=TensorProto.FLOAT))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def answer_of_peer(model, feed, optimised):
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.log_severity_level = 3  # it warns of a shape that the file declares
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]


def answer_of_ours(command, path, feed, options):
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder) / "outputs.npz"
        run = [command, "run", path, "--inputs", feed, "--outputs", outputs, *options]
        subprocess.run(list(map(str, run)), check=True, capture_output=True)
        with np.load(outputs) as arrays:
            return arrays[arrays.files[0]]


def other_feeds(model, folder):
    """Eight more images, uniform and normal, of 96 to 199 columns, as files."""
    numbers, paths = np.random.default_rng(7), []
    for k, columns in enumerate([96, 120, 128, 160, 161, 177, 190, 199]):
        shape = (1, 1, 64, columns)
        image = numbers.random(shape) if k % 2 else numbers.standard_normal(shape)
        paths.append(folder / f"other.{k}.npz")
        np.savez(paths[-1], **{model.graph.input[0].name: image.astype(np.float32)})
    return paths


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "target/models"
    command = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "target/release/fuseline"
    model = onnx.load(folder / f"{MODEL}.onnx")
    wide = with_wide_sigmoids(model)
    more = Path(tempfile.mkdtemp())
    for path in sorted((folder / "feeds").glob(f"{MODEL}.[0-9].npz")) + other_feeds(model, more):
        with np.load(path) as arrays:
            feed = dict(arrays)
        noise = np.random.default_rng(0)
        moves = [{n: (x * (1 + 1e-7 * noise.standard_normal(x.shape))).astype(x.dtype) for n, x in feed.items()} for _ in range(4)]
        answers = {
            "ORT": answer_of_peer(model, feed, True),
            "ORT, unoptimised": answer_of_peer(model, feed, False),
            "ORT, f64 Sigmoid": answer_of_peer(wide, feed, True),
        }
        answers |= {f"ORT, moved {k}": answer_of_peer(model, moved, True) for k, moved in enumerate(moves)}
        answers |= {name: answer_of_ours(command, folder / f"{MODEL}.onnx", path, o) for name, o in READINGS.items()}
        against = ["ORT", "ORT, f64 Sigmoid", "exact", "rounded"]
        print(f"\n{path.name}: largest output {np.abs(answers['ORT']).max():.1f}\n")
        print("| largest distance |", " | ".join(against), "| choices that differ from exact |")
        print("| --- |", " | ".join("---" for _ in against), "| --- |")
        for name, a in answers.items():
            cells = [f"{np.abs(a.astype(float) - answers[b]).max():.2g}" for b in against]
            differ = int((a.argmax(-1) != answers["exact"].argmax(-1)).sum())
            print(f"| {name} |", " | ".join(cells), f"| {differ} of {a[..., 0].size} |")


if __name__ == "__main__":
    main()
