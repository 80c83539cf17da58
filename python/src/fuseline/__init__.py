"""Fuseline: an automatic operator-fusion compiler for neural networks, with the interface of ONNX Runtime.

>>> import fuseline as ort
>>> session = ort.InferenceSession("model.onnx", threads=2)
>>> session.run(None, {"x": x})
>>> session.explain()
"""

from ._errors import Bug, Error, Exhausted, Invalid, InvalidInput, InvalidModel, Limit, NeedsValue, Unsupported
from ._explain import Explanation
from ._native import Tensor, __version__
from ._session import (
    ExecutionMode,
    GraphOptimizationLevel,
    InferenceSession,
    ModelMetadata,
    NodeArg,
    RunOptions,
    SessionOptions,
    explain,
    gallery,
    get_all_providers,
    get_available_providers,
    get_device,
    set_default_logger_severity,
    targets,
)

__all__ = [
    "Bug",
    "Error",
    "ExecutionMode",
    "Exhausted",
    "Explanation",
    "GraphOptimizationLevel",
    "InferenceSession",
    "Invalid",
    "InvalidInput",
    "InvalidModel",
    "Limit",
    "ModelMetadata",
    "NeedsValue",
    "NodeArg",
    "RunOptions",
    "SessionOptions",
    "Tensor",
    "Unsupported",
    "__version__",
    "explain",
    "gallery",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "set_default_logger_severity",
    "targets",
]
