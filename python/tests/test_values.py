"""Sequences, optional values and strings against ONNX Runtime."""

import models
import numpy as np
import onnxruntime
import pytest
from models import F32, node, port
from onnx import TensorProto, helper

import fuseline

STRING = TensorProto.STRING



def sequence(name, kind, *shape):
    elements = helper.make_tensor_type_proto(kind, list(shape))
    return helper.make_value_info(name, helper.make_sequence_type_proto(elements))


def both(model, feeds):
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    ours = fuseline.InferenceSession(model, threads=2)
    for mine, other in zip(ours.get_inputs() + ours.get_outputs(), theirs.get_inputs() + theirs.get_outputs(), strict=True):
        assert (mine.name, mine.type) == (other.name, other.type)
    return ours.run(None, feeds), theirs.run(None, feeds)


def test_sequences_are_lists():
    nodes = [
        node("ConcatFromSequence", "x", "joined", axis=0),
        node("SplitToSequence", "joined", "y", axis=0, keepdims=0),
        node("SequenceLength", "x", "count"),
    ]
    outputs = [sequence("y", F32), port("count", TensorProto.INT64)]
    model = models.model(nodes, [sequence("x", F32, "n")], outputs)
    for lengths in [(1, 2, 3), (4,), (1, 0, 5)]:
        feeds = {"x": [np.arange(length, dtype=np.float32) for length in lengths]}
        (y, count), (other, other_count) = both(model, feeds)
        assert count == other_count == len(lengths)
        assert [float(element) for element in y] == [float(element) for element in other]
    session = fuseline.InferenceSession(model)
    with pytest.raises(fuseline.InvalidInput, match="give a list"):
        session.run(None, {"x": np.zeros(3, np.float32)})


def test_optional_values_may_be_left_out():
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(F32, ["n"]))
    nodes = [node("OptionalHasElement", "x", "there"), node("Identity", "x", "y")]
    outputs = [port("there", TensorProto.BOOL), helper.make_value_info("y", kind)]
    session = fuseline.InferenceSession(models.model(nodes, [helper.make_value_info("x", kind)], outputs))
    assert session.get_inputs()[0].type == "optional(tensor(float))"
    for feeds in ({}, {"x": None}):
        there, y = session.run(None, feeds)
        assert not there and y is None
    there, y = session.run(None, {"x": np.ones(2, np.float32)})
    assert there and y.tolist() == [1, 1]


def test_strings_are_arrays_of_str():
    nodes = [
        node("StringNormalizer", "x", "kept", is_case_sensitive=1, stopwords=["a"]),
        node("Concat", "kept kept", "y", axis=0),
    ]
    model = models.model(nodes, [port("x", STRING, "n")], [port("y", STRING, None)])
    for texts in (["größe", "a", "", "longer than the others"], ["a", "a"]):
        (y,), (other,) = both(model, {"x": np.array(texts, object)})
        assert y.dtype == object and y.tolist() == other.tolist()
    session = fuseline.InferenceSession(model)
    assert session.run(None, {"x": np.array(["b", "c"])})[0].tolist() == ["b", "c", "b", "c"]
    with pytest.raises(fuseline.InvalidInput, match="an array of strings"):
        session.run(None, {"x": np.zeros(3, np.float32)})
    with pytest.raises(fuseline.InvalidInput, match="shape"):
        session.run(None, {"x": np.array([["b"]])})
