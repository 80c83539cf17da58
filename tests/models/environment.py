"""The Python environment of the model check: a venv with pinned packages (standard library only).

`requirements.txt` names every package, dependencies included, and is installed with `--no-deps`.
That leaves out the CUDA libraries of torch's Linux wheel (several gigabytes); since the wheel's own
libraries still link against them, `stub_missing_libraries` puts empty ones in their place, in which
every function answers 100, "no device". What torch does on the CPU never calls them.
"""
import re
import subprocess
import sys
import tempfile
import venv
from collections import defaultdict
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
CUDA_SYMBOL = re.compile(r"cu|nccl|nvshmem")


def python_of(folder):
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def ensure(folder):
    """Create the venv, or bring it to the pinned versions, unless it holds them already."""
    stamp = folder / "installed.txt"
    wanted = REQUIREMENTS.read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"set-up: installing {REQUIREMENTS.name} into {folder}", flush=True)
    if not python_of(folder).exists():
        venv.create(folder, with_pip=True)
    pip = [python_of(folder), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "-r", REQUIREMENTS], check=True)
    if sys.platform == "linux":
        for torch in folder.glob("lib/python*/site-packages/torch/lib"):
            stub_missing_libraries(torch)
    subprocess.run([python_of(folder), "-c", "import torch, torchvision, transformers, onnx, onnxruntime"], check=True)
    stamp.write_text(wanted)


def stub_missing_libraries(folder):
    """Build a stand-in for every library which the libraries in `folder` need and the machine lacks."""
    libraries = sorted(folder.glob("*.so"))
    missing = set(re.findall(r"(\S+) => not found", tool("ldd", *libraries)))
    if not missing:
        return
    versions = defaultdict(set)  # library -> the symbol versions that are asked of it
    for block in re.findall(r"required from (.*?)(?=required from|\Z)", tool("objdump", "-p", *libraries), re.S):
        name, _, rest = block.partition(":")
        versions[name].update(re.findall(r"0x\S+ 0x\S+ \d+ (\S+)", rest))
    symbols = defaultdict(set)  # version, or "" for none -> the symbols that nobody defines
    for line in tool("nm", "-D", "-u", "-P", *libraries).splitlines():
        name, _, version = line.split(" ")[0].partition("@")
        if version or CUDA_SYMBOL.match(name):
            symbols[version.lstrip("@")].add(name)
    with tempfile.TemporaryDirectory() as scratch:
        for name in sorted(missing):
            build_stub(folder / name, {v: symbols[v] for v in versions.get(name) or {""}}, Path(scratch))


def build_stub(path, symbols, scratch):
    """Compile a library with these symbols, a mapping from symbol version to names."""
    names = sorted(set().union(*symbols.values()))
    source, versions = scratch / "stub.c", scratch / "stub.map"
    source.write_text("".join(f"long {name}(void) {{ return 100; }}\n" for name in names))
    versions.write_text("".join(f"{v} {{ {' '.join(f'{n};' for n in sorted(symbols[v]))} }};\n" for v in symbols if v))
    options = ["-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{path.name}"]
    if versions.stat().st_size:
        options.append(f"-Wl,--version-script={versions}")
    subprocess.run(["cc", *options, "-o", path, source], check=True)


def tool(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
