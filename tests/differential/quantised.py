"""Quantised tensors: conversions, products, convolutions, and the operators of exporters."""

import numpy as np

from net import Net, op

MS = "com.microsoft"


def scale(d, shape=()):
    return np.asarray(d.rng.uniform(0.01, 0.2, tuple(shape))).astype("f4")


def zero(d, dtype, shape=()):
    return d.any(shape, dtype) if d.chance(0.7) else np.zeros(tuple(shape), dtype)


@op("QuantizeLinear", "DequantizeLinear")
def quantize(d, name):
    net = Net(d, d.pick([10, 13, 19, 21, 23]), steps=1)
    v = net.opset
    shape = d.shape(1, 4, 6, 0.03)
    axis = d.axis(len(shape)) if v >= 13 else 0
    way = d.pick(["tensor", "axis", "block"] if v >= 21 else ["tensor", "axis"] if v >= 13 else ["tensor"])
    a = {}
    inner = []
    if way == "axis":
        inner = [shape[axis]]
        if d.chance(0.8) or axis != 1:
            a["axis"] = axis
        if v >= 21 and d.chance(0.2):
            a["block_size"] = 0
    elif way == "block":
        block = d.int(1, 4)
        inner = [-(-n // block) if k == axis % len(shape) else n for k, n in enumerate(shape)]
        a |= {"axis": axis, "block_size": block}
    dtype = d.pick(["u1", "i1"] + (["i2", "u2"] if v >= 21 else []))
    s = scale(d, inner)
    kind = "f2" if v >= 19 and d.chance(0.2) else "f4"
    s = s.astype(kind)
    if name == "QuantizeLinear":
        x = d.array(shape, kind, -30, 30)
        if v < 19 and d.chance(0.1):
            x = d.array(shape, "i4", -30, 30)
        point = net.maybe(zero(d, dtype, inner), 0.7)
    else:
        if d.chance(0.15) and v < 21 and way == "tensor":
            x, point = d.array(shape, "i4", -1000, 1000), ""
        else:
            x, point = d.any(shape, dtype), net.maybe(zero(d, dtype, inner), 0.7)
    net.node(name, [net.give(x, False), net.give(s), point], **a)
    return net


@op("DynamicQuantizeLinear")
def dynamic_quantize(d):
    net = Net(d, d.opset(11, 22), steps=1)
    x = d.array(d.shape(1, 3, zero=0)) + np.float32(d.pick([0, 5, -5]))
    if d.chance(0.05):
        x = x * 0
    net.node("DynamicQuantizeLinear", [net.give(x, False)], 3)
    return net


@op("MatMulInteger")
def matmul_integer(d):
    net = Net(d, 10)
    m, k, n, batch = d.size(4), d.size(5), d.size(4), d.shape(0, 2, 3, 0)
    ta, tb = d.pick(["u1", "i1"]), d.pick(["u1", "i1"])
    a, b = [*d.broadcast(batch), m, k], [*d.broadcast(batch), k, n]
    za = zero(d, ta, [m] if d.chance(0.2) and len(a) == 2 else [])
    zb = zero(d, tb, [n] if d.chance(0.3) and len(b) == 2 else [])
    net.node("MatMulInteger", [net.give(d.any(a, ta), False), net.give(d.any(b, tb)), net.maybe(za), net.maybe(zb)])
    return net


@op("ConvInteger", "QLinearConv")
def quantised_conv(d, name):
    from windows import spatial, window_attributes

    net = Net(d, 10, steps=1 if name == "QLinearConv" else 0)
    rank = d.pick([1, 2, 2, 3])
    kernel, strides, dilations, pads, sizes = spatial(d, rank)
    group = d.pick([1, 1, 2])
    cin, cout = group * d.int(1, 3), group * d.int(1, 3)
    ta = d.pick(["u1", "i1"])
    tb = d.pick(["u1", "i1"])
    a = window_attributes(d, kernel, strides, dilations, pads, d.chance()) | {"group": group}
    x, w = net.give(d.any([d.size(2), cin, *sizes], ta), False), net.give(d.any([cout, cin // group, *kernel], tb))
    if name == "ConvInteger":
        net.node(name, [x, w, net.maybe(zero(d, ta)), net.maybe(zero(d, tb, [cout] if d.chance(0.3) else []))], **a)
        return net
    per = [cout] if d.chance(0.4) else []
    zw = np.zeros(per, tb) if per or d.chance() else zero(d, tb)
    net.node(
        name,
        [
            x,
            net.give(scale(d)),
            net.give(zero(d, ta)),
            w,
            net.give(scale(d, per)),
            net.give(zw),
            net.give(scale(d) * 30),
            net.give(zero(d, ta)),
            net.maybe(d.array([cout], "i4", -500, 500)),
        ],
        **a,
    )
    return net


@op("QLinearMatMul")
def qlinear_matmul(d):
    net = Net(d, d.pick([10, 21]), steps=1)
    m, k, n, batch = d.size(4), d.size(5), d.size(4), d.shape(0, 2, 3, 0)
    ta, tb = d.pick(["u1", "i1"]), d.pick(["u1", "i1"])
    per = [n] if d.chance(0.3) else []
    a, b = [*d.broadcast(batch), m, k], [*([] if per else d.broadcast(batch)), k, n]
    net.node(
        "QLinearMatMul",
        [
            net.give(d.any(a, ta), False),
            net.give(scale(d)),
            net.give(zero(d, ta)),
            net.give(d.any(b, tb)),
            net.give(scale(d, per)),
            net.give(zero(d, tb, per)),
            net.give(scale(d) * 30),
            net.give(zero(d, ta)),
        ],
    )
    return net


@op("QLinearOps")
def qlinear_ops(d):
    net = Net(d, 13, steps=1, com_microsoft=1)
    t = d.pick(["u1", "i1"])
    z = lambda: net.give(zero(d, t))  # noqa: E731
    name = d.pick(
        [
            "QLinearAdd",
            "QLinearMul",
            "QLinearLeakyRelu",
            "QLinearSigmoid",
            "QLinearAveragePool",
            "QLinearGlobalAveragePool",
            "QLinearConcat",
            "QLinearSoftmax",
            "QLinearWhere",
        ]
    )
    shape = d.shape(1, 4, 5, 0)
    give = lambda s: net.give(d.any(s, t), False)  # noqa: E731
    one = lambda k=1.0: net.give(scale(d) * np.float32(k))  # noqa: E731
    if name in ("QLinearAdd", "QLinearMul"):
        net.node(
            name,
            [give(d.broadcast(shape)), one(), z(), give(d.broadcast(shape)), one(), z(), one(3 if name == "QLinearAdd" else 20), z()],
            domain=MS,
        )
    elif name in ("QLinearLeakyRelu", "QLinearSigmoid"):
        net.node(name, [give(shape), one(), z(), one(), z()], domain=MS, alpha=0.2 if name == "QLinearLeakyRelu" and d.chance() else None)
    elif name == "QLinearAveragePool":
        from windows import spatial

        rank = d.pick([1, 2, 3])
        kernel, strides, _, pads, sizes = spatial(d, rank)
        pads = [min(p, k - 1) for p, k in zip(pads, kernel + kernel)]
        net.node(
            name,
            [give([d.size(2), d.size(3), *sizes]), one(), z(), one(), z()],
            domain=MS,
            kernel_shape=kernel,
            strides=strides,
            pads=pads,
            count_include_pad=d.int(0, 1),
            ceil_mode=d.int(0, 1),
        )
    elif name == "QLinearGlobalAveragePool":
        last = d.int(0, 1)
        net.node(
            name,
            [give([d.size(2), d.size(3), d.size(4), d.size(4)]), one(), net.give(zero(d, t)), one(), net.give(zero(d, t))],
            domain=MS,
            channels_last=last,
        )
    elif name == "QLinearConcat":
        axis = d.axis(len(shape))
        parts = [one(), net.give(zero(d, t))]
        for _ in range(d.int(1, 3)):
            part = list(shape)
            part[axis] = d.size(3)
            parts += [give(part), one(), net.give(zero(d, t))]
        net.node(name, parts, domain=MS, axis=axis)
    elif name == "QLinearSoftmax":
        net.node(
            name,
            [give(shape), one(), z(), net.give(np.array(1 / 256, "f4")), net.give(np.array(0 if t == "u1" else -128, t))],
            domain=MS,
            axis=d.axis(len(shape)),
            opset=13,
        )
    else:
        net.node(
            name,
            [
                net.give(d.array(d.broadcast(shape), "b1")),
                give(d.broadcast(shape)),
                one(),
                net.give(zero(d, t)),
                give(d.broadcast(shape)),
                one(),
                net.give(zero(d, t)),
                one(2),
                net.give(zero(d, t)),
            ],
            domain=MS,
        )
    return net


@op("QGemm")
def qgemm(d):
    net = Net(d, 13, steps=1, com_microsoft=1)
    m, k, n = d.size(4), d.size(5), d.size(4)
    t = d.pick(["u1", "i1"])
    ta, tb = d.int(0, 1), d.int(0, 1)
    per = [n] if d.chance(0.3) else []
    inputs = [
        net.give(d.any([k, m] if ta else [m, k], t), False),
        net.give(scale(d)),
        net.give(zero(d, t)),
        net.give(d.any([n, k] if tb else [k, n], "i1")),
        net.give(scale(d, per)),
        net.give(zero(d, "i1", per)),
        net.maybe(d.array(d.pick([[n], [m, n], [1, n]]), "i4", -500, 500)),
    ]
    if d.chance(0.6):
        inputs += [net.give(scale(d) * 30), net.give(zero(d, t))]
    net.node("QGemm", inputs, domain=MS, transA=ta, transB=tb, alpha=d.pick([None, 0.5, 2.0]))
    return net


@op("DynamicQuantizeMatMul", "MatMulIntegerToFloat")
def dynamic_matmul(d, name):
    net = Net(d, 13, com_microsoft=1, tolerance=2e-2)
    m, k, n = d.size(4), d.size(6), d.size(4)
    t = d.pick(["u1", "i1"])
    per = [n] if d.chance(0.4) else []
    b = net.give(d.any([k, n], t))
    batch = d.shape(0, 1, 3, 0)
    if name == "DynamicQuantizeMatMul":
        net.node(
            name,
            [net.give(d.array([*batch, m, k]), False), b, net.give(scale(d, per)), net.maybe(zero(d, t, per)), net.maybe(d.array([n]))],
            domain=MS,
        )
    else:
        net.tolerance = None
        ta = t if t == "i1" else "u1"
        net.node(
            name,
            [
                net.give(d.any([*batch, m, k], ta), False),
                b,
                net.give(scale(d)),
                net.give(scale(d, per)),
                net.maybe(zero(d, ta)),
                net.maybe(zero(d, t, per)),
                net.maybe(d.array([n])),
            ],
            domain=MS,
        )
    return net


@op("MatMulNBits")
def matmul_nbits(d):
    net = Net(d, 13, com_microsoft=1)
    bits, block = d.pick([4, 4, 8, 2]), d.pick([16, 32])
    n, k = d.int(1, 5), d.pick([16, 32, 48, 20, 33, 64])
    blocks = -(-k // block)
    b = d.any([n, blocks, block * bits // 8], "u1")
    s = scale(d, [n, blocks] if d.chance(0.7) else [n * blocks])
    a = dict(K=k, N=n, bits=bits, block_size=block)
    packed = -(-blocks * bits // 8)
    z = d.any([n, packed] if d.chance(0.6) else [n * packed], "u1")
    x = d.array([*d.shape(1, 2, 4, 0), k])
    net.node(
        "MatMulNBits",
        [net.give(x, False), net.give(b, True), net.give(s, True), net.maybe(z, constant=True), "", net.maybe(d.array([n]), 0.4)],
        domain=MS,
        **a,
    )
    return net


@op("QAttention")
def qattention(d):
    net = Net(d, 13, com_microsoft=1, tolerance=1e-3)
    b, s, heads, size = d.size(2), d.size(4), d.int(1, 2), 2 * d.int(1, 2)
    h = heads * size
    i, t, tw = d.int(1, 5), "u1", d.pick(["u1", "i1"])
    per = [3 * h] if d.chance(0.3) else []
    mask = net.maybe(d.rng.integers(1, s + 1, b).astype("i4"), 0.4)
    past, outputs = "", 1
    if d.chance(0.3):
        p = d.size(3)
        past, outputs, mask = net.give(d.array([2, b, heads, p, size]), False), 2, ""
    net.node(
        "QAttention",
        [
            net.give(d.any([b, s, i], t), False),
            net.give(d.any([i, 3 * h], tw)),
            net.give(d.array([3 * h])),
            net.give(scale(d) * np.float32(0.1)),
            net.give(scale(d, per)),
            mask,
            net.give(zero(d, t)),
            net.give(zero(d, tw, per)),
            past,
        ],
        outputs,
        domain=MS,
        num_heads=heads,
        unidirectional=d.pick([None, 0, 1]),
    )
    return net


@op("GatherBlockQuantized")
def gather_block(d):
    net = Net(d, 21, com_microsoft=1)
    rows, block = d.int(1, 6), 16
    k = d.pick([16, 32, 48])
    from onnx import TensorProto, helper

    t = d.pick([TensorProto.INT4, TensorProto.UINT4])
    low = -8 if t == TensorProto.INT4 else 0
    w = d.rng.integers(low, low + 16, rows * k)
    net.constants.append(helper.make_tensor("w", t, [rows, k], w))
    s = net.give(scale(d, [rows, k // block]), True)
    z = ""
    if d.chance():
        net.constants.append(helper.make_tensor("z", t, [rows, k // block], d.rng.integers(low, low + 16, rows * k // block)))
        z = "z"
    net.node(
        "GatherBlockQuantized",
        ["w", net.give(d.rng.integers(0, rows, d.shape(0, 2, 4, 0)).astype(d.pick(["i8", "i4"]))), s, z],
        domain=MS,
        gather_axis=0,
        quantize_axis=d.pick([1, -1]),
        block_size=block,
    )
    return net
