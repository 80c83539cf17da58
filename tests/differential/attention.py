"""Attention, in the standard and in com.microsoft, and what stands around it in transformers."""

import numpy as np

from net import Net, op

MS = "com.microsoft"


@op("Attention")
def attention(d):
    net = Net(d, d.pick([23, 24]))
    b, kv, size, vsize = d.size(2), d.int(1, 2), d.int(1, 4), d.int(1, 4)
    heads = kv * d.int(1, 2)
    q, k, past = d.size(4), d.size(5), 0
    flat = d.chance(0.4)
    a = {}
    if flat:
        a |= dict(q_num_heads=heads, kv_num_heads=kv)
    pasts = ["", ""]
    if d.chance(0.35):
        past = d.size(3)
        pasts = [net.give(d.array([b, kv, past, size]), False), net.give(d.array([b, kv, past, vsize]), False)]
    shapes = [[b, heads, q, size], [b, kv, k, size], [b, kv, k, vsize]]
    if flat:
        shapes = [[b, s[2], s[1] * s[3]] for s in shapes]
    mask = ""
    if d.chance():
        shape = d.pick([[q, k + past], [1, 1, q, k + past], [b, 1, q, k + past], [b, heads, q, k + past], [1, q, k + past]])
        m = d.array(shape, "b1") if d.chance() else d.array(shape)
        if m.dtype == bool:
            m[..., 0] = True
        mask = net.give(m)
    if d.chance(0.4):
        a["is_causal"] = d.int(0, 1)
    if d.chance(0.3):
        a["scale"] = 0.3
    if d.chance(0.3):
        a["softcap"] = 1.5
    inputs = [net.give(d.array(s), False) for s in shapes] + [mask, *pasts]
    outputs = [True] + [bool(past)] * 2
    if d.chance(0.3):
        a["qk_matmul_output_mode"] = d.int(0, 3)
        outputs = [True, bool(past), bool(past), True]
    if net.opset >= 24 and not past and d.chance(0.3):
        inputs[6:] = [net.give(d.rng.integers(1, k + 1, b))]
    while not outputs[-1]:
        outputs.pop()
    net.node("Attention", inputs, outputs, **a)
    return net


@op("MsAttention")
def ms_attention(d):
    net = Net(d, 13, com_microsoft=1)
    b, s, heads, size, i = d.size(2), d.size(4), d.int(1, 2), d.int(1, 3), d.int(1, 4)
    h = heads * size
    a = {"num_heads": heads}
    vh = h
    if d.chance(0.2):
        vh = heads * d.int(1, 3)
        a["qkv_hidden_sizes"] = [h, h, vh]
    past, p, outputs = "", 0, 1
    if vh == h and d.chance(0.3):
        p = d.size(3)
        past, outputs = net.give(d.array([2, b, heads, p, size]), False), 2
    mask = ""
    if d.chance(0.5):
        total = s + p
        kind = d.pick(["ends", "raw2", "raw3"])
        mask = net.give(
            {
                "ends": d.rng.integers(1, total + 1, b).astype("i4"),
                "raw2": self_seen(d.array([b, total], "i4", 0, 1)),
                "raw3": self_seen(d.array([b, s, total], "i4", 0, 1)),
            }[kind]
        )
    bias = net.maybe(d.array([d.pick([1, b]), d.pick([1, heads]), s, s + p]), 0.25) if not past else ""
    if d.chance(0.4):
        a["unidirectional"] = d.int(0, 1)
    if d.chance(0.3):
        a["scale"] = 0.4
    net.node(
        "Attention",
        [net.give(d.array([b, s, i]), False), net.give(d.array([i, 2 * h + vh])), net.maybe(d.array([2 * h + vh]), 0.8), mask, past, bias],
        outputs,
        domain=MS,
        **a,
    )
    return net


def self_seen(mask):
    mask[..., 0] = 1
    return mask


@op("MultiHeadAttention")
def multi_head(d):
    net = Net(d, 13, com_microsoft=1)
    b, s, k, heads, size, vsize = d.size(2), d.size(4), d.size(4), d.int(1, 3), d.int(1, 4), d.int(1, 4)
    vsize = size if d.chance(0.6) else vsize
    h, vh = heads * size, heads * vsize
    a = {"num_heads": heads}
    way = d.pick(["three", "three", "cross"])  # ONNX Runtime has packed operands on GPUs only
    bias = ""
    past = ["", ""]
    p = 0
    outputs = 1
    if way == "three":
        if d.chance(0.5):
            bias = net.give(d.array([2 * h + vh]))
        ins = [d.array([b, s, h]), d.array([b, k, h]), d.array([b, k, vh])]
        if vsize == size and d.chance(0.4):
            p = d.size(3)
            past = [net.give(d.array([b, heads, p, size]), False), net.give(d.array([b, heads, p, vsize]), False)]
            outputs = 3
    else:
        ins = [d.array([b, s, h]), d.array([b, heads, k, size]), d.array([b, heads, k, size])]
    mask = ""
    if d.chance(0.4):
        mask = net.give(
            self_seen(d.array([b, k + p], "i4", 0, 1))
            if d.chance(0.6)
            else d.rng.integers(1, k + p + 1, b).astype("i4")
            if not p
            else self_seen(d.array([b, s, k + p], "i4", 0, 1))
        )
    relative = net.maybe(d.array([d.pick([1, b]), d.pick([1, heads]), s, k + p]), 0.3)
    for key, value in dict(scale=0.4, unidirectional=1).items():
        if d.chance(0.25) and (key == "scale" or s == k):
            a[key] = value
    ins = [net.give(x, False) for x in ins]
    net.node("MultiHeadAttention", [*ins, bias, mask, relative, *past], outputs, domain=MS, **a)
    return net


@op("GroupQueryAttention")
def group_query(d):
    net = Net(d, 13, com_microsoft=1)
    b, kv, size = d.size(2), d.int(1, 2), 8 * d.int(1, 2)
    heads = kv * d.int(1, 3)
    fresh = d.chance(0.5)
    s = d.size(4) if fresh else 1
    most = s + d.int(1, 4)
    if fresh:
        past = 0
        lens = np.full(b, s - 1, "i4")
        total = s
    else:
        past = d.int(1, 4)
        lens = np.full(b, past, "i4")
        total = past + 1
    a = dict(num_heads=heads, kv_num_heads=kv)
    if d.chance(0.3):
        a["scale"] = 0.3
    if d.chance(0.3):
        a["local_window_size"] = d.int(1, 4)
    if d.chance(0.3):
        a["softcap"] = 2.0
    rotary = ["", ""]
    if d.chance(0.4):
        size = 16
        a["do_rotary"] = 1
        a["rotary_interleaved"] = d.int(0, 1)
        rotary = [net.give(d.array([most + 8, size // 2]), True), net.give(d.array([most + 8, size // 2]), True)]
    if d.chance(0.3):
        inputs = [net.give(d.array([b, s, (heads + 2 * kv) * size]), False), "", ""]
    else:
        inputs = [net.give(d.array([b, s, n * size]), False) for n in (heads, kv, kv)]
    inputs += [net.give(d.array([b, kv, past, size]), False) for _ in range(2)]
    inputs += [net.give(lens), net.give(np.array([total] if d.chance() else total, "i4"), True), *rotary]
    net.node("GroupQueryAttention", inputs, 3, domain=MS, **a)
    return net


@op("RotaryEmbedding", "MsRotaryEmbedding")
def rotary(d, name):
    ms = name.startswith("Ms")
    net = Net(d, 13 if ms else 23, com_microsoft=1)
    b, s, heads, size = d.size(2), d.size(4), d.int(1, 3), 2 * d.int(1, 4)
    part = size if d.chance(0.6) else 2 * d.int(1, size // 2)
    a = {"interleaved": d.int(0, 1)} if d.chance(0.7) else {}
    flat = d.chance()
    x = net.give(d.array([b, s, heads * size] if flat else [b, heads, s, size]), False)
    if flat:
        a["num_heads"] = heads
    if part != size:
        a["rotary_embedding_dim"] = part
        a["num_heads"] = heads
    rows = s + 4
    if ms:
        ids = d.rng.integers(0, rows, [b, s]) if d.chance(0.7) else np.array([d.int(0, 3)])
        net.node(
            "RotaryEmbedding",
            [x, net.give(ids), net.give(d.array([rows, part // 2])), net.give(d.array([rows, part // 2]))],
            domain=MS,
            **a,
        )
    elif d.chance(0.6):
        net.node(
            "RotaryEmbedding",
            [x, net.give(d.array([rows, part // 2])), net.give(d.array([rows, part // 2])), net.give(d.rng.integers(0, rows, [b, s]))],
            **a,
        )
    else:
        net.node("RotaryEmbedding", [x, net.give(d.array([b, s, part // 2])), net.give(d.array([b, s, part // 2]))], **a)
    return net


@op("EmbedLayerNormalization")
def embed(d):
    net = Net(d, 13, com_microsoft=1)
    b, s, h, words, places = d.size(3), d.size(4), d.int(1, 6), d.int(1, 6), 8
    segments = d.chance(0.6)
    inputs = [
        net.give(d.array([b, s], "i4", 0, words - 1), False),
        net.give(d.array([b, s], "i4", 0, 1), False) if segments else "",
        net.give(d.array([words, h]), True),
        net.give(d.array([places, h]), True),
        net.give(d.array([2, h]), True) if segments else "",
        net.give(d.array([h]), True),
        net.give(d.array([h]), True),
    ]
    mask = d.chance(0.4)
    inputs.append(net.give((np.arange(s)[None] < d.rng.integers(1, s + 1, (b, 1))).astype("i4")) if mask else "")
    inputs.append(net.maybe(d.array([b, s] if d.chance(0.7) else [1, s], "i4", 0, places - 1), 0.4))
    a = {"epsilon": 1e-3} if d.chance() else {}
    outputs = 2
    if d.chance(0.3):
        outputs = 3
    net.node("EmbedLayerNormalization", inputs, outputs, domain=MS, **a)
    return net
