#!/usr/bin/env python3
"""Whole networks against ONNX Runtime (and OpenVINO, where it is installed), in turn.

    python3 bench/models.py --fuseline target/release/fuseline --threads 1 MODEL.onnx …

Needs onnxruntime and numpy (`python3 tests/models/check.py prepare` makes an environment with both, and models). In every
round each contender loads the model afresh or keeps its session, runs a few times and reports its least and its median; the
table has the least of all rounds and the median of the medians.
"""
import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--fuseline", type=Path, default=Path("target/release/fuseline"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iters", type=int, default=5)
    parser.add_argument("--sizes", default="", help="NAME=SIZE,… for free sizes; the others are 128")
    return parser.parse_args()


def feeds_of(session, sizes):
    rng = np.random.default_rng(0)
    kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
    feeds = {}
    for port in session.get_inputs():
        shape = [size if isinstance(size, int) else sizes.get(size, 128) for size in port.shape]
        if port.type in kinds:
            feeds[port.name] = rng.standard_normal(shape).astype(kinds[port.type])
        else:
            feeds[port.name] = np.ones(shape, {"tensor(bool)": bool, "tensor(int32)": np.int32}.get(port.type, np.int64))
    return feeds


def timed(run, iters):
    times = []
    for _ in range(iters):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return min(times), statistics.median(times)


def ours(args, model, feed):
    command = [args.fuseline, "bench", model, "--only", "fused", "--inputs", feed, "--threads", args.threads]
    command += ["--iters", args.iters, "--warmup", 1, "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    fused = json.loads(done.stdout)["fused"]
    return fused["min_ms"], fused["median_ms"]


def openvino_runner(model, threads, feeds):
    try:
        import openvino
    except ImportError:
        return None
    config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(str(model), "CPU", config)
    request = compiled.create_infer_request()
    return lambda: request.infer(feeds)


def contenders(args, model, folder):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    sizes = dict(pair.split("=") for pair in args.sizes.split(",") if pair)
    feeds = feeds_of(session, {name: int(size) for name, size in sizes.items()})
    feed = Path(folder) / "feed.npz"
    np.savez(feed, **feeds)
    session.run(None, feeds)
    found = {"fuseline": lambda: ours(args, model, feed)}
    found["onnxruntime"] = lambda: timed(lambda: session.run(None, feeds), args.iters)
    if runner := openvino_runner(model, args.threads, feeds):
        runner()
        found["openvino f32"] = lambda: timed(runner, args.iters)
    return found


def main():
    args = arguments()
    print(f"| model | threads | contender | min ms | median ms | min, to ONNX Runtime |\n|---|---|---|---|---|---|")
    for model in args.models:
        with tempfile.TemporaryDirectory() as folder:
            found = contenders(args, model, folder)
            results = {name: [] for name in found}
            for _ in range(args.rounds):
                for name, measure in found.items():
                    results[name].append(measure())
            least = {name: min(r[0] for r in rounds) for name, rounds in results.items()}
            for name, rounds in results.items():
                median = statistics.median(r[1] for r in rounds)
                ratio = least[name] / least["onnxruntime"]
                print(f"| {model.stem} | {args.threads} | {name} | {least[name]:.2f} | {median:.2f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
