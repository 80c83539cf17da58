"""Functions of elements: arithmetic of all types, conversions, activations."""

import numpy as np
from onnx import TensorProto

from net import INTS, ONNX_TYPE, Net, op

UNARY = [
    "Abs",
    "Neg",
    "Ceil",
    "Floor",
    "Round",
    "Sign",
    "Exp",
    "Log",
    "Sqrt",
    "Reciprocal",
    "Sin",
    "Cos",
    "Tan",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Tanh",
    "Asinh",
    "Acosh",
    "Atanh",
    "Sigmoid",
    "Relu",
    "Softplus",
    "Softsign",
    "Erf",
    "IsNaN",
    "IsInf",
    "Not",
    "BitwiseNot",
    "Identity",
    "Mish",
    "HardSwish",
    "LeakyRelu",
    "Elu",
    "Selu",
    "Celu",
    "HardSigmoid",
    "ThresholdedRelu",
    "Shrink",
    "Gelu",
    "Swish",
]
BINARY = [
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Pow",
    "Mod",
    "PRelu",
    "Equal",
    "Less",
    "Greater",
    "LessOrEqual",
    "GreaterOrEqual",
    "And",
    "Or",
    "Xor",
    "BitShift",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
]
SINCE = {
    "IsInf": 10,
    "IsNaN": 9,
    "Round": 11,
    "Mish": 18,
    "HardSwish": 14,
    "Celu": 12,
    "Gelu": 20,
    "Swish": 24,
    "BitwiseNot": 18,
    "BitwiseAnd": 18,
    "BitwiseOr": 18,
    "BitwiseXor": 18,
    "BitShift": 11,
    "Mod": 10,
    "LessOrEqual": 12,
    "GreaterOrEqual": 12,
    "Erf": 9,
    "Sign": 9,
    "ThresholdedRelu": 10,
    "Shrink": 9,
    "Sinh": 9,
    "Cosh": 9,
    "Asinh": 9,
    "Acosh": 9,
    "Atanh": 9,
    "Tan": 7,
    "Identity": 7,
}
ODD = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, 88.0, -100.0, 3e4]


def numbers(d, shape, dtype):
    """Numbers among which are odd ones."""
    x = d.array(shape, dtype)
    if np.dtype(dtype).kind == "f" and d.chance(0.4) and x.size:
        odd = np.array(ODD)[d.rng.integers(0, len(ODD), x.shape)]
        x = np.where(d.rng.random(x.shape) < 0.4, odd, x).astype(dtype)
    elif np.dtype(dtype).kind in "iu" and d.chance(0.3):
        x = d.any(shape, dtype)
    return x


@op(*UNARY)
def unary(d, name):
    low = SINCE.get(name, 7)
    net = Net(d, d.opset(low, 24))
    dtype = "f4" if d.chance(0.5) else d.pick(["f8", "f2"])
    if name in ("Abs", "Neg", "Sign", "Identity") and d.chance(0.4):
        dtype = d.pick(["i4", "i8", "i1", "i2"])
    if name == "BitwiseNot":
        dtype = d.pick(INTS)
    if name == "Not":
        dtype = "b1"
    if name == "Relu" and net.opset >= 14 and d.chance(0.3):
        dtype = d.pick(["i4", "i1", "i8"])
    a = {}
    choices = {
        "LeakyRelu": dict(alpha=0.3),
        "Elu": dict(alpha=0.7),
        "Selu": dict(alpha=1.2, gamma=0.9),
        "Celu": dict(alpha=0.8),
        "HardSigmoid": dict(alpha=0.3, beta=0.4),
        "ThresholdedRelu": dict(alpha=0.5),
        "Shrink": dict(lambd=0.7, bias=0.2),
        "Gelu": dict(approximate=d.pick(["tanh", "none"])),
        "Swish": dict(alpha=1.3),
        "IsInf": dict(detect_negative=d.int(0, 1), detect_positive=d.int(0, 1)),
    }.get(name, {})
    a = {k: v for k, v in choices.items() if d.chance(0.7)}
    x = d.array(d.shape(), dtype) if dtype == "b1" else numbers(d, d.shape(), dtype)
    if name in ("Sin", "Cos", "Tan") and x.dtype.kind == "f":
        x = np.where(np.abs(x) > 1e3, 1, x).astype(x.dtype)
    net.node(name, [net.give(x, False)], **a)
    return net


@op(*BINARY)
def binary(d, name):
    net = Net(d, d.opset(SINCE.get(name, 7), 24))
    v = net.opset
    dtype = "f4" if d.chance(0.4) else d.pick(["f8", "f2", *INTS] if v >= 14 else ["f8", "i4", "i8"])
    a, shape = {}, d.shape()
    if name in ("And", "Or", "Xor"):
        dtype = "b1"
    elif name.startswith("Bitwise") or name == "BitShift":
        dtype = d.pick(INTS if name != "BitShift" else ["u1", "u2", "u4", "u8"])
    elif name == "PRelu":
        dtype = d.pick(["f4", "f8", "f4", "i4", "i8"] if v >= 9 else ["f4"])
    x, y = (d.array(d.broadcast(shape), "b1") if dtype == "b1" else numbers(d, d.broadcast(shape), dtype) for _ in range(2))
    if name == "PRelu":
        x = numbers(d, shape, dtype)
    if name == "Equal" and d.chance(0.1) and v >= 19:
        x, y = d.array(d.broadcast(shape), "str"), d.array(d.broadcast(shape), "str")
    if name in ("Div", "Mod") and y.dtype.kind in "iu":
        y = np.where(y == 0, np.asarray(1, y.dtype), y)
        if y.dtype.kind == "i":  # the smallest divided by -1 is the processor's trap elsewhere
            y = np.where(y == -1, np.asarray(2, y.dtype), y)
    if name == "Mod":
        a["fmod"] = 1 if x.dtype.kind == "f" else d.int(0, 1)
    if name == "BitShift":
        a["direction"] = d.pick(["LEFT", "RIGHT"])
        y = (y % (x.dtype.itemsize * 8)).astype(x.dtype)
    if name == "Pow":
        x = d.array(x.shape, dtype)
        kind = d.pick(["f4", "f8", "i4", "i8"]) if v >= 13 and d.chance(0.4) else dtype
        y = d.array(y.shape, kind, 0 if np.dtype(dtype).kind in "iu" else -3, 4)
        if np.dtype(kind).kind == "f" and np.dtype(dtype).kind in "iu":
            y = np.round(y)
    net.node(name, [net.give(x), net.give(y)], **a)
    return net


@op("Sum", "Max", "Min", "Mean")
def several(d, name):
    net = Net(d, d.opset(8, 24))
    shape = d.shape()
    dtype = d.pick(["f4", "f4", "f8", "f2", "i4", "i8"]) if name in ("Max", "Min") and net.opset >= 12 else d.pick(["f4", "f8"])
    net.node(name, [net.give(numbers(d, d.broadcast(shape), dtype)) for _ in range(d.int(1, 4))])
    return net


@op("Clip")
def clip(d):
    net = Net(d, d.pick([6, 7, 11, 12, 13, 23]))
    dtype = d.pick(["f4", "f4", "f8", "f2"] + (["i4", "i8", "i1", "u1"] if net.opset >= 12 else []))
    x = numbers(d, d.shape(), dtype)
    if net.opset < 11:
        net.node("Clip", [net.give(x, False)], min=d.pick([None, -1.0]), max=d.pick([None, 1.5]))
    else:
        net.node("Clip", [net.give(x, False), net.maybe(d.array([], dtype, -2, 2)), net.maybe(d.array([], dtype, -2, 2))])
    return net


SMALL = {
    "bf16": TensorProto.BFLOAT16,
    "f8e4m3fn": TensorProto.FLOAT8E4M3FN,
    "f8e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
    "f8e5m2": TensorProto.FLOAT8E5M2,
    "f8e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
    "i4": TensorProto.INT4,
    "u4": TensorProto.UINT4,
    "f4e2m1": TensorProto.FLOAT4E2M1,
}


@op("Cast")
def cast(d):
    net = Net(d, d.pick([9, 13, 19, 21, 23, 24]))
    shape = d.shape(0, 3)
    source = d.pick(["f4", "f4", "f8", "f2", "b1", *INTS])
    x = d.array(shape, "b1") if source == "b1" else numbers(d, shape, source)
    if d.chance(0.15):
        texts = np.array(["1", "-2", "3", "0", "7"] if d.chance() else ["1.5", "-2.25", "1e3", "NaN", "INF", "-INF", "inf", "0"], object)
        x = np.asarray(texts[d.rng.integers(0, len(texts), shape)], dtype=object).reshape(tuple(shape))
        ints = "." not in "".join(texts)
        net.node("Cast", [net.give(x, False)], to=ONNX_TYPE[d.pick(["f4", "f8", "f2"] + (["i4", "i8", "u1"] if ints else []))])
        return net
    target = d.pick(["f4", "f8", "f2", "b1", "str", *INTS, *([] if net.opset < 21 else SMALL)])
    if target == "str" and x.dtype.kind == "f":
        x = np.round(x * 4) / np.asarray(4, x.dtype)
    if x.dtype.kind == "f" and target in INTS:  # what does not fit has no defined value
        info = np.iinfo(target)
        x = np.where(np.isfinite(x), x, 3).clip(max(info.min, -1e4), min(info.max, 1e4)).astype(x.dtype)
        if info.min == 0:
            x = np.abs(x)
    if target in SMALL and target not in ONNX_TYPE or net.opset >= 21 and target in ("i4", "u4") and d.chance():
        if source == "b1" or np.dtype(source).kind != "f":
            x = numbers(d, shape, "f4")
        if target in ("i4", "u4"):
            x = np.where(np.isfinite(x), x, 3).clip(-8 if target == "i4" else 0, 7 if target == "i4" else 15).astype(x.dtype)
        a = {"saturate": d.int(0, 1)} if target.startswith("f8") and d.chance() else {}
        y = net.node("Cast", [net.give(x, False)], to=SMALL[target], keep=False, **a)
        net.node("Cast", [y], to=TensorProto.FLOAT)
        return net
    net.node("Cast", [net.give(x, False)], to=ONNX_TYPE[target])
    return net


@op("CastLike")
def cast_like(d):
    net = Net(d, d.pick([15, 19, 21]))
    net.node(
        "CastLike",
        [
            net.give(d.array(d.shape(0, 3), d.pick(["f4", "f8", "i4", "u1", "b1"]), 0, 3), False),
            net.give(d.array([1], d.pick(["f4", "f8", "i8", "u1", "b1", "f2"]))),
        ],
    )
    return net


@op("Gelus")
def gelus(d):
    net = Net(d, 17, com_microsoft=1)
    shape = d.shape(1, 3)
    name = d.pick(["Gelu", "FastGelu", "BiasGelu", "QuickGelu"])
    x = net.give(d.array(shape), False)
    if name == "BiasGelu":
        net.node(name, [x, net.give(d.array(shape[-1:]))], domain="com.microsoft")
    elif name == "FastGelu":
        net.node(name, [x, net.maybe(d.array(shape[-1:]))], domain="com.microsoft")
    else:
        net.node(name, [x], domain="com.microsoft", **({"alpha": 1.3} if name == "QuickGelu" and d.chance() else {}))
    return net


@op("Dropout")
def dropout(d):
    net = Net(d, d.pick([7, 10, 12, 13, 22]))
    x = net.give(d.array(d.shape(), d.pick(["f4", "f8"])), False)
    outputs = d.int(1, 2) if net.opset >= 10 else 1
    if net.opset < 12:
        net.node("Dropout", [x], outputs, ratio=0.4)
    else:
        net.node("Dropout", [x, net.maybe(np.array(0.4, "f4")), net.maybe(np.array(False))], outputs)
    return net


@op("ChainOfElements")
def chain(d):
    """Several nodes of elements, views and folds behind one another."""
    net = Net(d, d.opset(18, 23))
    shape = d.shape(1, 4, 5)
    x = net.give(d.array(shape), False)
    for _ in range(d.int(2, 6)):
        way = d.pick(["unary", "binary", "fold", "move", "norm"])
        if way == "unary":
            x = net.node(d.pick(["Relu", "Sigmoid", "Tanh", "Abs", "Erf", "Softplus", "Neg"]), [x], keep=False)
        elif way == "binary":
            x = net.node(d.pick(["Add", "Sub", "Mul", "Max", "Min"]), [x, net.give(d.array(d.broadcast(shape)))], keep=False)
        elif way == "fold":
            y = net.node(
                d.pick(["ReduceMean", "ReduceSum", "ReduceMax"]) if 0 not in shape else "ReduceSum",
                [x, net.ints([d.axis(len(shape))])],
                keep=False,
            )
            x = net.node("Sub", [x, y], keep=False)
        elif way == "move":
            perm = d.rng.permutation(len(shape)).tolist()
            x, shape = net.node("Transpose", [x], keep=False, perm=perm), [shape[p] for p in perm]
        else:
            x = net.node("Softmax", [x], keep=False, axis=d.axis(len(shape)))
    net.node("Identity", [x])
    return net
