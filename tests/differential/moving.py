"""Elements that move: pads, slices, gathers and scatters, joins and cuts."""

import numpy as np

from net import FLOATS, INTS, Net, op

ANY = ["f4", "f4", "i8", "i4", "f8", "u1", "b1"]


@op("Pad")
def pad(d):
    net = Net(d, d.pick([2, 7, 10, 11, 13, 18, 19, 21, 23]))
    v = net.opset
    mode = d.pick(["constant", "constant", "edge", "reflect"] + (["wrap"] if v >= 19 else []))
    shape = d.shape(1, 4, zero=0.03 if mode == "constant" else 0)
    rank = len(shape)
    pads = [[0, 0] for _ in shape]
    for k, n in enumerate(shape):
        most = 3 if mode in ("constant", "edge") else max(n - 1, 0)
        pads[k] = [d.int(0, most), d.int(0, most)]
        if d.chance(0.2) and n >= 3:
            side = d.int(0, 1)
            pads[k][side] = -1
            if mode == "reflect":
                pads[k][1 - side] = min(pads[k][1 - side], n - 2)
    dtype = d.pick(["f4", "f4", "f8"] + (["i4", "i8", "u1", "b1"] if v >= 13 else []))
    a = {"mode": mode} if mode != "constant" or d.chance() else {}
    x = net.give(d.array(shape, dtype), False)
    if v < 11:
        if d.chance():
            a["value"] = 2.5
        net.node("Pad", [x], pads=[p[0] for p in pads] + [p[1] for p in pads], **a)
        return net
    axes, operand = list(range(rank)), ""
    if v >= 18 and d.chance():
        axes = d.some(axes, 1)
        operand = net.ints([k - rank if d.chance(0.3) else k for k in axes], dtype=d.pick(["i8", "i4"]))
    given = net.ints([pads[k][0] for k in axes] + [pads[k][1] for k in axes])
    net.node("Pad", [x, given, net.maybe(d.array([], dtype)) if mode == "constant" or d.chance(0.2) else "", operand], **a)
    return net


@op("Slice")
def slice_(d):
    net = Net(d, d.pick([1, 9, 10, 11, 13, 23]))
    shape = d.shape(1, 5)
    rank = len(shape)
    axes = d.some(list(range(rank)), 1)
    far = [-(2**31), 2**31 - 1] if d.chance() else [-(2**62), 2**63 - 1]
    starts, ends, steps = [], [], []
    for k in axes:
        n = shape[k]
        steps.append(d.pick([1, 1, 2, 3, -1, -2, 1000, -1000]) if net.opset >= 10 else 1)
        s, e = d.int(-n - 2, n + 2), d.int(-n - 2, n + 2)
        if d.chance(0.2):
            e = d.pick(far)
        if d.chance(0.1):
            s = d.pick(far)
        starts.append(s)
        ends.append(e)
    x = net.give(d.array(shape, d.pick(ANY)), False)
    plain = axes == list(range(len(axes))) and d.chance()
    axes = [k - rank if d.chance(0.3) else k for k in axes] if net.opset >= 11 else axes
    if net.opset < 10:
        net.node("Slice", [x], starts=starts, ends=ends, axes=None if plain else axes)
        return net
    dtype = "i4" if max(map(abs, starts + ends)) < 2**31 and d.chance() else "i8"
    unit = all(s == 1 for s in steps) and d.chance()
    net.node(
        "Slice",
        [
            x,
            net.ints(starts, dtype=dtype),
            net.ints(ends, dtype=dtype),
            "" if plain else net.ints(axes, dtype=dtype),
            "" if unit else net.ints(steps, dtype=dtype),
        ],
    )
    return net


@op("Gather")
def gather(d):
    net = Net(d, d.opset(7, 24))
    shape = d.shape(1, 4, zero=0)
    rank = len(shape)
    axis = d.axis(rank) if net.opset >= 11 else d.int(0, rank - 1)
    n = shape[axis]
    indices = d.rng.integers(-n if net.opset >= 11 else 0, n, d.shape(0, 3, 4)).astype(d.pick(["i8", "i4"]))
    net.node("Gather", [net.give(d.array(shape, d.pick(ANY + ["str"]))), net.give(indices)], axis=axis if axis or d.chance() else None)
    return net


@op("GatherElements", "ScatterElements")
def gather_elements(d, name):
    net = Net(d, d.pick([11, 13, 16, 18, 23]))
    shape = d.shape(1, 4, zero=0)
    axis = d.axis(len(shape))
    inner = [d.int(1, n) for n in shape]
    n = shape[axis]
    dtype = d.pick(["f4", "f4", "i8", "i4", "f8", "u1", "f2"])
    a = {"axis": axis} if axis or d.chance() else {}
    if name == "GatherElements":
        inner[axis] = d.int(1, n + 2)
        indices = d.rng.integers(-n, n, inner).astype(d.pick(["i8", "i4"]))
        net.node(name, [net.give(d.array(shape, dtype)), net.give(indices)], **a)
        return net
    ways = ["none"] + (["add", "mul"] if net.opset >= 16 else []) + (["max", "min"] if net.opset >= 18 else [])
    way = d.pick(ways)
    if way == "none":  # otherwise an element may be written twice
        indices = np.argsort(d.rng.random([*inner[:axis], n, *inner[axis:][1:]]), axis=axis).take(range(inner[axis]), axis=axis)
        indices = np.where(d.rng.random(indices.shape) < 0.3, indices - n, indices)
    else:
        inner[axis] = d.int(1, n + 3)
        indices = d.rng.integers(-n, n, inner)
    a |= {"reduction": way} if way != "none" or (net.opset >= 16 and d.chance()) else {}
    net.node(
        name,
        [net.give(d.array(shape, dtype)), net.give(indices.astype(d.pick(["i8", "i4"]))), net.give(d.array(indices.shape, dtype))],
        **a,
    )
    return net


@op("GatherND", "ScatterND")
def gather_nd(d, name):
    net = Net(d, d.pick([12, 13, 16, 18, 23]))
    shape = d.shape(1, 4, 4, 0)
    rank = len(shape)
    batch = d.int(0, rank - 1) if name == "GatherND" and d.chance() else 0
    depth = d.int(1, rank - batch)
    outer = shape[:batch] + d.shape(1 if batch == 0 else 0, 2, 4, 0.03)
    dtype = d.pick(["f4", "f4", "i8", "i4", "f8"])
    ways = ["none"] + (["add", "mul"] if net.opset >= 16 else []) + (["max", "min"] if net.opset >= 18 else [])
    way = d.pick(ways) if name == "ScatterND" else "none"
    if name == "ScatterND" and way == "none":
        every = int(np.prod(shape[:depth]))
        flat = d.rng.permutation(every)[: d.int(0 if d.chance(0.1) else 1, every)]
        indices = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype("i8")
        outer = list(indices.shape[:-1])
    else:
        indices = np.stack([d.rng.integers(-n, n, outer) for n in shape[batch : batch + depth]], -1)
    if name == "GatherND":
        net.node(name, [net.give(d.array(shape, dtype)), net.give(indices)], batch_dims=batch if batch or d.chance(0.2) else None)
        return net
    neg = d.rng.random(indices.shape) < 0.2
    indices = np.where(neg & (indices >= 0), indices - np.array(shape[:depth]), indices)
    a = {"reduction": way} if way != "none" or (net.opset >= 16 and d.chance()) else {}
    net.node(name, [net.give(d.array(shape, dtype)), net.give(indices), net.give(d.array(outer + shape[depth:], dtype))], **a)
    return net


@op("Concat")
def concat(d):
    net = Net(d, d.opset(7, 24))
    shape = d.shape(1, 4)
    axis = d.axis(len(shape)) if net.opset >= 11 else d.int(0, len(shape) - 1)
    dtype, parts = d.pick(ANY + ["str"]), []
    for _ in range(d.int(1, 4)):
        part = list(shape)
        part[axis] = d.size(3, 0.1)
        parts.append(net.give(d.array(part, dtype)))
    net.node("Concat", parts, axis=axis)
    return net


@op("Split")
def split(d):
    net = Net(d, d.pick([7, 11, 13, 18, 23]))
    shape = d.shape(1, 4, zero=0)
    axis = d.axis(len(shape)) if net.opset >= 11 else d.int(0, len(shape) - 1)
    parts = [d.size(3, 0.05) for _ in range(d.int(1, 4))]
    a, inputs = {"axis": axis} if axis or d.chance() else {}, []
    way = d.pick(["given", "equal"])
    if way == "equal":
        parts = [d.size(3)] * len(parts)
        if net.opset >= 18:
            if d.chance():
                a["num_outputs"] = len(parts)
                if parts[0] > 1:
                    parts[-1] -= d.int(0, 1)
            else:
                way = "given"
    shape[axis] = sum(parts)
    x = net.give(d.array(shape, d.pick(ANY)), False)
    if way == "given":
        if net.opset < 13:
            a["split"] = parts
        else:
            inputs = [net.ints(parts)]
    net.node("Split", [x, *inputs], len(parts), **a)
    return net


@op("Reshape")
def reshape(d):
    net = Net(d, d.opset(7, 24))
    shape = d.shape(0, 4)
    sizes = [n for n in d.rng.permutation([f for n in shape for f in factors(n)]).tolist()] if shape else []
    target = []
    for f in sizes:
        if target and d.chance():
            target[-1] *= f
        else:
            target.append(f)
    for _ in range(d.int(0, 2)):
        target.insert(d.int(0, len(target)), 1)
    a = {}
    whole = int(np.prod(shape))
    if net.opset >= 14 and d.chance(0.3):
        a["allowzero"] = 1
        if whole and target and d.chance():
            target[d.int(0, len(target) - 1)] = -1
    elif whole and target:
        for k in range(len(target)):
            if k < len(shape) and target[k] == shape[k] and d.chance():
                target[k] = 0
        if d.chance():
            target[d.int(0, len(target) - 1)] = -1
    elif not whole:
        a = {"allowzero": 1} if net.opset >= 14 else {}
        if not a:
            target = list(shape)
    net.node("Reshape", [net.give(d.array(shape, d.pick(ANY)), False), net.ints(target)], **a)
    return net


def factors(n):
    return [2, n // 2] if n in (4, 6) else [n]


@op("Flatten")
def flatten(d):
    net = Net(d, d.opset(9, 24))
    shape = d.shape(1 if net.opset < 11 else 0, 4)
    rank = len(shape)
    net.node(
        "Flatten",
        [net.give(d.array(shape, d.pick(ANY)), False)],
        axis=None if d.chance(0.2) and rank else d.int(-rank if net.opset >= 11 else 0, rank),
    )
    return net


@op("Squeeze", "Unsqueeze")
def squeeze(d, name):
    net = Net(d, d.opset(7, 24))
    shape = d.shape(1 if name == "Squeeze" else 0, 4)
    x = d.array(shape, d.pick(ANY))
    signed = net.opset >= 11
    if name == "Squeeze":
        for k in d.some(list(range(len(shape)))):
            shape[k] = 1
        x = d.array(shape, d.pick(ANY))
        ones = [k for k, n in enumerate(shape) if n == 1]
        axes = d.some(ones) if ones else []
        if not axes:
            axes = None
        rank = len(shape)
    else:
        more = d.int(1, 3)
        rank = len(shape) + more
        axes = d.some(list(range(rank)), more)[:more]
    if axes and signed:
        axes = [k - rank if d.chance(0.3) else k for k in axes]
    x = net.give(x, False)
    if net.opset >= 13:
        net.node(name, [x, net.ints(axes) if axes is not None else ""])
    else:
        net.node(name, [x], axes=axes)
    return net


@op("Transpose")
def transpose(d):
    net = Net(d, d.opset(7, 24))
    shape = d.shape(0, 5)
    net.node(
        "Transpose",
        [net.give(d.array(shape, d.pick(ANY + ["str"])), False)],
        perm=d.rng.permutation(len(shape)).tolist() if shape and d.chance(0.8) else None,
    )
    return net


@op("Expand")
def expand(d):
    net = Net(d, d.opset(8, 24))
    shape = d.shape(0, 4)
    x = d.broadcast(shape)
    target = d.broadcast(shape) if d.chance(0.3) else shape
    net.node("Expand", [net.give(d.array(x, d.pick(ANY)), False), net.ints(target)])
    return net


@op("Tile")
def tile(d):
    net = Net(d, d.opset(7, 24))
    shape = d.shape(1, 4)
    net.node("Tile", [net.give(d.array(shape, d.pick(ANY)), False), net.ints([d.int(0 if d.chance(0.1) else 1, 3) for _ in shape])])
    return net


@op("Where")
def where(d):
    net = Net(d, d.opset(9, 24))
    shape, dtype = d.shape(0, 4), d.pick(ANY + ["str"])
    net.node(
        "Where",
        [
            net.give(d.array(d.broadcast(shape), "b1")),
            net.give(d.array(d.broadcast(shape), dtype)),
            net.give(d.array(d.broadcast(shape), dtype)),
        ],
    )
    return net


@op("Trilu")
def trilu(d):
    net = Net(d, d.opset(14, 24))
    shape = d.shape(2, 4)
    net.node(
        "Trilu",
        [net.give(d.array(shape, d.pick(["f4", "f8", "i8", "b1"])), False), net.maybe(np.array(d.int(-7, 7), "i8"), 0.7)],
        upper=d.pick([None, 0, 1]),
    )
    return net


@op("Compress")
def compress(d):
    net = Net(d, d.opset(9, 24))
    shape = d.shape(1, 4)
    axis = d.axis(len(shape)) if d.chance(0.7) else None
    if axis is not None and net.opset < 11:
        axis %= len(shape)
    n = int(np.prod(shape)) if axis is None else shape[axis]
    net.node("Compress", [net.give(d.array(shape, d.pick(ANY))), net.give(d.array([d.int(0, n) if d.chance(0.3) else n], "b1"))], axis=axis)
    return net


@op("ReverseSequence")
def reverse_sequence(d):
    net = Net(d, d.opset(10, 24))
    shape = d.shape(2, 4, zero=0)
    t = d.int(0, 1)
    net.node(
        "ReverseSequence",
        [net.give(d.array(shape, d.pick(ANY)), False), net.give(d.rng.integers(0 if d.chance(0.1) else 1, shape[t] + 1, shape[1 - t]))],
        time_axis=t,
        batch_axis=1 - t,
    )
    return net


@op("CenterCropPad")
def center_crop_pad(d):
    net = Net(d, 18)
    shape = d.shape(1, 4, zero=0)
    axes = d.axes(len(shape), 1) if d.chance(0.6) else None
    net.node(
        "CenterCropPad",
        [net.give(d.array(shape, d.pick(["f4", "i8"])), False), net.ints([d.int(1, 8) for _ in (axes or shape)])],
        axes=axes,
    )
    return net


@op("Shape", "Size")
def shape_of(d, name):
    net = Net(d, d.opset(7, 24))
    shape = d.shape(0, 5)
    a = {}
    if name == "Shape" and net.opset >= 15:
        a = {k: d.int(-7, 7) for k in ("start", "end") if d.chance()}
    net.node(name, [net.give(d.array(shape, d.pick(FLOATS + INTS)), False)], **a)
    return net


@op("OneHot")
def one_hot(d):
    net = Net(d, d.opset(9, 24))
    shape, depth = d.shape(0, 3), d.int(1, 6)
    indices = d.array(shape, d.pick(["i8", "i4", "f4"]), -depth - 2, depth + 2)
    indices = np.round(indices).astype(indices.dtype)
    dtype = d.pick(["f4", "i8", "i4"])
    depths = np.array(depth, d.pick(["i8", "i4", "f4"]))
    axis = d.int(-len(shape) - 1, len(shape)) if d.chance(0.7) else None
    net.node("OneHot", [net.give(indices), net.give(depths if d.chance() else depths[None]), net.give(d.array([2], dtype))], axis=axis)
    return net


@op("EyeLike")
def eye_like(d):
    net = Net(d, d.pick([9, 22]))
    from net import ONNX_TYPE

    net.node(
        "EyeLike",
        [net.give(d.array(d.shape(2, 2), d.pick(["f4", "i8", "f8"])), False)],
        k=d.pick([None, d.int(-4, 4)]),
        dtype=ONNX_TYPE[d.pick(["f4", "i8", "i4", "f8"])] if d.chance() else None,
    )
    return net


@op("Scatter")
def scatter(d):
    net = Net(d, d.int(9, 10))
    shape = d.shape(1, 3, 5, 0)
    axis = d.int(0, len(shape) - 1)
    inner = [d.int(1, n) for n in shape]
    indices = np.argsort(d.rng.random([*inner[:axis], shape[axis], *inner[axis + 1 :]]), axis=axis).take(range(inner[axis]), axis=axis)
    net.node(
        "Scatter",
        [net.give(d.array(shape)), net.give(indices), net.give(d.array(indices.shape))],
        axis=axis if axis or d.chance() else None,
    )
    return net


@op("TensorScatter")
def tensor_scatter(d):
    net = Net(d, 24)
    b, heads, most, size = d.size(3), d.size(3), d.int(2, 6), d.size(4)
    flat = d.chance(0.4)
    mode = d.pick([None, "linear", "circular"])
    new = d.int(1, most)
    start = d.rng.integers(0, most - new + 1 if mode != "circular" else most, b)
    shape = (lambda n: [b, n, size]) if flat else (lambda n: [b, heads, n, size])
    net.node(
        "TensorScatter",
        [net.give(d.array(shape(most)), False), net.give(d.array(shape(new)), False), net.maybe(start, 0.8)],
        mode=mode,
        axis=d.pick([None, -2]),
    )
    return net
