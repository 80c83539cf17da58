"""Differences that are no findings: where ONNX Runtime or the evaluator does not do what the standard says, or where it does not say."""


def confirmed(net, problem, says):
    """The standard's own evaluator answers as we do."""
    return "is ours" in says


def evaluated(net, problem, says):
    """ONNX Runtime refuses the model; only the evaluator answers."""
    return "ORT refused" in says


def empty(net, problem, says):
    return any(0 in x.shape for x in net.feed.values())


def attribute(net, name):
    """The attribute of this name of any node."""
    return next((a for node in net.nodes for a in node.attribute if a.name == name), None)


def dilated_same(net, problem, says):
    same = attribute(net, "auto_pad")
    return "shape" in problem and same and b"SAME" in same.s and attribute(net, "dilations")


def of_integers(net, problem, says):
    return "differ, at" in problem and "cannot say" in says


# Generators, when, and why.
KNOWN = [
    ("AffineGrid", lambda net, *_: attribute(net, "align_corners"), "an axis of one element lies at 1; for PyTorch at 0"),
    ("Attention", confirmed, "a causal mask is not moved by the past; the lowest number stands for minus infinity"),
    ("Cast", confirmed, "ONNX Runtime rounds to 4 bits instead of cutting off"),
    (
        "Cast",
        lambda net, problem, _: len(net.nodes) == 2 and "off by" in problem,
        "a rounding and back may vanish on a processor (--numerics)",
    ),
    ("Clip", confirmed, "ONNX Runtime clips to the largest number where no bound is given, the evaluator does not"),
    ("Col2Im", confirmed, "columns of dilated or three-dimensional images are not where the standard has them"),
    ("Dropout", confirmed, "the mask of older versions: nothing is kept, for the evaluator everything"),
    ("DynamicQuantizeLinear", confirmed, "the scale is 1 where all elements are 0"),
    ("FusedMatMul", empty, "a product of no terms is what the memory was"),
    ("Gather", confirmed, "ONNX Runtime loses texts"),
    ("Gemm", lambda net, problem, says: "for integers of Gemm" in problem, "integers times fractions: no text says how"),
    ("GridSample", evaluated, "the evaluator's places beyond a border are others than ONNX Runtime's, where that has the type"),
    ("Hardmax Softmax LogSoftmax", evaluated, "the evaluator takes all versions for the newest"),
    ("LRN", evaluated, "the evaluator runs over batches where it means channels"),
    ("LSTM GRU RNN", evaluated, "the evaluator ignores lengths, layouts, clips and activations"),
    ("MaxPool AveragePool LpPool", dilated_same, "windows of SAME are counted without dilations"),
    ("MaxPool AveragePool LpPool", evaluated, "the evaluator's windows of SAME begin elsewhere"),
    ("MaxUnpool", lambda net, *_: True, "with output_shape, indices are those of the shape without it, as in the official test"),
    ("MeanVarianceNormalization", confirmed, "a variance of 0 divides"),
    ("Mod", confirmed, "large integers are divided as floats"),
    ("QLinearOps", lambda net, *_: net.nodes[0].op_type == "QLinearSoftmax", "a probability of 1 overflows"),
    ("ReduceLogSum ReduceLogSumExp", of_integers, "integers are rounded at every step"),
    ("Reduce*", empty, "axes of size 0 stay, a mean of nothing is 0"),
    ("Resize", confirmed, "antialias and regions of other types are not the standard's"),
    ("Resize", evaluated, "the evaluator takes a length that is no integer for that of the result"),
    ("Slice", confirmed, "an end far behind with a step backwards means the beginning"),
    ("Texts", confirmed, "an empty text has no part"),
    ("Texts", evaluated, "ONNX Runtime lacks the locale; the evaluator removes accents and white space"),
    ("TreeEnsemble", confirmed, "of two classes the second one's score decides alone"),
    ("TreeEnsemble", lambda net, problem, says: "type" in problem, "the evaluator's type is that of the input"),
]


def known(name, net, problem, says):
    """The reason why this difference is no finding, or None."""
    for names, when, why in KNOWN:
        if (name in names.split() or names == "Reduce*" and name.startswith("Reduce")) and when(net, problem, says):
            return why
    return None
