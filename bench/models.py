#!/usr/bin/env python3
"""Whole networks against ONNX Runtime (and OpenVINO and torch.compile, where they are installed), in turn.

    python3 bench/models.py --fuseline target/release/fuseline --threads 1 MODEL.onnx …

Needs onnxruntime and numpy (`python3 tests/models/check.py prepare` makes an environment with both, and models). In every
round each contender loads the model afresh or keeps its session, runs a few times and reports its least and its median; the
table has the least of all rounds and the median of the medians. The error is the root mean square of what differs from ONNX
Runtime in f32, to that of its outputs.

torch.compile gets the network that a generated model was exported from (`tests/models/networks.py`, by the name of the file), with
the same weights; other models are measured without it.

With `--precision bf16`, Fuseline rounds the factors of contractions to bf16, and OpenVINO computes as it likes to, which is
bf16 where the processor has units for it; torch.compile is left out.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.append(str(Path(__file__).parent.parent / "tests" / "models"))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--fuseline", type=Path, default=Path("target/release/fuseline"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iters", type=int, default=5)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
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
    command = [args.fuseline, "bench", model, "--only", "fused", "--threads", args.threads]
    command += ["--inputs", feed] if feed else []
    command += ["--iters", args.iters, "--warmup", 1, "--precision", args.precision, "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    fused = json.loads(done.stdout)["fused"]
    return fused["min_ms"], fused["median_ms"]


def our_outputs(args, model, feed, folder):
    outputs = Path(folder) / "outputs.npz"
    command = [args.fuseline, "run", model, "--device", "cpu", "--inputs", feed, "--outputs", outputs, "--quiet"]
    command += ["--threads", args.threads, "--precision", args.precision]
    subprocess.run(list(map(str, command)), capture_output=True, check=True)
    return dict(np.load(outputs))


def error(expected, actual):
    """Of all float outputs together; 0 where there is none."""
    pairs = [(np.asarray(e, np.float64), np.asarray(actual[name], np.float64)) for name, e in expected.items()
             if np.issubdtype(e.dtype, np.floating)]
    size = sum(np.square(e).sum() for e, _ in pairs)
    return float(np.sqrt(sum(np.square(e - a).sum() for e, a in pairs) / size)) if size else 0.0


def openvino_runner(model, threads, feeds, precision):
    try:
        import openvino
    except ImportError:
        return None
    config = {"INFERENCE_NUM_THREADS": threads}
    if precision == "f32":
        config["INFERENCE_PRECISION_HINT"] = "f32"
    compiled = openvino.Core().compile_model(str(model), "CPU", config)
    request = compiled.create_infer_request()
    return lambda: request.infer(feeds)


def network_of(model):
    """The network that a generated model was exported from; none for others."""
    try:
        import generate
    except ImportError:
        return None
    name = model.stem.partition(".")[0]
    if name not in generate.VARIANTS:
        return None
    return generate.build(name, model.parent.parent / "weights" / "minilm")[0]


def torch_runner(network, threads, feeds):
    if network is None:
        return None
    import torch

    torch.set_num_threads(threads)
    compiled = torch.compile(network)
    values = [torch.from_numpy(feed) for feed in feeds.values()]

    def run():
        with torch.inference_mode():
            return compiled(*values)

    return run


def outputs_of_torch(result, names):
    results = result if isinstance(result, (tuple, list)) else [result]
    return {name: value.numpy() for name, value in zip(names, results, strict=True)}


def contenders(args, model, network, folder):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    sizes = dict(pair.split("=") for pair in args.sizes.split(",") if pair)
    feeds = feeds_of(session, {name: int(size) for name, size in sizes.items()})
    feed = Path(folder) / "feed.npz"
    np.savez(feed, **feeds)
    names = [port.name for port in session.get_outputs()]
    expected = dict(zip(names, session.run(None, feeds)))
    ours_is, openvino_is = (f"{name} {args.precision}" for name in ("fuseline", "openvino"))
    found = {ours_is: lambda: ours(args, model, feed)}
    found["onnxruntime"] = lambda: timed(lambda: session.run(None, feeds), args.iters)
    errors = {ours_is: error(expected, our_outputs(args, model, feed, folder)), "onnxruntime": 0.0}
    if runner := openvino_runner(model, args.threads, feeds, args.precision):
        results = runner()
        errors[openvino_is] = error(expected, {name: results[k] for k, name in enumerate(names)})
        found[openvino_is] = lambda: timed(runner, args.iters)
    if args.precision == "f32" and (compiled := torch_runner(network, args.threads, feeds)):
        errors["torch.compile"] = error(expected, outputs_of_torch(compiled(), names))
        found["torch.compile"] = lambda: timed(compiled, args.iters)
    return found, errors


def measure_in_turn(args, model, network):
    """Least and median of every contender, in milliseconds, and its error."""
    with tempfile.TemporaryDirectory() as folder:
        found, errors = contenders(args, model, network, folder)
        results = {name: [] for name in found}
        for _ in range(args.rounds):
            for name, measure in found.items():
                results[name].append(measure())
    return {name: (min(r[0] for r in rounds), statistics.median(r[1] for r in rounds), errors[name])
            for name, rounds in results.items()}


def main():
    args = arguments()
    print("| model | threads | contender | min ms | median ms | min, to ONNX Runtime | error |\n|---|---|---|---|---|---|---|")
    for model in args.models:
        results = measure_in_turn(args, model, network_of(model))
        for name, (least, median, error) in results.items():
            times = f"{least:.2f} | {median:.2f} | {least / results['onnxruntime'][0]:.2f} | {error:.1e}"
            print(f"| {model.stem} | {args.threads} | {name} | {times} |", flush=True)


if __name__ == "__main__":
    main()
