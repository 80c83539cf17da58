"""Signals, boxes, sets, texts, and the operators of ai.onnx.ml."""

import numpy as np
from onnx import TensorProto

from net import ONNX_TYPE, Net, op

ML = "ai.onnx.ml"


@op("NonMaxSuppression")
def nms(d):
    net = Net(d, d.pick([10, 11]))
    b, n, c = d.size(2), d.size(6, 0.03), d.size(3)
    centre = d.chance(0.4)
    low, size = d.rng.uniform(0, 3, (b, n, 2)), d.rng.uniform(0.5, 2, (b, n, 2))
    boxes = np.concatenate([low + size / 2, size] if centre else [low, low + size], -1).astype("f4")
    if not centre and d.chance(0.3):
        boxes = boxes[..., [2, 3, 0, 1]]
    scores = d.rng.random((b, c, n)).astype("f4")
    net.node(
        "NonMaxSuppression",
        [
            net.give(boxes),
            net.give(scores),
            net.maybe(np.array([d.int(0, 4)], "i8"), 0.85),
            net.maybe(np.array([d.pick([0.0, 0.3, 0.5, 0.7])], "f4"), 0.8),
            net.maybe(np.array([d.pick([0.0, 0.4])], "f4")),
        ],
        center_point_box=1 if centre else None,
    )
    return net


@op("NonZero")
def non_zero(d):
    net = Net(d, d.opset(9, 23))
    net.node(
        "NonZero",
        [
            net.give(
                np.round(d.array(d.shape(0, 4), d.pick(["f4", "i8", "i4", "u1"]), -1, 1)) if d.chance(0.8) else d.array(d.shape(0, 3), "b1")
            )
        ],
    )
    return net


@op("Unique")
def unique(d):
    net = Net(d, 11)
    shape = d.shape(1, 3, 5, 0.02)
    x = d.array(shape, d.pick(["f4", "i8", "f8", "i1", "str"]), -1, 1)
    if x.dtype.kind == "f":
        x = np.round(x)
    net.node("Unique", [net.give(x)], 4, axis=d.axis(len(shape)) if d.chance() else None, sorted=d.pick([None, 0, 1]))
    return net


@op("Range")
def range_(d):
    net = Net(d, d.opset(11, 23))
    t = d.pick(["f4", "f8", "i4", "i8", "i2"])
    start, step = d.array([], t, -5, 5), d.array([], t, 1, 3) * (1 if d.chance() else -1)
    step = np.asarray(step).astype(t)
    stop = np.asarray(start + step * d.int(-2, 6) + (0.4 if t[0] == "f" else 0)).astype(t)
    net.node("Range", [net.give(v) for v in (start, stop, step)])
    return net


@op("ConstantOfShape")
def constant_of_shape(d):
    net = Net(d, d.opset(9, 23))
    from onnx import helper

    t = d.pick(["f4", "i8", "b1", "u1", "f8", "i4"])
    value = helper.make_tensor("v", ONNX_TYPE[t], [1], [d.int(0, 1)]) if d.chance(0.7) else None
    net.node("ConstantOfShape", [net.ints(np.array(d.shape(0, 4), "i8"))], value=value)
    return net


@op("DFT")
def dft(d):
    net = Net(d, d.pick([17, 20]))
    shape = d.shape(1, 3, 6, 0)
    rank = len(shape) + 1
    x = d.array([*shape, d.pick([1, 2])])
    axis = d.int(0, rank - 2)
    if d.chance(0.3):
        axis -= rank
    a = {}
    length = net.maybe(np.array(d.int(1, 8), "i8"), 0.4)
    onesided = d.chance(0.3) and x.shape[-1] == 1
    if onesided:
        a["onesided"] = 1
    elif d.chance(0.4):
        a["inverse"] = 1
    if net.opset < 20:
        if axis != 1 or d.chance():
            a["axis"] = axis
        net.node("DFT", [net.give(x, False), length], **a)
    else:
        net.node("DFT", [net.give(x, False), length, net.give(np.array(axis, "i8"), True) if axis != -2 or d.chance() else ""], **a)
    return net


@op("STFT")
def stft(d):
    net = Net(d, 17)
    b, frame = d.size(2), d.int(2, 8)
    n, hop = frame + d.int(0, 10), d.int(1, 4)
    complex_ = d.chance(0.3)
    x = d.array([b, n, 2 if complex_ else 1])
    a = {"onesided": d.int(0, 1)} if not complex_ and d.chance(0.7) else {"onesided": 0} if complex_ else {}
    window = d.chance()
    inputs = [
        net.give(x, False),
        net.give(np.array(hop, "i8"), True),
        net.give(d.array([frame]), True) if window else "",
        net.give(np.array(frame, "i8"), True) if not window or d.chance() else "",
    ]
    net.node("STFT", inputs, **a)
    return net


@op("HannWindow", "HammingWindow", "BlackmanWindow")
def window(d, name):
    net = Net(d, 17)
    net.node(
        name,
        [net.give(np.array(d.int(1, 12), d.pick(["i8", "i4"])))],
        periodic=d.pick([None, 0, 1]),
        output_datatype=d.pick([None, TensorProto.FLOAT, TensorProto.DOUBLE]),
    )
    return net


@op("MelWeightMatrix")
def mel(d):
    net = Net(d, 17)
    rate = d.pick([8000, 16000])
    net.node(
        "MelWeightMatrix",
        [
            net.ints(d.int(2, 10)),
            net.ints(d.pick([16, 32, 64])),
            net.ints(rate),
            net.give(np.float32(d.pick([0, 20, 125]))),
            net.give(np.float32(rate / 2 - d.pick([0, 100]))),
        ],
    )
    return net


@op("Texts")
def texts(d):
    net = Net(d, 20, ai_onnx_ml=3)
    shape = d.shape(1, 2, 4, 0.03)
    x = d.array(shape, "str")
    way = d.pick(["concat", "split", "regex", "normalize", "equal", "gather", "unique", "label", "where", "reshape"])
    if way == "concat":
        net.node("StringConcat", [net.give(x, False), net.give(d.array(d.broadcast(shape), "str"), False)])
    elif way == "split":
        net.node("StringSplit", [net.give(x, False)], 2, delimiter=d.pick([None, " ", "b", ""]), maxsplit=d.pick([None, 1, 2]))
    elif way == "regex":
        net.node("RegexFullMatch", [net.give(x, False)], pattern=d.pick(["a.*", "[a-z]+", "", r"\w+ ?", ".*"]))
    elif way == "normalize":
        n = d.int(0, 5)
        x = d.array([n] if d.chance() else [1, n], "str")
        stop = d.some(["a", "ab", "Abc", "b"])
        net.node(
            "StringNormalizer",
            [net.give(x, False)],
            case_change_action=d.pick([None, "LOWER", "UPPER", "NONE"]),
            is_case_sensitive=d.pick([None, 0, 1]),
            stopwords=stop or None,
            locale="C",
        )
    elif way == "equal":
        net.node("Equal", [net.give(x, False), net.give(d.array(d.broadcast(shape), "str"), False)])
    elif way == "gather":
        net.node("Gather", [net.give(d.array([4], "str"), False), net.give(d.array(shape, "i8", 0, 3))])
    elif way == "unique":
        net.node("Unique", [net.give(d.array([d.int(1, 6)], "str"), False)], 4, sorted=d.int(0, 1))
    elif way == "label":
        keys = ["a", "b", "日本"]
        net.node("LabelEncoder", [net.give(x, False)], domain=ML, keys_strings=keys, values_int64s=[3, 4, 5], default_int64=7)
    elif way == "where":
        net.node("Where", [net.give(d.array(shape, "b1")), net.give(x, False), net.give(d.array(d.broadcast(shape), "str"))])
    else:
        net.node("Reshape", [net.give(x, False), net.ints([-1])]) if 0 not in shape else net.node("Identity", [net.give(x, False)])
    return net


@op("TfIdfVectorizer")
def tfidf(d):
    net = Net(d, 9)
    n = d.int(1, 8)
    x = d.array([n] if d.chance() else [d.size(3), n], d.pick(["i8", "i4"]), 0, 5)
    grams = [[0, 1, 2, 3], [1, 2, 0, 3, 3, 3], [0, 1, 2]]
    longest = d.int(1, 3)
    pool, counts = [], []
    for g in grams[:longest]:
        counts.append(len(pool))
        pool += g
    total = sum(len(g) // (k + 1) for k, g in enumerate(grams[:longest]))
    net.node(
        "TfIdfVectorizer",
        [net.give(x, False)],
        mode=d.pick(["TF", "IDF", "TFIDF"]),
        min_gram_length=d.int(1, longest),
        max_gram_length=longest,
        max_skip_count=d.int(0, 3),
        ngram_counts=counts,
        ngram_indexes=d.rng.permutation(total).tolist(),
        pool_int64s=pool,
        weights=d.rng.uniform(0.5, 2, total).tolist() if d.chance() else None,
    )
    return net


@op("MlFeatures")
def ml_features(d):
    net = Net(d, 15, ai_onnx_ml=d.pick([1, 2, 3]))
    way = d.pick(
        [
            "Binarizer",
            "Scaler",
            "Normalizer",
            "Imputer",
            "OneHotEncoder",
            "ArrayFeatureExtractor",
            "FeatureVectorizer",
            "LabelEncoder",
            "LinearRegressor",
            "LinearClassifier",
        ]
    )
    n, c = d.size(4), d.int(1, 5)
    x = d.array([n, c], "f4")
    if way == "Binarizer":
        net.node(way, [net.give(x, False)], domain=ML, threshold=d.pick([None, 0.5]))
    elif way == "Scaler":
        size = d.pick([1, c])
        net.node(
            way,
            [net.give(d.array([n, c], d.pick(["f4", "i8", "f8", "i4"])), False)],
            domain=ML,
            offset=d.rng.random(size).tolist(),
            scale=d.rng.random(size).tolist(),
        )
    elif way == "Normalizer":
        net.node(
            way,
            [net.give(d.array([n, c] if d.chance(0.7) else [c], d.pick(["f4", "i8", "f8", "i4"])), False)],
            domain=ML,
            norm=d.pick([None, "MAX", "L1", "L2"]),
        )
    elif way == "Imputer":
        if d.chance():
            x = np.where(d.rng.random(x.shape) < 0.3, np.nan, x).astype("f4")
            net.node(
                way,
                [net.give(x, False)],
                domain=ML,
                imputed_value_floats=d.rng.random(d.pick([1, c])).tolist(),
                replaced_value_float=float("nan"),
            )
        else:
            net.node(
                way,
                [net.give(d.array([n, c], "i8"), False)],
                domain=ML,
                imputed_value_int64s=d.rng.integers(0, 9, d.pick([1, c])).tolist(),
                replaced_value_int64=1,
            )
    elif way == "OneHotEncoder":
        net.node(
            way,
            [net.give(d.array([n, c] if d.chance() else [n], d.pick(["i8", "f4"]), 0, 4).round(), False)],
            domain=ML,
            cats_int64s=[0, 2, 3, 1],
            zeros=1,
        )
    elif way == "ArrayFeatureExtractor":
        net.node(
            way,
            [
                net.give(d.array(d.pick([[n, c], [c], [2, n, c]]), d.pick(["f4", "i8", "f8"])), False),
                net.give(d.rng.integers(0, c, [d.int(1, 4)])),
            ],
            domain=ML,
        )
    elif way == "FeatureVectorizer":
        sizes = [d.int(1, 3) for _ in range(d.int(1, 3))]
        net.node(way, [net.give(d.array([n, s], "f4"), False) for s in sizes], domain=ML, inputdimensions=sizes)
    elif way == "LabelEncoder":
        net.domains[ML] = 2
        net.node(
            way,
            [net.give(d.array(d.shape(0, 3), "i8"), False)],
            domain=ML,
            keys_int64s=[-1, 0, 2],
            values_floats=[0.5, 1.5, 2.5],
            default_float=d.pick([None, -7.0]),
        )
    elif way == "LinearRegressor":
        targets = d.int(2, 3)
        net.node(
            way,
            [net.give(x, False)],
            domain=ML,
            coefficients=d.rng.normal(size=targets * c).tolist(),
            intercepts=d.rng.normal(size=targets).tolist() if d.chance(0.7) else None,
            targets=targets,
            post_transform=d.pick([None, "NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]),
        )
    else:
        classes = d.int(2, 4)
        net.node(
            way,
            [net.give(x, False)],
            2,
            domain=ML,
            coefficients=d.rng.normal(size=classes * c).tolist(),
            intercepts=d.rng.normal(size=classes).tolist(),
            classlabels_ints=list(range(10, 10 + classes)),
            multi_class=d.pick([None, 0, 1]),
            post_transform=d.pick([None, "NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]),
        )
    return net


@op("TreeEnsemble")
def trees(d):
    """A forest, as regressor or classifier."""
    net = Net(d, 15, ai_onnx_ml=3)
    c, count = d.int(1, 4), d.int(1, 3)
    outs = d.int(2, 3)  # of one, ONNX Runtime takes no softmax, and makes two classes
    columns = {
        k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    }
    leaves = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree, at, depth):
        leaf = depth == 0 or d.chance(0.25)
        row = len(columns["treeids"])
        mode = (
            "LEAF"
            if leaf
            else d.pick(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", "BRANCH_EQ", "BRANCH_NEQ"] if mixed else ["BRANCH_LEQ"])
        )
        for k, v in zip(columns, (tree, at[0], d.int(0, c - 1), mode, float(d.int(-3, 3)), 0, 0, d.int(0, 1))):
            columns[k].append(v)
        own = at[0]
        at[0] += 1
        if leaf:
            for o in range(outs):  # ONNX Runtime leaves what no leaf speaks of out of account
                for k, v in zip(leaves, (tree, own, o, float(d.rng.normal()))):
                    leaves[k].append(v)
            return
        columns["truenodeids"][row] = at[0]
        grow(tree, at, depth - 1)
        columns["falsenodeids"][row] = at[0]
        grow(tree, at, depth - 1)

    mixed = d.chance(0.3)
    for tree in range(count):
        grow(tree, [0], d.int(0, 3))
    x = d.array([d.size(5), c], d.pick(["f4", "f4", "f8", "i8", "i4"]))
    x = np.round(x).astype(x.dtype)
    if x.dtype.kind == "f" and d.chance(0.3):
        x = np.where(d.rng.random(x.shape) < 0.2, np.nan, x).astype(x.dtype)
    a = {f"nodes_{k}": v for k, v in columns.items()}
    transform = d.pick([None, "NONE", "LOGISTIC", "SOFTMAX"])
    if d.chance():
        a |= {f"target_{k}": v for k, v in leaves.items()}
        net.node(
            "TreeEnsembleRegressor",
            [net.give(x, False)],
            domain=ML,
            n_targets=outs,
            aggregate_function=d.pick([None, "SUM", "AVERAGE", "MIN", "MAX"]),
            post_transform=transform,
            base_values=d.rng.normal(size=outs).tolist() if d.chance(0.3) else None,
            **a,
        )
    else:
        a |= {f"class_{k}": v for k, v in leaves.items()}
        net.node(
            "TreeEnsembleClassifier",
            [net.give(x, False)],
            2,
            domain=ML,
            classlabels_int64s=list(range(outs)),
            post_transform=transform,
            **a,
        )
    return net


@op("SVM")
def svm(d):
    net = Net(d, 15, ai_onnx_ml=1)
    n, c, v = d.size(4), d.int(1, 4), d.int(1, 4)
    kernel = d.pick(["LINEAR", "POLY", "RBF", "SIGMOID"])
    net.node(
        "SVMRegressor",
        [net.give(d.array([n, c]), False)],
        domain=ML,
        kernel_type=kernel,
        kernel_params=[0.5, 0.2, 2.0],
        n_supports=v,
        support_vectors=d.rng.normal(size=v * c).tolist(),
        coefficients=d.rng.normal(size=v).tolist(),
        rho=[0.3],
        one_class=d.pick([None, 0, 1]),
    )
    return net
