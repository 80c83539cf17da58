#!/usr/bin/env python3
"""Small kernels against ONNX Runtime, OpenVINO and torch.compile, in turn.

    python3 bench/kernels.py --fuseline target/release/fuseline --threads 1 [NAME…]

Every case is a network of a few operators in PyTorch. ONNX Runtime, OpenVINO and Fuseline get it as `torch.onnx.export` writes it,
torch.compile gets it as it is. Needs what `bench/models.py` needs, and PyTorch. Least time of all rounds in microseconds; the ratio is that of
the best of the others to ours.
"""
import argparse
import tempfile
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import models


def of(compute):
    """A network without weights."""
    network = nn.Module()
    network.forward = compute
    return network


class Quantized(nn.Module):
    """A layer norm, each row as signed bytes with a scale of its own."""

    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        y = self.norm(x)
        scale = y.abs().amax(-1, keepdim=True) / 127
        return (y / scale).round().clamp(-127, 127).to(torch.int8), scale


class RMSNorm(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class BiasGelu(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.full((columns,), 0.25))

    def forward(self, x):
        return F.gelu(x + self.bias)


def linear(k, n):
    return nn.Sequential(nn.Linear(k, n), nn.GELU())


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def causal_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


HEADS = (1, 12, 512, 64)
LONG_HEADS = (1, 12, 2048, 64)

# name: the network, and the sizes of its inputs
CASES = {
    "add+GELU 1M": (of(lambda x, y: F.gelu(x + y)), [(1_000_000,)] * 2),
    "add+GELU 10M": (of(lambda x, y: F.gelu(x + y)), [(10_000_000,)] * 2),
    "SwiGLU 1024x1024": (of(lambda x, y: F.silu(x) * y), [(1024, 1024)] * 2),
    "SwiGLU 4096x4096": (of(lambda x, y: F.silu(x) * y), [(4096, 4096)] * 2),
    "bias+GELU 4096x4096": (BiasGelu(4096), [(4096, 4096)]),
    "LayerNorm 4096x768": (nn.LayerNorm(768), [(4096, 768)]),
    "LayerNorm 4096x4096": (nn.LayerNorm(4096), [(4096, 4096)]),
    "LayerNorm+GELU 4096x768": (nn.Sequential(nn.LayerNorm(768), nn.GELU()), [(4096, 768)]),
    "RMSNorm 4096x4096": (RMSNorm(4096), [(4096, 4096)]),
    "softmax 4096x1024": (nn.Softmax(-1), [(4096, 1024)]),
    "LayerNorm+int8 4096x4096": (Quantized(4096), [(4096, 4096)]),
    "linear+GELU 512x768x3072": (linear(768, 3072), [(512, 768)]),
    "linear+GELU 197x771x768": (linear(771, 768), [(197, 771)]),
    "linear+GELU 1x4096x4096": (linear(4096, 4096), [(1, 4096)]),
    "attention S=512": (of(attention), [HEADS] * 3),
    "attention S=2048": (of(attention), [LONG_HEADS] * 3),
    "causal attention S=2048": (of(causal_attention), [LONG_HEADS] * 3),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names; all cases unless there are some")
    parser.add_argument("--fuseline", type=Path, default=Path("target/release/fuseline"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iters", type=int, default=7)
    parser.set_defaults(precision="f32", sizes="")
    return parser.parse_args()


def export(network, shapes, path, dtype=torch.float32):
    inputs = tuple(torch.randn(shape).to(dtype) for shape in shapes)
    names = [f"x{k}" for k in range(len(shapes))]
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(network, inputs, str(path), input_names=names, opset_version=20, dynamo=False)


def main():
    args = arguments()
    torch.manual_seed(0)
    others = ["onnxruntime", "openvino f32", "torch.compile"]
    print(f"| {args.threads} thread(s) | Fuseline | " + " | ".join(others) + " | best other / ours | error |")
    print("|---|" + "---:|" * (len(others) + 3))
    with tempfile.TemporaryDirectory() as folder:
        for name, (network, shapes) in CASES.items():
            if args.names and not any(part in name for part in args.names):
                continue
            path = Path(folder) / "kernel.onnx"
            network.eval()
            export(network, shapes, path)
            results = models.measure_in_turn(args, path, network)
            ours, _, error = results["fuseline f32"]
            theirs = [results[other][0] if other in results else None for other in others]
            best = min(time for time in theirs if time is not None)
            times = " | ".join("" if time is None else f"{time * 1e3:.0f}" for time in theirs)
            print(f"| {name} | {ours * 1e3:.0f} | {times} | {best / ours:.2f} | {error:.0e} |", flush=True)


if __name__ == "__main__":
    main()
