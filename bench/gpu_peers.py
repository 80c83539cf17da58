"""PyTorch on the cases of `gpu time`: eager and torch.compile, medians by device events.

    python3 bench/gpu_peers.py [--json] [NAME ...]

Needs PyTorch with CUDA and Triton. A NAME is part of a case's name. The bytes are those that any execution must move.
"""

import json
import sys

import torch
import torch.nn.functional as F
import triton

RUNS_MS = 100


def median_us(run):
    run()
    torch.cuda.synchronize()
    return triton.testing.do_bench(run, warmup=30, rep=RUNS_MS, return_mode="median") * 1e3


def random(*shape, dtype):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def quantize(y):
    scale = y.abs().amax(-1, keepdim=True).float() / 127
    return (y.float() / scale).round().clamp(-128, 127).to(torch.int8), scale


def add_rmsnorm(x, residual, weight):
    total = x + residual
    return F.rms_norm(total, (total.shape[-1],), weight), total


def cases(dtype):
    """Name, function, arguments, bytes: in the order of bench/src/bin/gpu/time.rs."""
    size = torch.finfo(dtype).bits // 8
    rows, columns = 8192, 4096
    count = rows * columns
    x, y, z = (random(rows, columns, dtype=dtype) for _ in range(3))
    w, b = random(columns, dtype=dtype), random(columns, dtype=dtype)
    for n in (33554432, 1048576, 10485760, 104857600):
        p, q = random(n, dtype=dtype), random(n, dtype=dtype)
        yield f"add_gelu n={n}", lambda p, q: F.gelu(p + q), (p, q), 3 * n * size
    yield "mul_add_relu", lambda x, y, z: torch.relu(x * y + z), (x, y, z), 4 * count * size
    yield "bias_gelu", lambda x, b: F.gelu(x + b), (x, b), 2 * count * size
    yield "silu", F.silu, (x,), 2 * count * size
    yield "swiglu", lambda x, y: F.silu(x) * y, (x, y), 3 * count * size
    yield "bias_dropout_residual", lambda x, b, r: F.dropout(x + b, 0.1, True) + r, (x, b, y), 3 * count * size
    yield "gelu_dropout_residual", lambda x, r: F.dropout(F.gelu(x), 0.1, True) + r, (x, y), 3 * count * size
    yield "layernorm", lambda x, w, b: F.layer_norm(x, (columns,), w, b), (x, w, b), 2 * count * size
    yield "layernorm_gelu", lambda x, w, b: F.gelu(F.layer_norm(x, (columns,), w, b)), (x, w, b), 2 * count * size
    yield "rmsnorm", lambda x, w: F.rms_norm(x, (columns,), w), (x, w), 2 * count * size
    yield "add_rmsnorm", add_rmsnorm, (x, y, w), 4 * count * size
    yield (
        "layernorm_dropout_residual",
        lambda x, r, w, b: F.layer_norm(r + F.dropout(x, 0.1, True), (columns,), w, b),
        (x, y, w, b),
        3 * count * size,
    )
    yield "softmax", lambda x: torch.softmax(x, -1), (x,), 2 * count * size
    yield "softmax_dropout", lambda x: F.dropout(torch.softmax(x, -1), 0.1, True), (x,), 2 * count * size
    yield (
        "layernorm_quantize_int8",
        lambda x, w, b: quantize(F.layer_norm(x, (columns,), w, b)),
        (x, w, b),
        count * (size + 1),
    )
    for rows, columns in ((2048, 32768), (131072, 128), (512, 100000), (1024, 65536)):
        x = random(rows, columns, dtype=dtype)
        yield f"softmax {rows}x{columns}", lambda x: torch.softmax(x, -1), (x,), 2 * x.numel() * size
    x, w = random(2048, 32768, dtype=dtype), random(32768, dtype=dtype)
    yield "rmsnorm 2048x32768", lambda x, w: F.rms_norm(x, (x.shape[1],), w), (x, w), 2 * x.numel() * size
    for rows, columns in ((8192, 4096), (131072, 256)):
        x = random(rows, columns, dtype=dtype)
        yield f"column_sum {rows}x{columns}", lambda x: x.sum(0), (x,), x.numel() * size
    for rows, columns in ((32768, 768), (8192, 4095)):
        x, w, b = random(rows, columns, dtype=dtype), random(columns, dtype=dtype), random(columns, dtype=dtype)
        yield (
            f"layernorm {rows}x{columns}",
            lambda x, w, b: F.layer_norm(x, (x.shape[1],), w, b),
            (x, w, b),
            2 * x.numel() * size,
        )


def backward_of(forward):
    """The gradients by all arguments, by autograd's graph of a forward pass that is not timed."""

    def prepare(x, dy, *weights):
        leaves = [t.detach().requires_grad_() for t in (x, *weights)]
        y = forward(*leaves)
        return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)

    return prepare


def backward_cases(dtype):
    """Name, forward, arguments (x, dy, weights), bytes: only the backward pass is timed."""
    size = torch.finfo(dtype).bits // 8
    for rows, columns in ((8192, 4096), (32768, 768)):
        x, dy = random(rows, columns, dtype=dtype), random(rows, columns, dtype=dtype)
        w, b = random(columns, dtype=dtype), random(columns, dtype=dtype)
        moved = 3 * x.numel() * size
        yield f"rmsnorm_backward {rows}x{columns}", lambda x, w: F.rms_norm(x, (x.shape[1],), w), (x, dy, w), moved
        if columns == 4096:
            yield (
                f"layernorm_gelu_backward {rows}x{columns}",
                lambda x, w, b: F.gelu(F.layer_norm(x, (x.shape[1],), w, b)),
                (x, dy, w, b),
                moved,
            )
            yield f"softmax_backward {rows}x{columns}", lambda x: torch.softmax(x, -1), (x, dy), moved


def liger_cases(dtype):
    """The same by Liger's kernels, where they are installed: name, function, arguments."""
    try:
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction
        from liger_kernel.ops.layer_norm import LigerLayerNormFunction
        from liger_kernel.ops.softmax import LigerSoftmaxFunction
    except ImportError:
        return
    rows, columns = 8192, 4096
    x, w, b = random(rows, columns, dtype=dtype), random(columns, dtype=dtype), random(columns, dtype=dtype)
    yield "rmsnorm", lambda: LigerRMSNormFunction.apply(x, w, 1e-5)
    yield "layernorm", lambda: LigerLayerNormFunction.apply(x, w, b, 1e-5)
    yield "softmax", lambda: LigerSoftmaxFunction.apply(x)


def products():
    """Name, function, operations: products and attention in bf16, as `gpu time` has them."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    dtype = torch.bfloat16
    for m, k, n in ((4096, 1024, 4096), (8192, 4096, 4096), (8192, 8192, 8192), (128, 4096, 14336), (16, 4096, 4096), (1, 4096, 4096)):
        x, w, b = random(m, k, dtype=dtype), random(n, k, dtype=dtype), random(n, dtype=dtype)
        yield f"matmul {m}x{k}x{n}", lambda: x @ w.t(), 2 * m * k * n
        yield f"linear_bias_gelu {m}x{k}x{n}", lambda: F.gelu(F.linear(x, w, b)), 2 * m * k * n
    for batch, heads, tokens, size in ((4, 16, 1024, 64), (4, 16, 4096, 128), (4, 16, 4096, 64), (16, 12, 512, 64)):
        q, k, v = (random(batch, heads, tokens, size, dtype=dtype) for _ in range(3))
        for causal in (False, True):
            for name, backend in (("FlashAttention-2", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)):
                def run(backend=backend, causal=causal):
                    with sdpa_kernel([backend]):
                        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

                yield f"attention {batch}x{heads}x{tokens}x{size} causal={causal} {name}", run, 4 * batch * heads * tokens * tokens * size


def main(arguments):
    as_json = "--json" in arguments
    names = [word for word in arguments if not word.startswith("--")]
    rows = []
    for name, run, flops in products():
        if names and not any(part in name for part in names):
            continue
        us = median_us(run)
        rows.append({"case": name, "dtype": "bfloat16", "us": us, "tflops": flops / us / 1e6})
        if not as_json:
            print(f"{'bfloat16':9}{name:60} {us:9.1f} us {flops / us / 1e6:7.0f} TFLOP/s", flush=True)
    for dtype in (torch.float32, torch.bfloat16):
        for name, function, args, moved in cases(dtype):
            if names and not any(part in name for part in names):
                continue
            torch._dynamo.reset()
            compiled = torch.compile(function, dynamic=False, fullgraph=True)
            eager, fused = median_us(lambda: function(*args)), median_us(lambda: compiled(*args))
            row = {"case": name, "dtype": str(dtype)[6:], "bytes": moved, "eager_us": eager, "compile_us": fused}
            rows.append(row)
            if not as_json:
                rate = moved / min(eager, fused) / 1e3
                print(f"{row['dtype']:9}{name:34} eager {eager:9.1f}  compile {fused:9.1f} us  best {rate:6.0f} GB/s", flush=True)
        for name, forward, args, moved in backward_cases(dtype):
            if names and not any(part in name for part in names):
                continue
            torch._dynamo.reset()
            compiled = torch.compile(forward, dynamic=False, fullgraph=True)
            eager, fused = (median_us(backward_of(f)(*args)) for f in (forward, compiled))
            rows.append({"case": name, "dtype": str(dtype)[6:], "bytes": moved, "eager_us": eager, "compile_us": fused})
            if not as_json:
                rate = moved / min(eager, fused) / 1e3
                print(f"{str(dtype)[6:]:9}{name:34} eager {eager:9.1f}  compile {fused:9.1f} us  best {rate:6.0f} GB/s", flush=True)
        for name, run in liger_cases(dtype):
            if names and not any(part in name for part in names):
                continue
            us = median_us(run)
            rows.append({"case": name, "dtype": str(dtype)[6:], "liger_us": us})
            if not as_json:
                print(f"{str(dtype)[6:]:9}{name:34} Liger {us:9.1f} us", flush=True)
    if as_json:
        print(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
