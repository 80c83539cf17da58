"""`fuseline compare`, which drives the Python that has the rivals: this one."""

import json
import os
import subprocess
import sys

import models


def compare(path, *options):
    command = [os.environ.get("FUSELINE", "fuseline"), "compare", str(path), "--python", sys.executable, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_a_model_is_compared_with_onnxruntime(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(models.attention())
    done = compare(path, "--sizes", "tokens=9", "--rounds", "2", "--iters", "3", "--threads", "1", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    ours, theirs = result["contenders"][:2]
    assert (ours["name"], theirs["name"], result["errors_to"]) == ("fuseline", "onnxruntime", "onnxruntime")
    assert len(ours["ms"]) == len(theirs["ms"]) == 6
    assert theirs["error"]["rms"] == 0 and 0 < ours["error"]["rms"] < 1e-5
    done = compare(path, "--rivals", "onnxruntime", "--exact")
    assert done.returncode == 0 and "onnxruntime" in done.stdout and "batch=1,tokens=128" in done.stdout


def test_outputs_that_are_no_floats_are_counted(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(models.counted())
    result = json.loads(compare(path, "--rivals", "onnxruntime", "--json").stdout)
    assert result["contenders"][0]["error"] == {"rms": 0.0, "unequal": 0, "unlike": 0}


def test_a_model_that_a_rival_does_not_take_is_told(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(models.typed(models.BF16))
    done = compare(path, "--rivals", "onnxruntime")
    assert done.returncode == 0 and "onnxruntime does not run the model" in done.stdout, done.stdout + done.stderr
