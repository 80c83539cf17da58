"""Plans in words."""

import models
import pytest

import fuseline


def test_a_plan_is_text_data_and_html():
    session = fuseline.InferenceSession(models.mlp(), threads=2)
    plan = session.explain()
    assert "Kernels" in repr(plan) and "rows=1" in repr(plan) and "\x1b" not in repr(plan)
    assert max(len(line) for line in plan.text(80).splitlines()) <= 80
    assert "GELU" in plan.kernels[0]["pattern"]
    assert {"verdict", "reason", "saved_us", "id"} <= set(plan.decisions[0])
    assert plan.totals["kernels"] == len(plan.kernels) < plan.totals["per_node"]["kernels"]
    page = plan._repr_html_()
    assert page.count("<table>") == page.count("</table>") == 2 and "GELU" in page


def test_a_plan_is_for_the_sizes_of_the_runs():
    session = fuseline.InferenceSession(models.mlp())
    assert session.explain().data["assumed_sizes"] == {"rows": 1}
    session.run(None, {"x": [[0.5] * 16] * 77})
    assert session.explain().data["sizes"] == {"rows": 77}
    assert session.explain("h200").data["target"]["name"] == "h200"


def test_a_profile_has_every_kernel():
    session = fuseline.InferenceSession(models.attention(), threads=1)
    feeds = {name: [[[0.5] * 8] * 20] for name in "qkv"}
    feeds["mask"] = [[[True] * 20]]
    profile = session.profile(feeds, runs=3)
    assert [kernel["pattern"] for kernel in profile] == [kernel["pattern"] for kernel in session.explain().kernels]
    assert all(kernel["us"] > 0 and kernel["predicted_us"] > 0 for kernel in profile)


def test_what_hangs_on_values_is_explained_after_a_run():
    session = fuseline.InferenceSession(models.reshape_by_value())
    session.run(None, {"x": [1.0] * 12, "shape": [3, 4]})
    assert len(session.explain().kernels) == 1


def test_without_fusion_every_operator_is_a_kernel():
    options = fuseline.SessionOptions()
    options.graph_optimization_level = fuseline.GraphOptimizationLevel.ORT_DISABLE_ALL
    apart = fuseline.InferenceSession(models.attention(), options).explain()
    fused = fuseline.InferenceSession(models.attention()).explain()
    assert len(fused.kernels) < len(apart.kernels)
    assert fused.data["numerics"] == "default" and apart.data["numerics"] == "strict"


def test_models_are_explained_without_a_session():
    plan = fuseline.explain("gallery:layernorm_gelu", "h200", sizes={"rows": 4096})
    assert [kernel["pattern"] for kernel in plan.kernels] == ["LayerNorm + GELU"]
    assert plan.data["sizes"] == {"rows": 4096}
    assert len(fuseline.explain("gallery:layernorm_gelu", fuse=False).kernels) == 2
    assert "layernorm_gelu" in fuseline.gallery() and "a100" in fuseline.targets()
    for explain in [lambda: fuseline.explain("gallery:softmax", "h2000"), lambda: fuseline.InferenceSession("gallery:softmax").explain("h2000")]:
        with pytest.raises(fuseline.InvalidInput, match="known devices are .*h200"):
            explain()


def test_names_in_html_are_text():
    made = models.model([models.node("Relu", "x", "<b>")], [models.port("x", models.F32, 2)], [models.port("<b>", models.F32, 2)])
    page = fuseline.explain(made)._repr_html_()
    assert "<b>" not in page.replace("<b>model</b>", "").replace("<b>cpu</b>", "") and "&lt;b&gt;" in page
