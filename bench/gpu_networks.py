"""PyTorch on whole networks in bf16: eager, and torch.compile in two modes; medians by device events.

    python3 bench/gpu_networks.py [bert1] [bert8] [gpt2] [llama] [resnet32]

Needs PyTorch with CUDA and Triton (resnet: torchvision). `gpu model` measures the same networks as exporters write them.
"""

import sys
import time

import torch
import torch.nn.functional as F
import triton
from torch import nn

MODES = ("default", "reduce-overhead")


def median_ms(run):
    run()
    torch.cuda.synchronize()
    return triton.testing.do_bench(run, warmup=50, rep=200, return_mode="median")


def heads(x, count):
    return x.view(*x.shape[:2], count, -1).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


class Bert(nn.Module):
    """BERT-base with a mask of truths."""

    def __init__(self, layers=12, width=768, count=12, vocabulary=30522):
        super().__init__()
        self.count = count
        self.words, self.places, self.kinds = nn.Embedding(vocabulary, width), nn.Embedding(512, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(self.layer(width) for _ in range(layers))

    @staticmethod
    def layer(width):
        square = [nn.Linear(width, width) for _ in range(4)]
        feed = [nn.Linear(width, 4 * width), nn.Linear(4 * width, width)]
        return nn.ModuleList([*square, *feed, nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, ids, mask, kinds):
        batch, length = ids.shape
        places = torch.arange(length, device=ids.device)
        x = self.norm(self.words(ids) + self.places(places) + self.kinds(kinds))
        mask = mask.bool()[:, None, None, :].expand(batch, 1, length, length)
        for q, k, v, o, up, down, norm1, norm2 in self.layers:
            q, k, v = (heads(project(x), self.count) for project in (q, k, v))
            x = norm1(x + o(joined(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))))
            x = norm2(x + down(F.gelu(up(x))))
        return x


class Gpt2(nn.Module):
    """GPT-2 small with its logits."""

    def __init__(self, layers=12, width=768, count=12, vocabulary=50257, longest=1024):
        super().__init__()
        self.count = count
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.layers = nn.ModuleList(self.layer(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    @staticmethod
    def layer(width):
        shapes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
        return nn.ModuleList([*(nn.Linear(*shape) for shape in shapes), nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for qkv, o, up, down, norm1, norm2 in self.layers:
            q, k, v = (heads(part, self.count) for part in qkv(norm1(x)).chunk(3, -1))
            x = x + o(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
            x = x + down(F.gelu(up(norm2(x)), approximate="tanh"))
        return self.head(self.norm(x))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Llama(nn.Module):
    """A decoder like Llama with one thousand million parameters."""

    def __init__(self, layers=16, width=2048, count=32, shared=8, hidden=8192, vocabulary=8192, longest=2048):
        super().__init__()
        self.count, self.shared = count, shared
        size = width // count
        frequencies = 10000.0 ** (-torch.arange(0, size, 2).float() / size)
        angles = torch.outer(torch.arange(longest).float(), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.words = nn.Embedding(vocabulary, width)
        shapes = [(width, width), (width, shared * size), (width, shared * size), (width, width)]
        shapes += [(width, hidden), (width, hidden), (hidden, width)]
        linear = lambda shape: nn.Linear(*shape, bias=False)
        self.layers = nn.ModuleList(
            nn.ModuleList([*map(linear, shapes), nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)]) for _ in range(layers)
        )
        self.norm, self.head = nn.RMSNorm(width, 1e-5), linear((width, vocabulary))

    def forward(self, ids):
        x, cos, sin = self.words(ids), self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for q, k, v, o, gate, up, down, norm1, norm2 in self.layers:
            y = norm1(x)
            q, k, v = heads(q(y), self.count), heads(k(y), self.shared), heads(v(y), self.shared)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            x = x + o(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)))
            y = norm2(x)
            x = x + down(F.silu(gate(y)) * up(y))
        return self.head(self.norm(x))


def words(batch, length, vocabulary):
    return torch.randint(0, vocabulary, (batch, length), device="cuda")


def build(name):
    if name == "gpt2":
        return Gpt2(), (words(4, 1024, 50257),)
    if name == "llama":
        return Llama(), (words(1, 2048, 8192),)
    if name in ("bert1", "bert8"):
        batch, length = (1, 128) if name == "bert1" else (8, 512)
        ids = words(batch, length, 30522)
        return Bert(), (ids, torch.ones_like(ids), torch.zeros_like(ids))
    import torchvision

    images = torch.randn(int(name.removeprefix("resnet")), 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    network = torchvision.models.resnet50().to(memory_format=torch.channels_last)
    return network, (images.to(memory_format=torch.channels_last),)


def main(names):
    torch.set_grad_enabled(False)
    for name in names or ["bert1", "bert8", "gpt2", "llama", "resnet32"]:
        network, inputs = build(name)
        network = network.to("cuda", torch.bfloat16).eval()
        times = [f"eager {median_ms(lambda: network(*inputs)):.3f}"]
        for mode in MODES:
            torch._dynamo.reset()
            start = time.time()
            compiled = torch.compile(network, mode=mode, dynamic=False)
            compiled(*inputs)
            torch.cuda.synchronize()
            first = time.time() - start
            times.append(f"{mode} {median_ms(lambda: compiled(*inputs)):.3f} (first answer after {first:.0f} s)")
        print(f"{name}: {', '.join(times)} ms", flush=True)
        del network
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1:])
