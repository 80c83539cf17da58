#!/usr/bin/env python3
"""How near predictions are to what kernels take: `explain --analyze` for every model.

    python3 bench/prediction.py MODEL.onnx … > bench/results/prediction.md

Needs Python alone and the command (`--fuseline`, by default target/release/fuseline). Free sizes are those that `explain` takes.
A kernel's error is |expected − measured| / measured. Which kernels count is the command's own definition (docs/reading-explain.md, `median_error`): different
ones that take 20 µs or more.
"""
import argparse
import datetime
import json
import statistics
import subprocess
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--fuseline", type=Path, default=Path("target/release/fuseline"))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--target", default="here")
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--keep", type=Path, help="a folder for what explain prints, to look at single kernels")
    arguments = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print("# Predicted and measured times of kernels\n")
    print(f"{datetime.date.today()}, commit {commit}, target {arguments.target}, {arguments.precision}; `python3 bench/prediction.py` with the models below.\n")
    print("| model | kernels that count | median error | of all kernels | expected / measured, all kernels | load |\n|---|---:|---:|---:|---:|---:|")
    everything = []
    for model in arguments.models:
        command = [str(arguments.fuseline.resolve()), "explain", str(model), "--analyze", "--json", "--target", arguments.target, "--precision", arguments.precision, "--iters", str(arguments.iters)]
        if arguments.threads:
            command += ["--threads", str(arguments.threads)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"| {model.stem} | – | {done.stderr.strip().splitlines()[0] if done.stderr else done.returncode} | | | |", flush=True)
            continue
        measured = json.loads(done.stdout)["measured"]
        kernels = measured["kernels"]
        if arguments.keep:
            (arguments.keep / f"{model.stem}.json").write_text(json.dumps(measured))
        everything += measured["errors"]
        ratio = sum(k["expected_us"] for k in kernels) / sum(k["us"] for k in kernels)
        load = Path("/proc/loadavg").read_text().split()[0]
        print(f"| {model.stem} | {len(measured['errors'])} | {measured['median_error']:.2f} | {measured['median_error_of_all']:.2f} | {ratio:.2f} | {load} |", flush=True)
    print(f"\nMedian over all: {statistics.median(everything):.2f} of {len(everything)} kernels.")


if __name__ == "__main__":
    main()
