"""Convolutions, pools, and images that change their size."""

import numpy as np

from net import Net, op

AUTO = ["SAME_UPPER", "SAME_LOWER", "VALID"]


def spatial(d, rank, kernel_most=3):
    """Kernel, strides, dilations and paddings, and sizes in which they fit."""
    kernel = [d.int(1, kernel_most) for _ in range(rank)]
    strides = [d.int(1, 3) for _ in range(rank)]
    dilations = [d.int(1, 2) if d.chance(0.4) else 1 for _ in range(rank)]
    extent = [(k - 1) * q + 1 for k, q in zip(kernel, dilations)]
    pads = [d.int(0, max(k - 1, 0)) if d.chance() else 0 for k in extent + extent]
    sizes = [max(1, e - pads[i] - pads[i + rank]) + d.int(0, 6) for i, e in enumerate(extent)]
    return kernel, strides, dilations, pads, sizes


def window_attributes(d, kernel, strides, dilations, pads, given_kernel=True):
    a = {}
    if given_kernel:
        a["kernel_shape"] = kernel
    if d.chance(0.7) or any(s != 1 for s in strides):
        a["strides"] = strides
    if any(q != 1 for q in dilations) or d.chance(0.3):
        a["dilations"] = dilations
    # Where windows lie apart, what SAME adds would be negative, and nobody agrees with anybody.
    apart = any((k - 1) * q + 1 < s for k, q, s in zip(kernel, dilations, strides))
    if not apart and d.chance(0.3):
        a["auto_pad"] = d.pick(AUTO[:2])
    elif any(pads) or d.chance(0.3):
        a["pads"] = pads
    return a


@op("Conv", "FusedConv")
def conv(d, name):
    rank = d.pick([1, 2, 2, 2, 3]) if name == "Conv" else 2
    kernel, strides, dilations, pads, sizes = spatial(d, rank)
    group = d.pick([1, 1, 2, 3])
    cin, cout = group * d.int(1, 3), group * d.int(1, 3)
    if d.chance(0.2):
        group = cin
        cout = cin * d.int(1, 2)
    net = Net(d, d.opset(1 if d.chance(0.1) else 7, 24), com_microsoft=1)
    dtype = d.pick(["f4", "f4", "f4", "f8", "f2"]) if name == "Conv" else "f4"
    n = d.size(3, 0.03)
    x, w, b = d.array([n, cin, *sizes], dtype), d.array([cout, cin // group, *kernel], dtype), d.array([cout], dtype)
    a = window_attributes(d, kernel, strides, dilations, pads, d.chance(0.7))
    if group != 1 or d.chance(0.2):
        a["group"] = group
    domain = ""
    if name != "Conv":
        domain = "com.microsoft"
        if "Fused" in name:
            act = d.pick(["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid", None])
            if act:
                a["activation"] = act
                a["activation_params"] = {"LeakyRelu": [0.1], "Clip": [-1.0, 1.5], "HardSigmoid": [0.25, 0.4]}.get(act)
    bias = net.maybe(b)
    net.node(name, [net.give(x, False), net.give(w), bias], domain=domain, **a)
    return net


@op("ConvTranspose")
def conv_transpose(d):
    rank = d.pick([1, 2, 2, 3])
    kernel, strides, dilations, pads, _ = spatial(d, rank)
    group = d.pick([1, 1, 2, 3])
    cin, cout = group * d.int(1, 3), d.int(1, 3)
    sizes = [d.size(4) for _ in range(rank)]
    net = Net(d, d.opset(7, 24))
    dtype = d.pick(["f4", "f4", "f8"])
    a = {"strides": strides, "dilations": dilations, "group": group}
    if d.chance(0.6):
        a["kernel_shape"] = kernel
    extra = [d.int(0, max(s, q) - 1) for s, q in zip(strides, dilations)] if d.chance(0.4) else [0] * rank
    if any(extra):
        a["output_padding"] = extra
    full = [s * (n - 1) + o + (k - 1) * q + 1 for s, n, o, k, q in zip(strides, sizes, extra, kernel, dilations)]
    way = d.pick(["pads", "auto", "shape", "none"])
    apart = any(f < s * n for f, s, n in zip(full, strides, sizes))
    if way == "auto":
        a["auto_pad"] = "VALID" if apart else d.pick(AUTO)
    elif way == "shape":
        a["output_shape"] = [max(1, f - d.int(0, 2)) for f in full]
        if d.chance(0.4):
            a["auto_pad"] = d.pick(AUTO[:2])
    elif way == "pads":
        a["pads"] = [min(p, (f - 1) // 2) for p, f in zip(pads, full + full)]
    net.node(
        "ConvTranspose",
        [
            net.give(d.array([d.size(2), cin, *sizes], dtype), False),
            net.give(d.array([cin, cout, *kernel], dtype)),
            net.maybe(d.array([cout * group], dtype)),
        ],
        **a,
    )
    return net


@op("MaxPool", "AveragePool", "LpPool")
def pool(d, name):
    rank = d.pick([1, 2, 2, 3])
    kernel, strides, dilations, pads, sizes = spatial(d, rank)
    low = {"MaxPool": 8, "AveragePool": 7, "LpPool": 2}[name]
    net = Net(d, d.opset(low, 24))
    v = net.opset
    if (name == "MaxPool" and v < 10) or (name == "AveragePool" and v < 19) or (name == "LpPool" and v < 18):
        dilations = [1] * rank
    pads = [min(p, (k - 1)) for p, k in zip(pads, kernel + kernel)]
    sizes = [n + (k - 1) * (q - 1) for n, k, q in zip(sizes, kernel, dilations)]
    a = window_attributes(d, kernel, strides, dilations, pads)
    if all(q == 1 for q in dilations):
        a.pop("dilations", None)
    if v >= {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[name] and d.chance():
        a["ceil_mode"] = d.int(0, 1)
    if name == "AveragePool" and d.chance():
        a["count_include_pad"] = d.int(0, 1)
    if name == "LpPool" and d.chance(0.7):
        a["p"] = d.int(1, 3)
    outputs = 1
    dtype = d.pick(["f4", "f4", "f8", "f2"])
    if name == "MaxPool":
        if d.chance(0.4):
            outputs = 2
            if d.chance():
                a["storage_order"] = d.int(0, 1)
        if v >= 12 and d.chance(0.3):
            dtype = d.pick(["i1", "u1"])
    net.node(name, [net.give(d.array([d.size(2), d.size(3), *sizes], dtype), False)], outputs, **a)
    return net


@op("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def global_pool(d, name):
    net = Net(d, d.opset(7, 24))
    a = {"p": d.int(1, 3)} if name == "GlobalLpPool" and d.chance(0.7) else {}
    net.node(name, [net.give(d.array([d.size(3, 0.05), d.size(3), *d.shape(1, 3, zero=0)]), False)], **a)
    return net


@op("MaxUnpool")
def max_unpool(d):
    rank = d.pick([1, 2, 3])
    kernel = [d.int(1, 3) for _ in range(rank)]
    net = Net(d, d.opset(11, 22))
    exact = d.chance()
    shape = [d.size(2), d.size(3), *[k * d.int(1, 4) + (0 if exact else d.int(0, k - 1)) for k in kernel]]
    a = {"kernel_shape": kernel, "strides": kernel}
    y, i = net.node("MaxPool", [net.give(d.array(shape), False)], 2, keep=False, **a)
    net.node("MaxUnpool", [y, i, "" if exact and d.chance() else net.ints(shape)], **a)
    return net


@op("MaxRoiPool", "RoiAlign")
def roi(d, name):
    net = Net(d, d.opset(10 if name == "RoiAlign" else 7, 22))
    n, h, w = d.size(3), d.int(2, 8), d.int(2, 8)
    x, count = d.array([n, d.size(3), h, w]), d.size(4, 0.1)
    low = d.rng.uniform(-1, 5, (count, 2))
    boxes = np.concatenate([low, low + d.rng.uniform(0, 6, (count, 2))], 1).astype("f4")
    batch = d.rng.integers(0, n, count)
    if name == "MaxRoiPool":
        rois = np.concatenate([batch[:, None].astype("f4"), np.round(np.abs(boxes))], 1)
        net.node(name, [net.give(x, False), net.give(rois)], pooled_shape=[d.int(1, 3), d.int(1, 3)], spatial_scale=d.pick([1.0, 0.5, 0.8]))
        return net
    a = {"mode": d.pick(["avg", "max"])} if d.chance(0.7) else {}
    if d.chance(0.8):
        a |= dict(output_height=d.int(1, 4), output_width=d.int(1, 4), spatial_scale=d.pick([1.0, 0.5, 0.25]), sampling_ratio=d.int(0, 3))
    if net.opset >= 16 and d.chance():
        a["coordinate_transformation_mode"] = d.pick(["half_pixel", "output_half_pixel"])
    net.node(name, [net.give(x, False), net.give(boxes), net.give(batch)], **a)
    return net


@op("Resize")
def resize(d):
    net = Net(d, d.pick([10, 11, 13, 18, 19, 22, 23]))
    v = net.opset
    rank = d.int(1, 5)
    mode = d.pick(["nearest", "linear", "cubic"] if v >= 11 else ["nearest", "linear"])
    axes = list(range(rank))
    if mode != "nearest":
        axes = sorted(d.some(axes, 1)[: d.pick([1, 2, 2, 3] if mode == "linear" else [2])])
        if d.chance(0.6) and rank >= 3:
            axes = [rank - 2, rank - 1]
    elif d.chance():
        axes = sorted(d.some(axes, 1))
    dtype = d.pick(["f4", "f4", "f4", "u1", "i1", "i4", "f8"]) if mode == "nearest" else d.pick(["f4", "f4", "f4", "f8", "f2"])
    x = d.array([d.size(6) if k in axes else d.size(3) for k in range(rank)], dtype)
    scales = [
        d.pick([0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 2.5, 3.0, float(np.round(d.rng.uniform(0.4, 3), 3))]) if k in axes else 1.0
        for k in range(rank)
    ]
    scales = [s if int(s * n) >= 1 else 1.0 for s, n in zip(scales, x.shape)]
    a = {} if mode == "nearest" and d.chance() else {"mode": mode}
    if v == 10:
        net.node("Resize", [net.give(x, False), net.give(np.array(scales, "f4"))], **a)
        return net
    coordinates = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"] + (
        ["half_pixel_symmetric"] if v >= 19 else []
    )
    transform = d.pick(coordinates)
    if d.chance(0.8):
        a["coordinate_transformation_mode"] = transform
    else:
        transform = "half_pixel"
    if mode == "nearest" and d.chance(0.7):
        a["nearest_mode"] = d.pick(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if mode == "cubic":
        if d.chance(0.4):
            a["cubic_coeff_a"] = d.pick([-0.5, -0.75, -0.3])
        if d.chance(0.3):
            a["exclude_outside"] = 1
    if transform == "tf_crop_and_resize" and d.chance():
        a["extrapolation_value"] = 7.5
    given = list(range(rank))
    if v >= 18:
        if d.chance(0.4):
            given = axes if d.chance() else d.rng.permutation(axes).tolist()
            a["axes"] = [k - rank if d.chance(0.3) else k for k in given]
        if mode != "nearest" and d.chance(0.3):
            a["antialias"] = 1
    roi = ""
    if transform == "tf_crop_and_resize":
        low = d.rng.uniform(0, 0.4, rank)
        high = d.rng.uniform(0.6, 1.2, rank)
        roi = net.give(np.array([low[k] if k in axes else 0 for k in given] + [high[k] if k in axes else 1 for k in given], "f4"))
    elif v < 13 or d.chance(0.1):
        roi = net.give(np.zeros(0, "f4"), True)
    by_sizes = d.chance(0.4)
    if by_sizes:
        sizes = [max(1, int(x.shape[k] * scales[k])) for k in given]
        if v >= 18 and d.chance(0.5):
            a["keep_aspect_ratio_policy"] = d.pick(["stretch", "not_larger", "not_smaller"])
        empty = net.give(np.zeros(0, "f4"), True) if v < 13 else ""
        inputs = [net.give(x, False), roi, empty, net.give(np.array(sizes, "i8"))]
    else:
        inputs = [net.give(x, False), roi, net.give(np.array([scales[k] for k in given], "f4"))]
    net.node("Resize", inputs, **a)
    return net


@op("Upsample")
def upsample(d):
    net = Net(d, d.int(7, 9))
    mode, rank = d.pick(["nearest", "linear"]), 4
    if mode == "nearest":
        rank = d.int(1, 5)
    x = d.array(d.shape(rank, rank, 5, 0))
    scales = [d.pick([1.0, 1.5, 2.0, 2.7, 3.0]) for _ in range(rank)]
    if mode == "linear":
        scales[:2] = [1.0, 1.0]
    if net.opset < 9:
        net.node("Upsample", [net.give(x, False)], mode=mode, scales=scales)
    else:
        net.node("Upsample", [net.give(x, False), net.give(np.array(scales, "f4"))], mode=mode)
    return net


@op("GridSample")
def grid_sample(d):
    net = Net(d, d.pick([16, 20, 22]))
    rank = 2 if net.opset < 20 else d.pick([2, 3])
    n = d.size(2)
    modes = ["bilinear", "nearest", "bicubic"] if net.opset < 20 else ["linear", "nearest"] + (["cubic"] if rank == 2 else [])
    a = {}
    if d.chance(0.8):
        a["mode"] = d.pick(modes)
    if d.chance(0.8):
        a["padding_mode"] = d.pick(["zeros", "border", "reflection"])
    if d.chance(0.7):
        a["align_corners"] = d.int(0, 1)
    dtype = d.pick(["f4", "f4", "f8"])
    grid = d.rng.uniform(-1.6, 1.6, [n, *[d.size(4) for _ in range(rank)], rank]).astype("f4")
    net.node("GridSample", [net.give(d.array([n, d.size(3), *[d.int(1, 5) for _ in range(rank)]], dtype), False), net.give(grid)], **a)
    return net


@op("AffineGrid")
def affine_grid(d):
    net = Net(d, 20)
    rank, n = d.pick([2, 3]), d.size(3)
    size = [n, d.size(3), *[d.int(1, 4) for _ in range(rank)]]
    a = {"align_corners": d.int(0, 1)} if d.chance(0.7) else {}
    net.node("AffineGrid", [net.give(d.array([n, rank, rank + 1]), False), net.ints(size)], **a)
    return net


@op("DeformConv")
def deform_conv(d):
    net = Net(d, d.pick([19, 22]))
    kernel, strides, dilations, pads, sizes = spatial(d, 2)
    group, og = d.pick([1, 2]), d.pick([1, 2])
    cin, cout, n = 2 * d.int(1, 2), group * d.int(1, 2), d.size(2)
    out = [
        (s + pads[i] + pads[i + 2] - ((k - 1) * q + 1)) // t + 1 for i, (s, k, q, t) in enumerate(zip(sizes, kernel, dilations, strides))
    ]
    k = kernel[0] * kernel[1]
    net.node(
        "DeformConv",
        [
            net.give(d.array([n, cin, *sizes]), False),
            net.give(d.array([cout, cin // group, *kernel])),
            net.give(d.array([n, og * k * 2, *out])),
            net.maybe(d.array([cout])),
            net.maybe(d.array([n, og * k, *out])),
        ],
        kernel_shape=kernel if d.chance() else None,
        strides=strides,
        dilations=dilations,
        pads=pads,
        group=group,
        offset_group=og,
    )
    return net


@op("Col2Im")
def col2im(d):
    net = Net(d, 18)
    rank = d.pick([1, 2, 2, 3])
    kernel, strides, dilations, pads, sizes = spatial(d, rank)
    out = [
        (s + pads[i] + pads[i + rank] - ((k - 1) * q + 1)) // t + 1 for i, (s, k, q, t) in enumerate(zip(sizes, kernel, dilations, strides))
    ]
    net.node(
        "Col2Im",
        [net.give(d.array([d.size(2), d.size(2) * int(np.prod(kernel)), int(np.prod(out))]), False), net.ints(sizes), net.ints(kernel)],
        strides=strides,
        dilations=dilations,
        pads=pads,
    )
    return net


@op("DepthToSpace", "SpaceToDepth")
def blocks(d, name):
    net = Net(d, d.opset(11 if name == "DepthToSpace" else 7, 24))
    b, n, c, h, w = d.int(1, 3), d.size(2, 0.05), d.size(3), d.size(4), d.size(4)
    if name == "DepthToSpace":
        shape, a = [n, c * b * b, h, w], {"mode": d.pick(["DCR", "CRD"])} if d.chance(0.8) else {}
    else:
        shape, a = [n, c, h * b, w * b], {}
    net.node(name, [net.give(d.array(shape, d.pick(["f4", "f8"])), False)], blocksize=b, **a)
    return net


@op("LRN")
def lrn(d):
    net = Net(d, d.opset(7, 24))
    a = {k: v for k, v in dict(alpha=0.3, beta=0.6, bias=1.5).items() if d.chance(0.7)}
    net.node("LRN", [net.give(d.array([d.size(2), d.size(6), *d.shape(1, 2, zero=0)]), False)], size=d.int(1, 6), **a)
    return net
