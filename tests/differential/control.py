"""Loops, branches and scans with values from outside, sequences, optional values."""

import numpy as np
from onnx import TensorProto, helper

from net import Net, op

F = TensorProto.FLOAT


def info(name, kind=F, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


@op("If")
def branch(d):
    net = Net(d, d.pick([7, 11, 13, 19, 23]))
    shape = d.shape(0, 3)
    x, y = net.give(d.array(shape), False), net.give(d.array(shape))
    c = net.give(np.array(d.chance()) if net.opset >= 11 or d.chance() else np.array([d.chance()]))
    graphs = []
    for n, k in (("then", d.pick(["Add", "Sub", "Mul"])), ("else", d.pick(["Max", "Min", "Add"]))):
        nodes = [helper.make_node(k, [x, y], [f"{n}_a"]), helper.make_node(d.pick(["Relu", "Tanh", "Neg"]), [f"{n}_a"], [f"{n}_b"])]
        results = [f"{n}_b", f"{n}_a"]
        if d.chance(0.3) and shape and n == "then":
            nodes.append(helper.make_node("Concat", [f"{n}_a", x], [f"{n}_c"], axis=0))
            results = [f"{n}_b", f"{n}_c"]
        graphs.append(helper.make_graph(nodes, n, [], [info(r) for r in results]))
    net.node("If", [c], 2, then_branch=graphs[0], else_branch=graphs[1])
    return net


@op("Loop")
def loop(d):
    net = Net(d, d.pick([8, 11, 13, 16, 21]))
    shape = d.shape(0, 2, zero=0)
    outer, x = net.give(d.array(shape)), net.give(d.array(shape), False)
    trips = d.pick([0, 1, 2, 3, 5])
    limit = np.float32(d.int(1, 8))
    how = d.pick(["for", "while", "both"])
    net.constants.append(helper.make_tensor("one", F, [], [1.0]))
    nodes = [
        helper.make_node("Cast", ["i"], ["fi"], to=F),
        helper.make_node("Mul", [outer, "fi"], ["t"]),
        helper.make_node("Add", ["s", "t"], ["s1"]),
        helper.make_node("Add", ["n", "one"], ["n1"]),
        helper.make_node("Tanh", ["s1"], ["scan"]),
    ]
    if how == "for":
        nodes.append(helper.make_node("Identity", ["c"], ["c1"]))
    else:
        nodes.append(helper.make_node("Less", ["n1", net.give(limit, d.chance())], ["c1"]))
    body = helper.make_graph(
        nodes,
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("s", F, shape), info("n", F, [])],
        [info("c1", TensorProto.BOOL, []), info("s1", F, shape), info("n1", F, []), info("scan", F, shape)],
    )
    m = net.ints(trips) if how != "while" else ""
    c = net.give(np.array(True)) if how == "while" or d.chance() else ""
    net.node("Loop", [m, c, x, net.give(np.float32(0), d.chance())], 3, body=body)
    return net


@op("Scan")
def scan(d):
    net = Net(d, d.pick([9, 11, 16, 21]))
    t, n = d.int(1, 5), d.int(1, 4)
    axis, direction, out_axis, out_dir = d.int(0, 1), d.int(0, 1), d.int(0, 1), d.int(0, 1)
    x = d.array([t, n] if axis == 0 else [n, t])
    outer = net.give(d.array([n]))
    state = net.give(d.array([n]), False)
    nodes = [
        helper.make_node("Mul", ["e", outer], ["p"]),
        helper.make_node("Add", ["s", "p"], ["s1"]),
        helper.make_node("Tanh", ["s1"], ["o"]),
    ]
    body = helper.make_graph(nodes, "body", [info("s", F, [n]), info("e", F, [n])], [info("s1", F, [n]), info("o", F, [n])])
    a = {
        k: [v]
        for k, v in dict(
            scan_input_axes=axis, scan_input_directions=direction, scan_output_axes=out_axis, scan_output_directions=out_dir
        ).items()
        if v or d.chance(0.3)
    }
    net.node("Scan", [state, net.give(x, False)], 2, body=body, num_scan_inputs=1, **a)
    return net


@op("Sequences")
def sequences(d):
    net = Net(d, d.pick([11, 13, 17, 21]))
    shape = d.shape(1, 3, zero=0)
    way = d.pick(["split", "construct", "construct", "erase", "insert", "length", "concat", "stack"])
    if way == "split":
        axis = d.axis(len(shape))
        n = shape[axis]
        split = d.pick(["none", "scalar", "list"])
        operand = ""
        if split == "scalar":
            operand = net.ints(d.int(1, n))
        elif split == "list":
            cut = d.int(0, n)
            operand = net.ints([cut, n - cut])
        s = net.node(
            "SplitToSequence",
            [net.give(d.array(shape), False), operand],
            keep=False,
            axis=axis,
            keepdims=d.pick([None, 0, 1]) if split == "none" else None,
        )
        net.node("SequenceLength", [s])
        net.node("SequenceAt", [s, net.ints(d.pick([0, -1]))])
        return net
    count = d.int(1, 4)
    parts = [net.give(d.array(shape), False if k == 0 else None) for k in range(count)]
    s = net.node("SequenceConstruct", parts, keep=False)
    kind = d.pick(["i8", "i4"])
    if way == "erase" and count > 1:
        s = net.node("SequenceErase", [s, net.ints(d.int(-count, count - 1), dtype=kind) if d.chance(0.7) else ""], keep=False)
        count -= 1
    elif way == "insert":
        s = net.node(
            "SequenceInsert", [s, net.give(d.array(shape)), net.ints(d.int(-count, count), dtype=kind) if d.chance(0.7) else ""], keep=False
        )
        count += 1
    if way == "length":
        net.node("SequenceLength", [s])
    if way in ("concat", "stack"):
        new = int(way == "stack")
        rank = len(shape)
        net.node("ConcatFromSequence", [s], axis=d.int(-rank - new, rank - 1 + new), new_axis=new or d.pick([None, 0]))
    else:
        net.node("SequenceAt", [s, net.ints(d.int(-count, count - 1), dtype=kind)])
    return net


@op("Optionals")
def optionals(d):
    net = Net(d, d.pick([15, 18, 21]))
    x = net.give(d.array(d.shape(0, 3)), False)
    o = net.node("Optional", [x], keep=False)
    net.node("OptionalHasElement", [o])
    net.node("OptionalGetElement", [o])
    return net
