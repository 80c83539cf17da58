"""Sessions against ONNX Runtime."""

import models
import numpy as np
import onnx
import onnxruntime
import pytest

import fuseline

RNG = np.random.default_rng(7)


def floats(*sizes):
    return RNG.standard_normal(sizes).astype(np.float32)


def agree(model, feeds, **options):
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    ours = fuseline.InferenceSession(model, threads=2, **options)
    check(ours, theirs, feeds)
    return ours, theirs


def check(ours, theirs, feeds):
    for mine, other in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(mine, other)


def attention_feeds(batch, tokens):
    feeds = {name: floats(batch, tokens, 8) for name in "qkv"}
    feeds["mask"] = RNG.random((batch, 1, tokens)) < 0.7
    feeds["mask"][..., 0] = True
    return feeds


@pytest.mark.parametrize("level", list(fuseline.GraphOptimizationLevel))
def test_every_level_agrees(level):
    options = fuseline.SessionOptions()
    options.graph_optimization_level = level
    agree(models.mlp(), {"x": floats(7, 16)}, sess_options=options)
    agree(models.convolution(), {"x": floats(2, 3, 12, 10)}, sess_options=options)


def test_sizes_change_between_runs():
    ours, theirs = agree(models.attention(), attention_feeds(1, 5))
    for batch, tokens in [(2, 5), (1, 33), (3, 1), (1, 5)]:
        check(ours, theirs, attention_feeds(batch, tokens))


def test_structure_that_hangs_on_values():
    model = models.reshape_by_value()
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    ours = fuseline.InferenceSession(model)
    shape = np.array([3, 4])
    for value in ([3, 4], [2, 2, 3], [3, 4], [12], [1, 12], [6, 2], [2, 6], [4, 3], [3, 4]):
        # Written where the last one was: what was made for it must not see that.
        shape = np.array(value)
        feeds = {"x": floats(12), "shape": shape}
        for _ in range(2):
            check(ours, theirs, feeds)
        shape[...] = -shape


def test_a_value_that_changes_in_place_is_seen():
    ours = fuseline.InferenceSession(models.reshape_by_value())
    x, shape = floats(12), np.array([3, 4])
    for value in ([3, 4], [4, 3], [2, 6]):
        shape[:] = value
        [y] = ours.run(None, {"x": x, "shape": shape})
        np.testing.assert_allclose(y, x.reshape(value).sum(-1), rtol=1e-5)


def test_branches_types_and_defaults():
    agree(models.control(), {"x": floats(4), "c": np.array(True)})
    agree(models.control(), {"x": floats(4), "c": np.array(False)})
    agree(models.counted(), {"x": floats(3, 5)})
    ours, theirs = agree(models.defaults(), {"x": floats(2, 3)})
    check(ours, theirs, {"x": floats(2, 3), "w": floats(3)})
    check(ours, theirs, {"x": floats(4, 3)})
    assert [port.name for port in ours.get_overridable_initializers()] == ["w"]


@pytest.mark.parametrize("kind,dtype", [(models.F16, "f2"), (models.F64, "f8"), (models.I64, "i8"), (models.I32, "i4")])
def test_element_types(kind, dtype):
    agree(models.typed(kind), {"x": np.arange(6).reshape(3, 2).astype(dtype)})


def test_ports_are_those_of_onnxruntime():
    for model in [models.mlp(), models.attention(), models.convolution(), models.counted(), models.typed(models.F16)]:
        theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        ours = fuseline.InferenceSession(model)
        for mine, other in [(ours.get_inputs(), theirs.get_inputs()), (ours.get_outputs(), theirs.get_outputs())]:
            assert [(p.name, p.type, p.shape) for p in mine] == [(p.name, p.type, p.shape) for p in other]


def test_metadata_is_that_of_onnxruntime():
    theirs = onnxruntime.InferenceSession(models.mlp(), providers=["CPUExecutionProvider"]).get_modelmeta()
    ours = fuseline.InferenceSession(models.mlp()).get_modelmeta()
    for name in ["producer_name", "graph_name", "domain", "description", "graph_description", "custom_metadata_map"]:
        assert getattr(ours, name) == getattr(theirs, name), name


def test_outputs_are_chosen_by_name_and_order():
    session = fuseline.InferenceSession(models.counted())
    x = floats(2, 3)
    largest, above = session.run(["largest", "above"], {"x": x})
    np.testing.assert_array_equal(largest, x.argmax(1))
    np.testing.assert_array_equal(above, x > 0)


def test_a_file_and_its_bytes_are_one_model(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(models.mlp())
    x = floats(3, 16)
    sources = [path, str(path), models.mlp(), bytearray(models.mlp()), memoryview(models.mlp())]
    results = [fuseline.InferenceSession(source, threads=1).run(None, {"x": x})[0] for source in sources]
    assert all((result == results[0]).all() for result in results)


def test_threads_are_those_that_were_asked_for():
    options = fuseline.SessionOptions()
    options.intra_op_num_threads = 3
    assert fuseline.InferenceSession(models.mlp(), options).threads == 3
    assert fuseline.InferenceSession(models.mlp(), options, threads=1).threads == 1
    assert fuseline.InferenceSession(models.mlp()).threads >= 1


def test_results_do_not_depend_on_threads():
    feeds = attention_feeds(3, 40)
    one, two = (fuseline.InferenceSession(models.attention(), threads=n).run(None, feeds)[0] for n in (1, 2))
    assert (one == two).all()


def test_bf16_is_less_exact_and_close():
    x = floats(64, 16)
    exact, rough = (fuseline.InferenceSession(models.mlp(), precision=p).run(None, {"x": x})[0] for p in ("f32", "bf16"))
    difference = np.abs(exact - rough).max()
    assert 0 < difference < 0.05 * np.abs(exact).max()


def test_providers_name_devices():
    session = fuseline.InferenceSession(models.mlp(), providers=["CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert "CPUExecutionProvider" in fuseline.get_available_providers()
    # As with ONNX Runtime: the first that is there.
    providers = [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
    assert fuseline.InferenceSession(models.mlp(), providers=providers).get_providers()[0] in fuseline.get_all_providers()
    with pytest.raises(ValueError, match="none of the providers"):
        fuseline.InferenceSession(models.mlp(), providers=["MagicExecutionProvider"])


def test_options_refuse_what_onnxruntime_does_not_have():
    options = fuseline.SessionOptions()
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    with pytest.raises(AttributeError):
        options.intra_op_threads = 2


def test_outputs_that_the_file_leaves_open_have_the_sizes_of_the_graph():
    content = onnx.load_from_string(models.mlp())
    del content.graph.output[0].type.tensor_type.shape.dim[:]
    content.graph.output[0].type.tensor_type.ClearField("shape")
    content = content.SerializeToString()
    ours, theirs = fuseline.InferenceSession(content), onnxruntime.InferenceSession(content)
    assert ours.get_outputs()[0].shape == theirs.get_outputs()[0].shape
    assert ours.get_outputs()[0].shape == fuseline.InferenceSession(models.mlp()).get_outputs()[0].shape
