#!/usr/bin/env python3
"""Build the Python package as it is, install it into an environment of its own, and test it.

    python3 python/check.py                  from anywhere: environment, build, types, tests
    python3 python/check.py -k dlpack        what follows is handed to pytest

Needs Rust, Python 3.10 or newer with pip, and the Python package registry. The environment is `target/python`; what is there already is not
made again. The native module is built in the profile of `cargo test`, and shares its folder, so that little is compiled twice.
"""
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
HOME = ROOT / "target/python"
REQUIREMENTS = HERE / "tests/requirements.txt"
SCRIPTS = HOME / ("Scripts" if sys.platform == "win32" else "bin")


def python(*arguments, **options):
    command = [str(SCRIPTS / "python"), *map(str, arguments)]
    return subprocess.run(command, cwd=HERE, check=True, **options)


def pip(*arguments, **options):
    python("-m", "pip", "--disable-pip-version-check", "install", "--quiet", *arguments, **options)


def ensure_environment():
    stamp, wanted = HOME / "installed.txt", REQUIREMENTS.read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    create_environment()
    pip("-r", REQUIREMENTS)
    stamp.write_text(wanted)


def create_environment():
    try:
        venv.create(HOME, with_pip=True)
    except subprocess.CalledProcessError:
        # Some systems have pip, but leave out what `venv` takes it from.
        own = HOME.with_name("virtualenv")
        install = ["-m", "pip", "install", "--quiet", "--target", str(own), "virtualenv"]
        subprocess.run([sys.executable, *install], check=True)
        make = [sys.executable, "-m", "virtualenv", "--quiet", "--clear", str(HOME)]
        subprocess.run(make, env={**os.environ, "PYTHONPATH": str(own)}, check=True)


def install():
    """By pip, as a user does it, but with what is here."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(SCRIPTS), os.environ.get("PATH", "")]),
        "CARGO_TARGET_DIR": os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target")),
        "MATURIN_PEP517_ARGS": "--profile dev",
    }
    pip("--no-build-isolation", "--no-deps", "--force-reinstall", HERE, env=environment)


def command():
    """The command of the same build: `compare` drives Python."""
    subprocess.run(["cargo", "build", "--quiet", "-p", "fuseline-cli"], cwd=ROOT, check=True)
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return folder / "debug" / ("fuseline.exe" if sys.platform == "win32" else "fuseline")


def main():
    try:
        ensure_environment()
        install()
        python("-m", "mypy")
        python("-m", "pytest", "-q", *sys.argv[1:], env={**os.environ, "FUSELINE": str(command())})
    except subprocess.CalledProcessError as error:
        sys.exit(f"failed: {' '.join(error.cmd)}")


if __name__ == "__main__":
    main()
