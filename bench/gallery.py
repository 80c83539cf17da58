#!/usr/bin/env python3
"""Every entry of the gallery, fused and unfused, on one device.

    python3 bench/gallery.py --device cpu --out bench/results/gallery-cpu.json
    python3 bench/gallery.py --device cuda --dtype bf16 --out bench/results/gallery-h200.json

Needs Python alone and the command (`--fuseline`, by default target/release/fuseline). Each entry runs as planned, with a kernel for every
operator and with one for every primitive, in turns; the file has medians, traffic and kernels of each, and says on what
machine, when, of which commit and by which command it was measured. `docs/kernel-gallery` shows it.
"""
import argparse
import datetime
import json
import platform
import shlex
import subprocess
import sys
from pathlib import Path

# What is measured, by device: sizes as networks have them, large enough that launches do not decide.
SIZES = {
    "cpu": {
        "elements": {"n": 10_000_000},
        "rows": {"rows": 4096, "columns": 1024},
        "product": {"m": 512, "k": 768, "n": 3072},
        "others": {"tokens": 512, "features": 768, "size": 768, "hidden": 3072, "batch": 1, "heads": 12, "queries": 512, "keys": 512},
        "attention": {"size": 64},
        "picture": {"batch": 4, "channels": 64, "height": 56, "width": 56, "filters": 64},
        "experts": {"tokens": 128, "experts": 8, "features": 512, "hidden": 512},
    },
    "cuda": {
        "elements": {"n": 32_000_000},
        "rows": {"rows": 8192, "columns": 4096},
        "product": {"m": 4096, "k": 4096, "n": 4096},
        "others": {"tokens": 4096, "features": 1024, "size": 1024, "hidden": 4096, "batch": 4, "heads": 16, "queries": 2048, "keys": 2048},
        "attention": {"size": 64, "tokens": 2048},
        "picture": {"batch": 32, "channels": 64, "height": 56, "width": 56, "filters": 64},
        "experts": {"tokens": 512, "experts": 8, "features": 1024, "hidden": 1024},
    },
}


def sizes_of(entry, device):
    """The sizes that an entry is measured with."""
    table, names = SIZES[device], entry["sizes"]
    families = [("experts", "experts"), ("channels", "picture"), ("m", "product"), ("rows", "rows"), ("n", "elements")]
    family = next((family for name, family in families if name in names), "others")
    chosen = dict(table["others"]) | table[family]
    if "heads" in names:
        chosen |= table["attention"]
    return {name: chosen.get(name, usual) for name, usual in names.items()}


def measured(arguments, entry):
    """What an entry takes, or why that is not known."""
    sizes = sizes_of(entry, arguments.device)
    bound = ",".join(f"{name}={size}" for name, size in sizes.items())
    command = [str(arguments.fuseline), "bench", f"gallery:{entry['name']}", "--device", arguments.device]
    command += ["--sizes", bound, "--dtype", arguments.dtype, "--iters", str(arguments.iters), "--json"]
    if arguments.threads:
        command += ["--threads", str(arguments.threads)]
    row = {"row": entry["row"], "name": entry["name"], "sizes": sizes}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.timeout)
    except subprocess.TimeoutExpired:
        return row | {"error": f"not done after {arguments.timeout} s"}
    if done.returncode != 0:
        return row | {"error": done.stderr.strip().splitlines()[0] if done.stderr.strip() else f"status {done.returncode}"}
    report = json.loads(done.stdout)
    for plan in ("fused", "per_node", "per_primitive"):
        told = report[plan]
        row[plan] = {"us": round(told["median_ms"] * 1e3, 2), "bytes": told["bytes"], "kernels": told["kernels"]}
    return row


def machine(device):
    """The machine in words."""
    if device == "cuda":
        asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(asked, capture_output=True, text=True).stdout.strip() or "an NVIDIA GPU"
    names = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {len(names)} processors"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=sorted(SIZES), default="cpu")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--iters", type=int, default=31)
    parser.add_argument("--timeout", type=int, default=60, help="seconds for an entry")
    parser.add_argument("--fuseline", type=Path, default=Path("target/release/fuseline"))
    parser.add_argument("--commit", help="of what is measured [default: that of the working tree]")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.fuseline = arguments.fuseline.resolve()
    entries = json.loads(subprocess.run([arguments.fuseline, "gallery", "--json"], capture_output=True, text=True, check=True).stdout)
    commit = arguments.commit or subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    rows = []
    for k, entry in enumerate(entries):
        if sys.stderr.isatty():
            print(f"\r{k + 1} of {len(entries)}: {entry['name']:<30}", end="", file=sys.stderr, flush=True)
        rows.append(measured(arguments, entry))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    said = ["--commit", arguments.commit]
    options = [option for option in sys.argv[1:] if option not in said]
    told = {
        "machine": machine(arguments.device),
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "command": "python3 bench/gallery.py " + shlex.join(options),
        "dtype": arguments.dtype,
        "rows": rows,
    }
    # A line for every row: small differences are small in a diff.
    head = json.dumps({key: told[key] for key in told if key != "rows"}, indent=1)[:-2]
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    arguments.out.write_text(f"{head},\n \"rows\": [\n{lines}\n ]\n}}\n")


if __name__ == "__main__":
    main()
