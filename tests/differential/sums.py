"""Folds and products: reductions, running sums, contractions, normalisations, softmax, order."""

import numpy as np

from net import Net, op

REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
]


@op(*REDUCTIONS)
def reduction(d, name):
    net = Net(d, d.pick([1, 7, 11, 12, 13, 17, 18, 20, 23]))
    v = net.opset
    shape = d.shape(0 if v >= 18 else 1, 5, 5, 0.06)
    rank = len(shape)
    dtype = d.pick(["f4", "f4", "f8", "i4", "i8"])
    if name in ("ReduceMax", "ReduceMin") and v >= 12 and d.chance(0.3):
        dtype = d.pick(["u1", "i1"] + (["b1"] if v >= 20 else []))
    x = d.array(shape, dtype)
    if name == "ReduceLogSum":
        x = np.abs(x) + np.asarray(1, x.dtype)
    signed = v >= 11
    axes = [a if signed else a % rank for a in d.axes(rank, 1)] if rank and d.chance(0.7) else None
    a = {"keepdims": d.int(0, 1)} if d.chance(0.7) else {}
    as_input = v >= (13 if name == "ReduceSum" else 18)
    if as_input and d.chance(0.4):
        a["noop_with_empty_axes"] = d.int(0, 1)
    if not as_input:
        net.node(name, [net.give(x, False)], axes=axes, **a)
        return net
    if axes is None and d.chance(0.3):
        axes = []
    net.node(name, [net.give(x, False), "" if axes is None else net.ints(axes)], **a)
    return net


@op("ArgMax", "ArgMin")
def arg(d, name):
    net = Net(d, d.pick([1, 7, 11, 12, 13, 23]))
    shape = d.shape(1, 4, 5, 0)
    axis = d.axis(len(shape)) if net.opset >= 11 else d.int(0, len(shape) - 1)
    a = {k: d.int(0, 1) for k in ("keepdims", "select_last_index") if d.chance() and (k == "keepdims" or net.opset >= 12)}
    dtype = d.pick(["f4", "f4", "f8", "i4", "i1", "u1", "i8"])
    x = d.array(shape, dtype)
    if dtype[0] == "f" and d.chance():
        x = np.round(x)
    net.node(name, [net.give(x, False)], axis=axis if axis or d.chance() else None, **a)
    return net


@op("TopK")
def top_k(d):
    net = Net(d, d.pick([7, 10, 11, 23]))
    shape = d.shape(1, 4, 6, 0)
    axis = d.axis(len(shape)) if net.opset >= 10 else d.int(0, len(shape) - 1)
    k = d.int(0 if d.chance(0.1) and net.opset >= 10 else 1, shape[axis])
    x = d.array(shape, d.pick(["f4", "f4", "f8", "i8", "i4"] if net.opset >= 11 else ["f4"]))
    if d.chance(0.3):
        x = np.round(x)
    a = {"axis": axis} if d.chance(0.8) or axis % len(shape) != len(shape) - 1 else {}
    if net.opset >= 11:
        a |= {key: d.int(0, 1) for key in ("largest",) if d.chance()}
    if net.opset < 10:
        net.node("TopK", [net.give(x, False)], 2, k=k, **a)
    else:
        net.node("TopK", [net.give(x, False), net.ints([k])], 2, **a)
    return net


@op("CumSum", "CumProd")
def cumulate(d, name):
    net = Net(d, d.pick([11, 14, 23]) if name == "CumSum" else 26)
    shape = d.shape(1, 4, 6, 0.05)
    a = {k: d.int(0, 1) for k in ("exclusive", "reverse") if d.chance()}
    axis = np.array(d.axis(len(shape)), d.pick(["i8", "i4"]))
    net.node(
        name,
        [
            net.give(d.array(shape, d.pick(["f4", "f8", "i4", "i8"])), False),
            net.give(axis if d.chance(0.7) else axis[None] if name == "CumSum" else axis),
        ],
        **a,
    )
    return net


@op("Einsum")
def einsum(d):
    net = Net(d, 12)
    sizes = dict(zip("abcdefgh", [d.size(4) for _ in range(8)]))
    letters = d.some(list(sizes), 1)[:4]
    ellipsis = d.shape(1, 2, 3, 0) if d.chance(0.35) else None
    terms, operands = [], []
    dtype = d.pick(["f4", "f4", "f8", "i4", "i8"])
    for _ in range(d.pick([1, 2, 2, 3])):
        own = d.some(letters, 1)
        if d.chance(0.15):
            own.insert(d.int(0, len(own)), d.pick(own))
        shape = [sizes[c] for c in own]
        if ellipsis is not None and d.chance(0.8):
            at = d.int(0, len(own))
            wide = d.broadcast(ellipsis)
            term = "".join(own[:at]) + "..." + "".join(own[at:])
            shape = shape[:at] + wide + shape[at:]
        else:
            term = "".join(own)
        terms.append(term)
        operands.append(net.give(d.array(shape, dtype)))
    seen = sorted({c for t in terms for c in t if c != "."})
    equation = (", " if d.chance(0.2) else ",").join(terms)
    if d.chance(0.75):
        out = d.some(seen)
        if any("..." in t for t in terms):
            out.insert(d.int(0, len(out)), "...")
        equation += (" -> " if d.chance(0.2) else "->") + "".join(out)
    net.node("Einsum", operands, equation=equation)
    return net


@op("MatMul", "FusedMatMul")
def matmul(d, name):
    net = Net(d, d.opset(7, 24), com_microsoft=1)
    m, k, n = d.size(5, 0.04), d.size(5, 0.04), d.size(5, 0.04)
    batch = d.shape(0, 2, 3)
    a = [*d.broadcast(batch), m, k]
    b = [*d.broadcast(batch), k, n]
    dtype = d.pick(["f4", "f4", "f8", "i4", "i8", "f2", "u4"]) if name == "MatMul" else d.pick(["f4", "f4", "f8"])
    attributes, domain = {}, ""
    if name == "MatMul":
        if d.chance(0.15):
            a = [k]
        if d.chance(0.15):
            b = [k]
    else:
        domain = "com.microsoft"
        if d.chance():
            a[-2:] = a[:-3:-1]
            attributes["transA"] = 1
        if d.chance():
            b[-2:] = b[:-3:-1]
            attributes["transB"] = 1
        attributes["alpha"] = d.pick([None, 0.5, -2.0])
    net.node(name, [net.give(d.array(a, dtype)), net.give(d.array(b, dtype))], domain=domain, **attributes)
    return net


@op("Gemm", "FusedGemm")
def gemm(d, name):
    net = Net(d, d.opset(7, 24) if name == "Gemm" else 13, com_microsoft=1)
    m, k, n = d.size(5, 0.04), d.size(5, 0.04), d.size(5, 0.04)
    a = {
        key: v
        for key, v in dict(alpha=d.pick([0.5, 2.0, 0.0, 1.0]), beta=d.pick([0.5, 0.0, 1.0]), transA=d.int(0, 1), transB=d.int(0, 1)).items()
        if d.chance()
    }
    dtype = d.pick(["f4", "f4", "f8", "i4", "i8", "f2"]) if name == "Gemm" else "f4"
    left, right = [m, k], [k, n]
    if a.get("transA"):
        left.reverse()
    if a.get("transB"):
        right.reverse()
    c = d.broadcast([m, n])
    third = net.give(d.array(c, dtype)) if net.opset < 11 or d.chance(0.7) else ""
    if name == "FusedGemm" and d.chance(0.8):
        a["activation"] = d.pick(["Relu", "LeakyRelu", "Tanh", "Sigmoid", "Elu", "HardSigmoid", "Softplus"])
        if d.chance():
            a["activation_alpha"] = 0.2
        if a["activation"] == "HardSigmoid":
            a |= dict(activation_alpha=0.25, activation_beta=0.4)
    net.node(
        name,
        [net.give(d.array(left, dtype)), net.give(d.array(right, dtype)), third],
        domain="" if name == "Gemm" else "com.microsoft",
        **a,
    )
    return net


@op("Softmax", "LogSoftmax", "Hardmax")
def softmax(d, name):
    net = Net(d, d.pick([7, 11, 12, 13, 18, 23]))
    shape = d.shape(1, 4)
    axis = d.axis(len(shape)) if net.opset >= 11 else d.int(0, len(shape) - 1)
    x = d.array(shape, d.pick(["f4", "f4", "f8", "f2"]) if name != "Hardmax" else "f4", -20, 20)
    if name == "Hardmax" and d.chance():
        x = np.round(x / 8)
    net.node(name, [net.give(x, False)], axis=axis if d.chance(0.8) or len(shape) == 1 else None)
    return net


@op("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def layer_norm(d, name):
    net = Net(d, {"LayerNormalization": 17, "RMSNormalization": 23}.get(name, 17))
    shape = d.shape(1, 4, 6, 0)
    axis = d.axis(len(shape))
    inner = shape[axis:] if axis >= 0 else shape[len(shape) + axis :]
    dtype = d.pick(["f4", "f4", "f8", "f2"])
    weight = d.broadcast(inner) if d.chance(0.2) else inner
    inputs = [net.give(d.array(shape, dtype), False), net.give(d.array(weight, dtype))]
    outputs = 1
    if name == "LayerNormalization":
        inputs.append(net.maybe(d.array(weight, dtype)))
        outputs = d.int(1, 3)
    net.node(name, inputs, outputs, axis=axis if axis != -1 or d.chance() else None, epsilon=d.pick([None, 1e-3]))
    return net


@op("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_norm(d, name):
    net = Net(d, 17, com_microsoft=1)
    b, s, h = d.size(3), d.size(4), d.int(1, 8)
    shape = [b, s, h] if d.chance(0.8) else [b * s, h]
    skip = shape
    if len(shape) == 3 and d.chance(0.3):
        skip = d.pick([[1, s, h], [s, h]])
    inputs = [net.give(d.array(shape), False), net.give(d.array(skip), False), net.give(d.array([h]))]
    if name == "SkipLayerNormalization":
        inputs.append(net.maybe(d.array([h])))
    inputs.append(net.maybe(d.array([h])))
    wanted = [True, False, False, True] if d.chance() else 1
    net.node(name, inputs, wanted, domain="com.microsoft", epsilon=d.pick([None, 1e-3]))
    return net


@op("GroupNormalization", "InstanceNormalization", "LpNormalization", "MeanVarianceNormalization")
def norms(d, name):
    net = Net(
        d,
        {"GroupNormalization": d.pick([18, 21, 23]), "MeanVarianceNormalization": d.pick([9, 13])}.get(name, d.opset(7, 22)),
        com_microsoft=1,
    )
    groups = d.int(1, 3)
    c = groups * d.int(1, 3)
    shape = [d.size(3), c, *d.shape(1, 3, 5, 0)]
    x = d.array(shape)
    if name == "GroupNormalization":
        n = groups if net.opset < 21 else c
        net.node(
            name, [net.give(x, False), net.give(d.array([n])), net.give(d.array([n]))], num_groups=groups, epsilon=d.pick([None, 1e-3])
        )
    elif name == "InstanceNormalization":
        net.node(name, [net.give(x, False), net.give(d.array([c])), net.give(d.array([c]))], epsilon=d.pick([None, 1e-3]))
    elif name == "LpNormalization":
        net.node(name, [net.give(x, False)], p=d.pick([None, 1, 2]), axis=d.pick([None, d.axis(len(shape))]))
    elif name == "MeanVarianceNormalization":
        net.node(name, [net.give(x, False)], axes=d.pick([None, d.axes(len(shape), 1)]) if len(shape) > 3 else d.axes(len(shape), 1))
    return net


@op("BatchNormalization")
def batch_norm(d):
    net = Net(d, d.pick([7, 9, 14, 15, 23]))
    shape = d.shape(2, 5, 4, 0)
    c = shape[1]
    training = net.opset >= 14 and d.chance(0.4)
    a = {k: v for k, v in dict(epsilon=1e-3, momentum=0.7).items() if d.chance()}
    if training:
        a["training_mode"] = 1
    if net.opset == 7 and d.chance(0.2):
        a["spatial"] = 1
    dtype = d.pick(["f4", "f4", "f8"])
    net.node(
        "BatchNormalization",
        [
            net.give(d.array(shape, dtype), False),
            *[net.give(d.array([c], dtype)) for _ in range(3)],
            net.give(np.abs(d.array([c], dtype)) + 0.1),
        ],
        3 if training else 1,
        **a,
    )
    return net


@op("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(d, name):
    net = Net(d, d.pick([12, 13]))
    n, c, rest = d.size(4), d.int(1, 5), d.shape(0, 2, 3, 0)
    target = d.rng.integers(0, c, [n, *rest]).astype(d.pick(["i8", "i4"]))
    a = {"reduction": d.pick(["none", "mean", "sum"])} if d.chance(0.8) else {}
    if d.chance(0.4):
        a["ignore_index"] = d.pick([0, c - 1, -1, 255])
        if a["ignore_index"] in (-1, 255) and target.size:
            target.flat[0] = a["ignore_index"]
            if target.size == 1:
                a.pop("ignore_index"), target.fill(0)
    outputs = 2 if name == "SoftmaxCrossEntropyLoss" and d.chance() else 1
    net.node(
        name, [net.give(d.array([n, c, *rest]), False), net.give(target), net.maybe(np.abs(d.array([c])) + np.float32(0.1))], outputs, **a
    )
    return net


@op("Det")
def det(d):
    net = Net(d, 11)
    n = d.int(1, 5)
    net.node("Det", [net.give(d.array([*d.shape(0, 2, 3, 0), n, n]), False)])
    return net
