"""Small models, as exporters write them: each a function of nothing that returns the bytes of an ONNX file."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

F32, F16, BF16, F64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE
I64, I32, BOOL, U8 = TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL, TensorProto.UINT8


def port(name, kind, *shape):
    return helper.make_tensor_value_info(name, kind, list(shape))


def model(nodes, inputs, outputs, weights=None, name="model", **fields):
    weights = [numpy_helper.from_array(np.asarray(value), key) for key, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, name, inputs, outputs, weights, doc_string="a graph")
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9, **fields)
    return made.SerializeToString()


def node(operator, inputs, outputs, **attributes):
    return helper.make_node(operator, inputs.split(), outputs.split(), name=f"{operator.lower()}_{outputs}", **attributes)


def drawn(*sizes, seed=0):
    return (np.random.default_rng(seed).standard_normal(sizes) * 0.3).astype(np.float32)


def mlp():
    """Two layers with GELU by its formula, rows free."""
    nodes = [
        node("MatMul", "x w1", "a"),
        node("Add", "a b1", "b"),
        node("Div", "b root", "c"),
        node("Erf", "c", "d"),
        node("Add", "d one", "e"),
        node("Mul", "b e", "f"),
        node("Mul", "f half", "g"),
        node("Gemm", "g w2 b2", "y", transB=1),
    ]
    weights = {
        "w1": drawn(16, 32, seed=1), "b1": drawn(32, seed=2), "w2": drawn(5, 32, seed=3), "b2": drawn(5, seed=4),
        "root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5),
    }  # fmt: skip
    return model(nodes, [port("x", F32, "rows", 16)], [port("y", F32, "rows", 5)], weights, producer_name="pytest")


def attention():
    """Masked attention of one head, batch and tokens free."""
    nodes = [
        node("Transpose", "k", "kt", perm=[0, 2, 1]),
        node("MatMul", "q kt", "s"),
        node("Mul", "s scale", "scaled"),
        node("Where", "mask scaled low", "masked"),
        node("Softmax", "masked", "p", axis=-1),
        node("MatMul", "p v", "y"),
    ]
    weights = {"scale": np.float32(8**-0.5), "low": np.float32(-1e9)}
    inputs = [port(name, F32, "batch", "tokens", 8) for name in "qkv"] + [port("mask", BOOL, "batch", 1, "tokens")]
    return model(nodes, inputs, [port("y", F32, "batch", "tokens", 8)], weights)


def convolution():
    """Conv, BatchNormalization, Relu, GlobalAveragePool; every size fixed but the batch."""
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "a gamma beta mean var", "b"),
        node("Relu", "b", "c"),
        node("GlobalAveragePool", "c", "d"),
        node("Flatten", "d", "y"),
    ]
    weights = {
        "w": drawn(6, 3, 3, 3), "gamma": drawn(6, seed=1), "beta": drawn(6, seed=2), "mean": drawn(6, seed=3),
        "var": np.abs(drawn(6, seed=4)) + 0.5,
    }  # fmt: skip
    return model(nodes, [port("x", F32, None, 3, 12, 10)], [port("y", F32, None, 6)], weights)


def reshape_by_value():
    """The shape of the result is an input: the structure hangs on its value."""
    nodes = [node("Reshape", "x shape", "a"), node("ReduceSum", "a axis", "y", keepdims=0)]
    inputs = [port("x", F32, "n"), port("shape", I64, "rank")]
    return model(nodes, inputs, [port("y", F32)], {"axis": np.array([-1])})


def aliases():
    """Outputs that are an input, a constant, and one value twice."""
    nodes = [
        node("Identity", "x", "same"),
        node("Add", "x x", "twice"),
        node("Identity", "twice", "again"),
        node("Identity", "w", "weight"),
    ]
    outputs = [port("same", F32, "n"), port("twice", F32, "n"), port("again", F32, "n"), port("weight", F32, 40000)]
    return model(nodes, [port("x", F32, "n")], outputs, {"w": np.arange(40000, dtype=np.float32)})


def defaults():
    """A weight that the caller may replace."""
    inputs = [port("x", F32, "n", 3), port("w", F32, 3)]
    return model([node("Mul", "x w", "y")], inputs, [port("y", F32, "n", 3)], {"w": np.array([1, 2, 3], np.float32)})


def control():
    """A branch by a condition that is an input."""

    def branch(operator):
        return helper.make_graph([node(operator, "x x", "z")], operator, [], [port("z", F32, "n")])

    made = node("If", "c", "y", then_branch=branch("Add"), else_branch=branch("Mul"))
    return model([made], [port("x", F32, "n"), port("c", BOOL)], [port("y", F32, "n")])


def typed(kind, operator="Add"):
    """x + x in an element type."""
    return model([node(operator, "x x", "y")], [port("x", kind, "n", 2)], [port("y", kind, "n", 2)])


def cast(source, target):
    """From one element type to another, by their names in ONNX."""
    source, target = TensorProto.DataType.Value(source), TensorProto.DataType.Value(target)
    graph = helper.make_graph([node("Cast", "x", "y", to=target)], "g", [port("x", source, "n")], [port("y", target, "n")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def counted():
    """Several element types: how many are above zero, and which."""
    nodes = [
        node("Greater", "x zero", "above"),
        node("Cast", "above", "ones", to=I64),
        node("ReduceSum", "ones", "count", keepdims=0),
        node("ArgMax", "x", "largest", axis=1, keepdims=0),
    ]
    outputs = [port("above", BOOL, "n", "m"), port("count", I64), port("largest", I64, "n")]
    return model(nodes, [port("x", F32, "n", "m")], outputs, {"zero": np.float32(0)})


def unknown_operator():
    made = helper.make_node("Levitate", ["x"], ["y"], name="trick", domain="circus")
    graph = helper.make_graph([made], "g", [port("x", F32, 2)], [port("y", F32, 2)])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("circus", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def mismatched():
    """A product of sizes that do not fit."""
    return model([node("MatMul", "x w", "y")], [port("x", F32, 2, 3)], [port("y", F32, 2, 5)], {"w": drawn(4, 5)})
