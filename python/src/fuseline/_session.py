"""Sessions with the interface of ONNX Runtime."""

from __future__ import annotations

import enum
import json
import operator
import os
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

from . import _native
from ._arrays import to_feed, to_result, to_texts, type_text
from ._errors import InvalidInput
from ._explain import Explanation

Model = Union[str, "os.PathLike[str]", bytes]
Size = Union[int, str, None]


class GraphOptimizationLevel(enum.IntEnum):
    """How much of a model becomes one kernel."""

    #: one kernel for every operator of the model
    ORT_DISABLE_ALL = 0
    #: kernels are fused; arithmetic is done as the model writes it
    ORT_ENABLE_BASIC = 1
    #: kernels are fused, and arithmetic is rearranged where that is true of real numbers
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Taken and not used: kernels run one after another, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class SessionOptions:
    """How a session is made.

    ``graph_optimization_level`` and ``intra_op_num_threads`` are obeyed (0 threads: one for every processor). The other attributes of
    ONNX Runtime's class can be set, and change nothing.

    >>> options = fuseline.SessionOptions()
    >>> options.graph_optimization_level = fuseline.GraphOptimizationLevel.ORT_DISABLE_ALL
    >>> options.intra_op_num_threads = 2
    """

    __slots__ = (
        "_level", "intra_op_num_threads", "inter_op_num_threads", "execution_mode", "execution_order",
        "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "enable_profiling", "profile_file_prefix",
        "optimized_model_filepath", "log_severity_level", "log_verbosity_level", "logid", "use_deterministic_compute",
        "_sizes", "_entries",
    )  # fmt: skip

    def __init__(self) -> None:
        self._level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.intra_op_num_threads: int = 0
        self.inter_op_num_threads: int = 0
        self.execution_mode: int = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order: int = 0
        self.enable_cpu_mem_arena: bool = True
        self.enable_mem_pattern: bool = True
        self.enable_mem_reuse: bool = True
        self.enable_profiling: bool = False
        self.profile_file_prefix: str = ""
        self.optimized_model_filepath: str = ""
        self.log_severity_level: int = -1
        self.log_verbosity_level: int = 0
        self.logid: str = ""
        self.use_deterministic_compute: bool = False
        self._sizes: dict[str, int] = {}
        self._entries: dict[str, str] = {}

    @property
    def graph_optimization_level(self) -> GraphOptimizationLevel:
        """How much of a model becomes one kernel: a ``GraphOptimizationLevel``, or its number."""
        return self._level

    @graph_optimization_level.setter
    def graph_optimization_level(self, level: int) -> None:
        try:
            self._level = GraphOptimizationLevel(level)
        except ValueError:
            known = ", ".join(f"{known.name} ({known.value})" for known in GraphOptimizationLevel)
            raise ValueError(f"no graph optimization level {level!r}: there are {known}") from None

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Plans for a size that the model leaves open, if it has it. Other sizes can be run nevertheless."""
        self._sizes[name] = int(size)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Kept, and not used."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """What was kept under a key."""
        return self._entries[key]


class RunOptions:
    """Taken and not used."""

    def __init__(self) -> None:
        self.log_severity_level: int = -1
        self.log_verbosity_level: int = 0
        self.logid: str = ""


class NodeArg:
    """An input or output of a model: ``name``, ``type`` (as ``tensor(float)`` or ``seq(tensor(string))``) and ``shape``, whose sizes are
    numbers, names, or None.
    """

    __slots__ = ("name", "shape", "type", "_dtype", "_is_sequence", "_is_optional")

    def __init__(
        self, name: str, dtype: str, shape: Optional[list[Size]], is_sequence: bool = False, is_optional: bool = False
    ) -> None:
        text = type_text(dtype)
        text = f"seq({text})" if is_sequence else text
        self.name = name
        self.type = f"optional({text})" if is_optional else text
        self.shape = shape
        self._dtype = dtype
        self._is_sequence = is_sequence
        self._is_optional = is_optional

    def _feeds(self, value: Any) -> list[tuple[str, str, Any]]:
        """The tensors of a value, with the names that the native code knows them by."""
        dtype = "u8" if self._dtype == "string" else self._dtype
        if value is None and self._is_optional:
            return []
        if not self._is_sequence:
            return [(self.name, dtype, to_feed(value, self))]
        if not isinstance(value, (list, tuple)):
            raise InvalidInput(f'input "{self.name}" is a sequence: give a list, not {type(value).__name__}')
        return [(f"{self.name}.{place}", dtype, to_feed(element, self)) for place, element in enumerate(value)]

    def _value(self, tensors: Mapping[str, _native.Tensor], change: Callable[[_native.Tensor], Any]) -> Any:
        """The reverse: what is there of the tensors, each changed; None where an optional value is not there."""
        if not self._is_sequence:
            return change(tensors[self.name]) if self.name in tensors else None
        elements: list[Any] = []
        while (name := f"{self.name}.{len(elements)}") in tensors:
            elements.append(change(tensors[name]))
        return None if self._is_optional and not elements else elements

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


class ModelMetadata:
    """What a model says of itself."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.producer_name: str = fields["producer_name"]
        self.graph_name: str = fields["graph_name"]
        self.domain: str = fields["domain"]
        self.description: str = fields["description"]
        self.graph_description: str = fields["graph_description"]
        self.version: int = fields["version"]
        self.custom_metadata_map: dict[str, str] = dict(fields["entries"])

    def __repr__(self) -> str:
        return f"ModelMetadata({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"


_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def get_available_providers() -> list[str]:
    """The devices of this machine, by ONNX Runtime's names."""
    has_gpu = _native.why_no_cuda() is None
    return [_PROVIDERS[device] for device in (("cuda", "cpu") if has_gpu else ("cpu",))]


def get_all_providers() -> list[str]:
    """The devices that Fuseline knows, by ONNX Runtime's names."""
    return [_PROVIDERS["cuda"], _PROVIDERS["cpu"]]


def get_device() -> str:
    """``GPU`` where there is one that can be used, otherwise ``CPU``."""
    return "CPU" if _native.why_no_cuda() else "GPU"


def set_default_logger_severity(severity: int) -> None:
    """Taken and not used: there is no log."""


def _device_of(providers: Iterable[Any]) -> str:
    """The first provider that is there, as ONNX Runtime takes it."""
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers]
    devices = {provider: device for device, provider in _PROVIDERS.items()}
    for name in names:
        device = devices.get(name)
        if device == "cpu" or device == "cuda" and _native.why_no_cuda() is None:
            return device
    raise ValueError(f"none of the providers {names} is there; available are {get_available_providers()}")


# What a model may ask of a run and of the compiler; what nobody says is what is usual.
_LIMITS = ("max_bytes", "max_trips", "max_text", "max_nodes", "max_nesting", "max_compile_time")


def _settings(
    options: Optional[SessionOptions],
    device: str,
    threads: Optional[int],
    precision: str,
    numerics: Optional[str],
    sizes: Optional[Mapping[str, int]],
    **limits: Optional[float],
) -> dict[str, Any]:
    choices: list[tuple[str, Optional[str], list[str]]] = [
        ("device", device, ["cpu", "cuda"]),
        ("precision", precision, ["f32", "bf16", "f16"]),
        ("numerics", numerics, ["strict", "default", "fast"]),
    ]
    for name, value, known in choices:
        if value not in known and not (name == "numerics" and value is None):
            raise ValueError(f"no {name} \"{value}\": there are {', '.join(known)}")
    options = SessionOptions() if options is None else options
    level = options.graph_optimization_level
    given = {name: _whole(f"sizes[{name!r}]", size) for name, size in (sizes or {}).items()}
    bounds = {name: limits.get(name) for name in _LIMITS}
    for name in bounds:
        if name != "max_compile_time" and bounds[name] is not None:
            # More than there can be is no bound.
            bounds[name] = min(_whole("max_memory" if name == "max_bytes" else name, bounds[name]), (1 << 63) - 1)
    strict = level <= GraphOptimizationLevel.ORT_ENABLE_BASIC and precision == "f32"
    if threads is None and device == "cpu":
        threads = options.intra_op_num_threads or None
    if threads is not None:
        threads = _whole("threads", threads)
        if threads < 1:
            raise ValueError(f"threads={threads}: wanted 1 or more, or None for one of every processor")
    if threads is not None and device == "cuda":
        raise ValueError("threads are those of a processor: leave them out, or choose device=\"cpu\"")
    return {
        "device": device,
        "threads": threads,
        "fuses": level != GraphOptimizationLevel.ORT_DISABLE_ALL,
        "numerics": numerics or ("strict" if strict else "default"),
        "precision": precision,
        "sizes": list(given.items()),
        "overrides": list(options._sizes.items()),
        **bounds,
    }


def _whole(name: str, value: Any) -> int:
    """A number that counts something."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} = {value!r}: a whole number is wanted") from None
    if number < 0:
        raise ValueError(f"{name} = {number}: it cannot be negative")
    return number


def _source(model: Model) -> Union[str, bytes]:
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    path = os.fspath(model)
    if not path.startswith(("gallery:", "demo:")) and not os.path.exists(path):
        raise FileNotFoundError(f"no such model: {path}")
    return path


class InferenceSession:
    """A model on a device, ready to run.

    ``path_or_bytes`` is an ONNX file, its bytes, a graph in Fuseline's text form (``.ir``), ``gallery:NAME`` or ``demo:NAME``. ``device`` is ``cpu`` or
    ``cuda``; ``providers``, by ONNX Runtime's names, is another way to say it. ``threads`` (else those of ``sess_options``, else one for every
    processor) are shared by all runs of the session. With ``precision="bf16"`` (or ``"f16"``) the factors of matrix products are rounded
    to it on a processor; on a GPU all that one kernel hands on to another is, as if the model had been converted. Outputs keep their type.
    ``numerics`` (``strict``, ``default``, ``fast``) says how far arithmetic may be rearranged. ``sizes`` are sizes to plan for, by the names
    that the model gives them; otherwise the plan is made for the sizes of the first run. Every size can be run. ``max_memory`` (bytes) and
    ``max_trips`` (of loops) bound what a run may use; ``max_text`` (bytes of any string), ``max_nodes``, ``max_nesting`` (of functions and
    regions) and ``max_compile_time`` (seconds, for importing and compiling together) what a model may ask of the compiler.
    ``disabled_optimizers``, which are ONNX Runtime's, are taken and change nothing.

    >>> session = fuseline.InferenceSession("model.onnx", threads=2)
    >>> outputs = session.run(None, {"x": numpy.zeros((2, 3), numpy.float32)})

    One session may be used by several threads; the interpreter's lock is free while it runs. After a fork, open a new one.
    """

    def __init__(
        self,
        path_or_bytes: Model,
        sess_options: Optional[SessionOptions] = None,
        providers: Optional[Sequence[Any]] = None,
        provider_options: Optional[Sequence[Mapping[str, Any]]] = None,
        *,
        device: Optional[str] = None,
        threads: Optional[int] = None,
        precision: str = "f32",
        numerics: Optional[str] = None,
        sizes: Optional[Mapping[str, int]] = None,
        max_memory: Optional[int] = None,
        max_trips: Optional[int] = None,
        max_text: Optional[int] = None,
        max_nodes: Optional[int] = None,
        max_nesting: Optional[int] = None,
        max_compile_time: Optional[float] = None,
        disabled_optimizers: Optional[Sequence[str]] = None,
    ) -> None:
        if device is None:
            device = _device_of(providers) if providers else "cpu"
        settings = _settings(
            sess_options,
            device,
            threads,
            precision,
            numerics,
            sizes,
            max_bytes=max_memory,
            max_trips=max_trips,
            max_text=max_text,
            max_nodes=max_nodes,
            max_nesting=max_nesting,
            max_compile_time=max_compile_time,
        )
        self._device = device
        self._options = SessionOptions() if sess_options is None else sess_options
        self._session = _native.Session(_source(path_or_bytes), settings)
        self._inputs = [NodeArg(*row) for row in self._session.inputs]
        self._defaults = [NodeArg(*row) for row in self._session.defaults]
        self._outputs = [NodeArg(*row) for row in self._session.outputs]
        self._ports = {port.name: port for port in self._inputs + self._defaults}

    def run(
        self,
        output_names: Optional[Sequence[str]],
        input_feed: Mapping[str, Any],
        run_options: Optional[RunOptions] = None,
    ) -> list[Any]:
        """The outputs that are asked for, or all, as NumPy arrays.

        Inputs are NumPy arrays, objects that speak DLPack (such as torch tensors), numbers, or lists of numbers. Arrays that are C-contiguous
        are read where they lie; others are copied first. A session on a GPU also reads tensors that lie there. An array of another element type is refused. Results own their
        memory and may be written; those of types that NumPy lacks are arrays of ml_dtypes, or ``Tensor`` where that is not installed.
        Sequences are lists. An optional input may be left out or None, and so may be an optional result. Strings are arrays of ``str``.

        >>> [y] = session.run(["y"], {"x": x})
        """
        ports, tensors = self._run(output_names, input_feed, stay=False)
        return [port._value(tensors, to_texts if port._dtype == "string" else to_result) for port in ports]

    def run_dlpack(self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any]) -> list[Any]:
        """The same as ``run``, with results that speak DLPack; strings are their bytes, filled up with zeros along one axis more.

        Results stay where they are computed: those of a session on a GPU in its memory (``y.device``, ``y.cpu()``), each in a place of its
        own. All work is done when this returns.

        >>> [y] = session.run_dlpack(None, {"x": torch.ones(2, 3, device="cuda")})
        >>> torch.from_dlpack(y)
        """
        ports, tensors = self._run(output_names, input_feed, stay=True)
        return [port._value(tensors, lambda tensor: tensor) for port in ports]

    def _run(
        self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any], stay: bool
    ) -> tuple[list[NodeArg], dict[str, _native.Tensor]]:
        """The outputs that are asked for, and the tensors that they are made of."""
        known = {port.name: port for port in self._outputs}
        if isinstance(output_names, str):
            raise TypeError("the names of outputs are a list")
        wanted = list(output_names) if output_names else list(known)
        for name in wanted:
            if name not in known:
                raise InvalidInput(f'the model has no output called "{name}"; there are: {", ".join(known)}')
        # An output that is asked for twice is one tensor, as it is one array in ONNX Runtime.
        return [known[name] for name in wanted], dict(self._session.run(self._feeds(input_feed), stay))

    def _feeds(self, input_feed: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
        """What the native code takes: every input with its element type."""
        if not isinstance(input_feed, Mapping):
            raise TypeError(f"inputs are a dictionary by name, not {type(input_feed).__name__}")
        feeds = []
        for name, value in input_feed.items():
            port = self._ports.get(name)
            if port is None:
                raise InvalidInput(f'the model has no input called "{name}"; there are: {", ".join(self._ports)}')
            feeds.extend(port._feeds(value))
        missing = [port.name for port in self._inputs if port.name not in input_feed and not port._is_optional]
        if missing:
            raise InvalidInput(f"required inputs are missing: {', '.join(missing)}")
        return feeds

    def profile(self, input_feed: Mapping[str, Any], runs: int = 10) -> list[dict[str, Any]]:
        """Where the time goes: every kernel of the plan with the least microseconds that it took, ``us``, beside ``expected_us``: what
        it was expected to take with as many threads, at the rates that the processor is measured to have before and behind the runs
        (``predicted_us`` is what the plan compares candidates by).

        On processors. The kernels stand in their order; ``equal_to`` is the number of the first one with the same code.

        >>> sorted(session.profile({"x": x}), key=lambda kernel: -kernel["us"])[0]["pattern"]
        """
        return list(json.loads(self._session.profile(self._feeds(input_feed), max(int(runs), 1))))

    def get_inputs(self) -> list[NodeArg]:
        """What must be given."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """What comes back."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """What may be given: the model has values for these."""
        return list(self._defaults)

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself."""
        return ModelMetadata(self._session.metadata)

    def get_providers(self) -> list[str]:
        """The device, by ONNX Runtime's name."""
        return [_PROVIDERS[self._device]]

    def get_session_options(self) -> SessionOptions:
        """How it was made."""
        return self._options

    @property
    def threads(self) -> int:
        """How many threads a run has."""
        return self._session.threads

    def explain(self, target: Optional[str] = None) -> Explanation:
        """Which kernels the model becomes, and why: on the session's device, or on another one that is only planned for.

        The plan is that for the sizes of the newest program; before the first run, for those that were given or are usual.

        >>> session.explain("h200")
        """
        return Explanation(self._session.explain(target))

    def __repr__(self) -> str:
        inputs = ", ".join(port.name for port in self._inputs)
        outputs = ", ".join(port.name for port in self._outputs)
        return f"<fuseline.InferenceSession on {self._device}: {inputs} → {outputs}>"


def explain(
    model: Model,
    target: str = "cpu",
    *,
    sizes: Optional[Mapping[str, int]] = None,
    numerics: str = "default",
    precision: str = "f32",
    fuse: bool = True,
    max_text: Optional[int] = None,
    max_nodes: Optional[int] = None,
    max_nesting: Optional[int] = None,
    max_compile_time: Optional[float] = None,
) -> Explanation:
    """Which kernels a model becomes on a device, and why; nothing is run.

    ``target`` is one of ``fuseline.targets()``, or a file that describes a device (``.spec``). Sizes that the model leaves open and nobody gives
    are assumed. What begins with ``max_`` bounds what a model may ask of the compiler, as in ``InferenceSession``.

    >>> fuseline.explain("gallery:layernorm_gelu", "h200", sizes={"rows": 4096}).kernels[0]["pattern"]
    'LayerNorm + GELU'
    """
    options = SessionOptions()
    if not fuse:
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    settings = _settings(
        options,
        "cpu",
        None,
        precision,
        numerics,
        sizes,
        max_text=max_text,
        max_nodes=max_nodes,
        max_nesting=max_nesting,
        max_compile_time=max_compile_time,
    )
    return Explanation(_native.explain(_source(model), settings, target))


def targets() -> list[str]:
    """The devices that can be planned for."""
    return _native.targets()


def gallery() -> list[str]:
    """The graphs that are built in: each is a model called ``gallery:NAME``."""
    return _native.gallery_names()
