"""What goes wrong, as an exception of its kind that names the place."""

import models
import pytest

import fuseline


def test_kinds_are_classes():
    for kind in [fuseline.InvalidModel, fuseline.InvalidInput, fuseline.NeedsValue, fuseline.Unsupported, fuseline.Limit, fuseline.Exhausted, fuseline.Bug]:
        assert issubclass(kind, fuseline.Error)
    assert issubclass(fuseline.InvalidModel, ValueError) and issubclass(fuseline.Unsupported, NotImplementedError)


def test_a_broken_file_is_an_invalid_model(tmp_path):
    for content in [b"", b"no model", models.mlp()[:-100]]:
        path = tmp_path / "broken.onnx"
        path.write_bytes(content)
        for source in [path, content]:
            with pytest.raises(fuseline.InvalidModel) as caught:
                fuseline.InferenceSession(source)
            assert caught.value.message and caught.value.message in str(caught.value)
    with pytest.raises(FileNotFoundError, match="missing.onnx"):
        fuseline.InferenceSession(tmp_path / "missing.onnx")
    with pytest.raises(fuseline.InvalidModel, match="not a regular file"):
        fuseline.InferenceSession(tmp_path)


def test_an_unknown_operator_is_named():
    with pytest.raises(fuseline.Unsupported, match=r'node "trick" \(Levitate\)'):
        fuseline.InferenceSession(models.unknown_operator())


def test_sizes_that_do_not_fit_name_their_node():
    with pytest.raises(fuseline.InvalidModel, match="matmul_y") as caught:
        fuseline.InferenceSession(models.mismatched())
    assert any("MatMul" in place for place in caught.value.path)


def test_wrong_options_are_told():
    # An option is no part of the model, which may be right.
    for wrong, told in [
        ({"device": "tpu"}, 'no device "tpu": there are cpu, cuda'),
        ({"precision": "f7"}, 'no precision "f7": there are f32, bf16, f16'),
        ({"numerics": "loose"}, 'no numerics "loose": there are strict, default, fast'),
    ]:
        with pytest.raises(ValueError, match=told) as caught:
            fuseline.InferenceSession(models.mlp(), **wrong)
        assert not isinstance(caught.value, fuseline.Error)
    with pytest.raises(fuseline.InvalidModel, match="strict numerics"):
        fuseline.InferenceSession(models.mlp(), precision="bf16", numerics="strict")
    with pytest.raises(ValueError, match="threads=0: wanted 1 or more"):
        fuseline.InferenceSession(models.mlp(), threads=0)
    for threads in ["2", 2.5]:
        with pytest.raises(TypeError, match="threads = .*: a whole number is wanted"):
            fuseline.InferenceSession(models.mlp(), threads=threads)
    with pytest.raises(ValueError, match="threads are those of a processor"):
        fuseline.InferenceSession(models.mlp(), device="cuda", threads=2)
    with pytest.raises(fuseline.InvalidInput, match="known devices are cpu.*, here") as refused:
        fuseline.InferenceSession(models.mlp()).explain("z80")
    assert str(refused.value).count("avx2") == 1
    with pytest.raises(fuseline.InvalidModel, match="gallery"):
        fuseline.InferenceSession("gallery:nothing")
    with pytest.raises(TypeError):
        fuseline.InferenceSession(7)


def test_memory_is_limited_where_that_is_asked_for():
    session = fuseline.InferenceSession(models.mlp(), max_memory=1000)
    with pytest.raises(fuseline.Limit, match="1000 bytes"):
        session.run(None, {"x": [[0.0] * 16] * 1000})


def test_what_a_model_may_ask_is_limited_where_that_is_asked_for():
    for limit, said in [({"max_nodes": 1}, "1 "), ({"max_compile_time": 0}, "importing and compiling take longer than 0 s")]:
        with pytest.raises(fuseline.Limit, match=said):
            fuseline.InferenceSession(models.mlp(), **limit)
        with pytest.raises(fuseline.Limit, match=said):
            fuseline.explain(models.mlp(), **limit)
    with pytest.raises(fuseline.Invalid, match="max_nesting = 1000"):
        fuseline.InferenceSession(models.mlp(), max_nesting=1000)
    fuseline.InferenceSession(models.mlp(), max_nesting=2, max_text=10, max_nodes=100, max_compile_time=100)


def test_sizes_to_plan_for_are_those_of_the_model():
    for sizes, error, words in [
        ({"zzz": 7}, fuseline.InvalidInput, 'no free size called "zzz": there are rows, columns'),
        ({"rows": -1}, ValueError, "cannot be negative"),
        ({"rows": "abc"}, TypeError, "a whole number is wanted"),
    ]:
        with pytest.raises(error, match=words):
            fuseline.InferenceSession("gallery:softmax", sizes=sizes)
        with pytest.raises(error, match=words):
            fuseline.explain("gallery:softmax", sizes=sizes)
    # As in ONNX Runtime, what is overridden may be a size of another model.
    options = fuseline.SessionOptions()
    options.add_free_dimension_override_by_name("zzz", 7)
    fuseline.InferenceSession("gallery:softmax", options)


def test_limits_and_levels_are_checked_where_they_are_set():
    with pytest.raises(ValueError, match="max_memory = -1: it cannot be negative"):
        fuseline.InferenceSession("gallery:softmax", max_memory=-1)
    with pytest.raises(TypeError, match="max_memory = 'much'"):
        fuseline.InferenceSession("gallery:softmax", max_memory="much")
    options = fuseline.SessionOptions()
    with pytest.raises(ValueError, match="no graph optimization level 'x': there are ORT_DISABLE_ALL"):
        options.graph_optimization_level = "x"
    options.graph_optimization_level = 1
    assert options.graph_optimization_level is fuseline.GraphOptimizationLevel.ORT_ENABLE_BASIC


def test_networks_of_the_demo_are_models():
    assert fuseline.InferenceSession("demo:encoder").get_outputs()
    with pytest.raises(fuseline.InvalidModel, match="there are encoder"):
        fuseline.InferenceSession("demo:nothing")
