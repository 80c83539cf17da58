#!/usr/bin/env python3
"""How near predictions are to what kernels take: `explain --analyze` for every model.

    python3 bench/prediction.py MODEL.onnx … > bench/results/prediction.md

Needs Python alone and the command (`--fuseline`, by default target/release/fuseline). Free sizes are those that `explain` takes.
A kernel's error is |predicted − measured| / measured; kernels that are equal count once, and those that take less than `--least` µs
(calls, not work) are left out.
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
    parser.add_argument("--least", type=float, default=20.0)
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--keep", type=Path, help="a folder for what explain prints, to look at single kernels")
    arguments = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print("# Predicted and measured times of kernels\n")
    print(f"{datetime.date.today()}, commit {commit}, target {arguments.target}, {arguments.precision}; `python3 bench/prediction.py` with the models below.\n")
    print("| model | distinct kernels | median error | worst kinds | predicted / measured, all kernels |\n|---|---|---|---|---|")
    everything = []
    for model in arguments.models:
        command = [str(arguments.fuseline.resolve()), "explain", str(model), "--analyze", "--json", "--target", arguments.target, "--precision", arguments.precision]
        if arguments.threads:
            command += ["--threads", str(arguments.threads)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"| {model.stem} | – | {done.stderr.strip().splitlines()[0] if done.stderr else done.returncode} | | |", flush=True)
            continue
        measured = json.loads(done.stdout)["measured"]["kernels"]
        if arguments.keep:
            (arguments.keep / f"{model.stem}.json").write_text(json.dumps(measured))
        distinct = [k for k in measured if k.get("equal_to") is None or measured.index(k) == k["equal_to"]]
        kernels = [k for k in distinct if k["us"] >= arguments.least]
        errors = {}
        for kernel in kernels:
            errors.setdefault(kernel["kind"], []).append(abs(kernel["expected_us"] - kernel["us"]) / kernel["us"])
        own = [error for kind in errors.values() for error in kind]
        if not own:
            continue
        everything += own
        kinds = sorted(((statistics.median(e), kind) for kind, e in errors.items()), reverse=True)
        worst = ", ".join(f"{kind} {median:.2f}" for median, kind in kinds[:3])
        ratio = sum(k["expected_us"] for k in measured) / sum(k["us"] for k in measured)
        print(f"| {model.stem} | {len(own)} | {statistics.median(own):.2f} | {worst} | {ratio:.2f} |", flush=True)
    print(f"\nMedian over all: {statistics.median(everything):.2f} of {len(everything)} kernels.")


if __name__ == "__main__":
    main()
