"""Operators of com.microsoft that stand alone: experts, codes, crops, hashes, and older names of standard operators."""

import numpy as np
from onnx import TensorProto

from net import Net, op

MS = "com.microsoft"


def router(d, tokens, experts):
    """Ratings without ties."""
    return (d.rng.permuted(np.tile(np.arange(experts), (tokens, 1)), axis=1) * 0.4 + d.rng.uniform(0, 0.3, (tokens, experts))).astype("f4")


@op("MoE")
def moe(d):
    net = Net(d, 20, com_microsoft=1)
    tokens, hidden, inner, experts = d.size(5), d.int(2, 8), d.int(2, 8), d.int(1, 5)
    kind = d.pick(["relu", "gelu", "silu", "identity", "swiglu"])
    wide = inner * 2 if kind == "swiglu" else inner
    net.node(
        "MoE",
        [
            net.give(d.array([tokens, hidden] if d.chance(0.7) else [1, tokens, hidden]), False),
            net.give(router(d, tokens, experts), False),
            net.give(d.array([experts, wide, hidden], "f4", -1, 1)),
            net.maybe(d.array([experts, wide])),
            net.give(d.array([experts, hidden, inner], "f4", -1, 1)),
            net.maybe(d.array([experts, hidden])),
        ],
        domain=MS,
        k=d.int(1, experts),
        activation_type=kind,
        normalize_routing_weights=d.pick([None, 0, 1]),
        swiglu_fusion=1 if kind == "swiglu" else None,
        activation_alpha=1.7 if kind == "swiglu" else None,
        activation_beta=1.0 if kind == "swiglu" else None,
        swiglu_limit=7.0 if kind == "swiglu" else None,
    )
    return net


@op("QMoE")
def qmoe(d):
    bits, block = d.pick([2, 4, 8]), d.pick([None, 16, 32])
    # ONNX Runtime rounds activations to 8 bits where it has no other product for blocks of weights.
    net = Net(d, 20, com_microsoft=1, tolerance=2e-2 if bits != 4 and block else 1e-3)
    tokens, hidden, inner, experts = d.size(5), 32, d.pick([32, 64]), d.int(1, 4)
    kind = d.pick(["relu", "silu", "identity", "swiglu"])
    wide = inner * 2 if kind == "swiglu" else inner

    def layer(rows, depth):
        scales = [experts, rows] if block is None else [experts, rows, depth // block]
        return net.give(d.any([experts, rows, depth * bits // 8]), True), net.give(d.array(scales, "f4", 0.01, 0.05), True)

    first, second = layer(wide, hidden), layer(hidden, inner)
    net.node(
        "QMoE",
        [
            net.give(d.array([tokens, hidden], "f4", -1, 1), False),
            net.give(router(d, tokens, experts), False),
            *first,
            net.maybe(d.array([experts, wide]), constant=True),
            *second,
            net.maybe(d.array([experts, hidden]), constant=True),
        ],
        domain=MS,
        k=d.int(1, experts),
        activation_type=kind,
        normalize_routing_weights=d.pick([None, 1]),
        swiglu_fusion=1 if kind == "swiglu" else None,
        expert_weight_bits=bits,
        block_size=block,
    )
    return net


@op("MatMulBnb4")
def bnb4(d):
    net = Net(d, 20, com_microsoft=1)
    k, n, block = d.int(1, 6) * 16, d.int(1, 7), d.pick([16, 32, 64])
    codes, scales = (n * k + 1) // 2, (n * k + block - 1) // block
    net.node(
        "MatMulBnb4",
        [net.give(d.array([*d.shape(0, 2, 3, 0), d.size(4), k]), False), net.give(d.any([codes]), True), net.give(d.array([scales], "f4", 0.1, 2), True)],
        domain=MS,
        K=k,
        N=n,
        block_size=block,
        quant_type=d.int(0, 1),
    )
    return net


@op("Inverse")
def inverse(d):
    net = Net(d, 20, com_microsoft=1, tolerance=1e-3)
    n = d.size(6)
    x = d.array([*d.shape(0, 2, 3, 0), n, n], d.pick(["f4", "f8"]), -1, 1) + 3 * np.eye(n)[d.rng.permutation(n)]
    net.node("Inverse", [net.give(x.astype(d.pick(["f4", "f8"])))], domain=MS)
    return net


@op("NGramRepeatBlock")
def repeats(d):
    net = Net(d, 20, com_microsoft=1)
    b, n, words = d.size(3), d.size(8), d.int(2, 6)
    net.node("NGramRepeatBlock", [net.give(d.rng.integers(0, words, (b, n)), False), net.give(d.array([b, words]), False)], domain=MS, ngram_size=d.int(1, 4))
    return net


@op("CropAndResize")
def crops(d):
    net = Net(d, 20, com_microsoft=1)
    n, c, h, w, r = d.size(3), d.size(3), d.size(6), d.size(6), d.size(4)
    regions = d.rng.uniform(-0.2, 1.2, (r, 4)).astype("f4")
    net.node(
        "CropAndResize",
        [
            net.give(d.array([n, c, h, w])),
            net.give(regions),
            net.give(d.rng.integers(0, n, r).astype("i4")),
            net.give(np.array([d.size(4), d.size(4)], "i4")),
        ],
        domain=MS,
        mode=d.pick([None, "bilinear", "nearest"]),
        extrapolation_value=d.pick([None, 0.5]),
    )
    return net


@op("MurmurHash3")
def murmur(d):
    net = Net(d, 20, com_microsoft=1)
    x = d.array(d.shape(1, 3), d.pick(["i4", "u4", "i8", "u8", "f4", "f8"]), -1000, 1000)
    net.node("MurmurHash3", [net.give(x)], domain=MS, seed=d.pick([None, 7, 2**31 - 1]), positive=d.pick([None, 0, 1]))
    return net


@op("CDist")
def distances(d):
    net = Net(d, 20, com_microsoft=1, tolerance=1e-3)
    n, kind = d.size(6), d.pick(["f4", "f8"])
    net.node("CDist", [net.give(d.array([d.size(5), n], kind)), net.give(d.array([d.size(5), n], kind))], domain=MS, metric=d.pick([None, "sqeuclidean", "euclidean"]))
    return net


@op("DecoderMaskedMultiHeadAttention")
def decoder(d):
    net = Net(d, 20, com_microsoft=1)
    b, heads, size, past = d.size(3), d.int(1, 3), 8, d.size(5)
    width, cross = heads * size, d.chance(0.3)
    keys = past if cross else past + 1
    if cross:
        operands = [[b, heads, past, size]] * 2
    else:
        operands = [[b, 1, width]] * 2
    mask = np.ones((b, keys), "i4")
    mask[:, : keys // 2] = d.array([b, keys // 2], "i4", 0, 1)
    inputs = [net.give(d.array([b, 1, width]), False)] + [net.give(d.array(s), False) for s in operands]
    inputs += [net.maybe(mask, 0.4, False), "" if cross else net.maybe(d.array([1, heads, 1, keys]), 0.3, False)]
    if not cross:  # ONNX Runtime takes a cache only that has room for more
        room = past + d.int(1, 4)
        inputs += [net.give(d.array([b, heads, room, size]), False) for _ in range(2)]
        inputs += [net.give(np.array([past], "i4"), False)]
    a = {} if cross else {"past_present_share_buffer": 1}
    net.node("DecoderMaskedMultiHeadAttention", inputs, 1 if cross else 3, domain=MS, num_heads=heads, scale=d.pick([None, 0.3]), **a)
    return net


@op("MsUnique", "MsRange", "MsExpandDims", "MsTrilu", "MsPad", "MsGridSample", "MsGatherND", "UnfoldTensor")
def older(d, name):
    """Names that the standard has taken over, and what is like them."""
    net = Net(d, 20, com_microsoft=1)
    if name == "MsUnique":
        net.node("Unique", [net.give(np.round(d.array([d.size(8)])))], 3, domain=MS)
    elif name == "MsRange":
        kind = d.pick(["f4", "f8", "i2", "i4", "i8"])
        start, limit, delta = (np.array(n, kind) for n in (d.int(-5, 5), d.int(-5, 9), d.pick([1, 2, -1, -3])))
        net.node("Range", [net.give(start), net.give(limit), net.maybe(delta)], domain=MS)
    elif name == "MsExpandDims":
        x = d.array(d.shape(0, 3))
        net.node("ExpandDims", [net.give(x), net.give(np.array(d.axis(x.ndim + 1), "i4"), True)], domain=MS)
    elif name == "MsTrilu":
        net.node("Trilu", [net.give(d.array([*d.shape(0, 2), d.size(5), d.size(5)])), net.maybe(np.array(d.int(-3, 3), "i8"))], domain=MS, upper=d.pick([None, 0, 1]))
    elif name == "MsPad":
        x = d.array(d.shape(1, 3, 5, 0))
        pads = d.rng.integers(-1 if d.chance(0.3) else 0, 3, 2 * x.ndim)
        net.node("Pad", [net.give(x), net.give(pads, True), net.maybe(np.array([1.5], "f4"))], domain=MS, mode=d.pick([None, "constant", "edge"]))
    elif name == "MsGridSample":
        n, c = d.size(2), d.size(3)
        x, grid = d.array([n, c, d.int(2, 5), d.int(2, 5)]), d.array([n, d.size(3), d.size(3), 2], "f4", -1.3, 1.3)
        a = dict(mode=d.pick([None, "bilinear", "nearest", "bicubic"]), padding_mode=d.pick([None, "zeros", "border", "reflection"]))
        net.node("GridSample", [net.give(x), net.give(grid)], domain=MS, align_corners=d.pick([None, 0, 1]), **a)
    elif name == "MsGatherND":
        x = d.array(d.shape(1, 3, 4, 0))
        depth = d.int(1, x.ndim)
        places = np.stack([d.rng.integers(0, n, (d.size(3), 2)) for n in [x.shape[0]]] * 1, -1)
        if depth > 1:
            rows = places.shape[:2]
            places = np.stack([d.rng.integers(0, x.shape[k], rows) for k in range(depth)], -1)
        net.node("GatherND", [net.give(x), net.give(places)], domain=MS)
    else:
        x = d.array(d.shape(1, 3, 6, 0))
        axis = d.axis(x.ndim)
        net.node("UnfoldTensor", [net.give(x)], domain=MS, dim=axis, size=d.int(1, x.shape[axis]), step=d.int(1, 3))
    return net
