#!/usr/bin/env python3
"""Products in bf16 and attention against PyTorch, and odd sizes against their neighbours, on one thread, in turn.

    python3 bench/products.py --fuseline target/release/fuseline [--rounds N] [--iters N] [bf16] [attention] [odd]

bf16: a product with constant weights in PyTorch (oneDNN), with factors and results in bf16; in Fuseline the same, and once more with
`--precision bf16`, where it is given f32, rounds it and answers in f32. attention: `scaled_dot_product_attention` in f32. odd: Fuseline alone; the rate of an odd size over that of the round one beside
it. Least time of all rounds in microseconds; ratios are above 1 where we are faster. Needs what `bench/kernels.py` needs.
"""
import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import kernels
import models

# rows, steps, columns
PRODUCTS = [(512, 768, 3072), (512, 3072, 768), (128, 768, 768), (197, 771, 768), (1, 4096, 4096)]

# batch, heads, tokens, size
ATTENTION = [(1, 12, 512, 64), (1, 12, 2048, 64)]

PRODUCT = "linear {}x{}x{}"
HEADS = "attention B={} S={}"
ROWS = "{} of {} columns"
# each with its round neighbour
ODD = (
    [(PRODUCT, (197, 768, 768), (192, 768, 768)), (PRODUCT, (192, 771, 768), (192, 768, 768)),
     (PRODUCT, (197, 771, 771), (192, 768, 768)), (HEADS, (1, 197), (1, 192)), (HEADS, (3, 128), (4, 128))]
    + [(PRODUCT, (m, 768, 768), (n, 768, 768)) for m, n in [(3, 4), (7, 8), (13, 16), (17, 16), (31, 32)]]
    + [(ROWS, (kind, odd), (kind, even)) for kind in ("softmax", "LayerNorm") for odd, even in
       [(1, 2), (3, 4), (7, 8), (13, 16), (17, 16), (31, 32), (1023, 1024)]]
)


def network_of(kind, sizes):
    """A network, the sizes of its inputs, and how much work it has."""
    if kind is PRODUCT:
        m, k, n = sizes
        return nn.Linear(k, n), [(m, k)], m * k * n
    if kind is HEADS:
        batch, tokens = sizes
        return kernels.of(kernels.attention), [(batch, 12, tokens, 64)] * 3, batch * tokens * tokens
    name, columns = sizes
    network = nn.Softmax(-1) if name == "softmax" else nn.LayerNorm(columns)
    rows = (1 << 20) // columns
    return network, [(rows, columns)], rows * columns


def prepare(network, shapes, folder, name, dtype=torch.float32):
    """The file of a network, and that of its inputs; none for types that NumPy has not, for which Fuseline draws numbers."""
    model, feed = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}.npz"
    kernels.export(network.eval().to(dtype), shapes, model, dtype)
    if dtype is torch.bfloat16:
        return model, None
    rng = np.random.default_rng(0)
    np.savez(feed, **{f"x{k}": rng.standard_normal(shape).astype(np.float32) for k, shape in enumerate(shapes)})
    return model, feed


def least(args, contenders):
    """The least time of each, in microseconds, in turn."""
    times = [[] for _ in contenders]
    for _ in range(args.rounds):
        for k, run in enumerate(contenders):
            times[k].append(run()[0] * 1e3)
    return [min(each) for each in times]


def ours(args, precision, model, feed):
    args.precision = precision
    return models.ours(args, model, feed)


def against_torch(args, title, name, precision, network, shapes, theirs, folder, dtype=torch.float32):
    model, feed = prepare(network, shapes, folder, "network", dtype)
    with torch.inference_mode():
        theirs()
        our, their = least(args, [lambda: ours(args, precision, model, feed), lambda: models.timed(theirs, args.iters)])
    print(f"| {title} {name} | {our:.0f} | {their:.0f} | {their / our:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=["bf16", "attention", "odd"])
    parser.add_argument("--fuseline", type=Path, default=Path("target/release/fuseline"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iters", type=int, default=15)
    parser.set_defaults(threads=1, sizes="")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if {"bf16", "attention"} & set(args.tables):
            print("| 1 thread | Fuseline | PyTorch | PyTorch / ours |\n|---|---:|---:|---:|")
        for m, k, n in PRODUCTS if "bf16" in args.tables else []:
            network = nn.Linear(k, n)
            x, w, bias = (t.detach().bfloat16() for t in (torch.randn(m, k), network.weight, network.bias))
            run = lambda: F.linear(x, w, bias)
            name = f"{m}x{k}x{n}"
            against_torch(args, "bf16, given f32", name, "bf16", network, [(m, k)], run, folder)
            against_torch(args, "bf16", name, "bf16", network, [(m, k)], run, folder, torch.bfloat16)
        for shape in ATTENTION if "attention" in args.tables else []:
            q, k, v = (torch.randn(shape) for _ in range(3))
            for causal in (False, True):
                network = kernels.of(kernels.causal_attention if causal else kernels.attention)
                run = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
                title = "causal attention" if causal else "attention"
                against_torch(args, title, f"S={shape[2]}", "f32", network, [shape] * 3, run, folder)
        if "odd" in args.tables:
            print("\n| 1 thread | µs | beside it | µs | rate / rate beside it |\n|---|---:|---|---:|---:|")
        for kind, odd, even in ODD if "odd" in args.tables else []:
            made = [network_of(kind, sizes) for sizes in (odd, even)]
            files = [prepare(network, shapes, folder, f"n{k}") for k, (network, shapes, _) in enumerate(made)]
            a, b = least(args, [lambda file=file: ours(args, "f32", *file) for file in files])
            ratio = (made[0][2] / a) / (made[1][2] / b)
            print(f"| {kind.format(*odd)} | {a:.1f} | {kind.format(*even)} | {b:.1f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
