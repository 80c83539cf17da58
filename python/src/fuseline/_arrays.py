"""Element types, and arrays that cross the border without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from ._errors import InvalidInput

if TYPE_CHECKING:
    from ._native import Tensor
    from ._session import NodeArg

#: Fuseline's name of an element type: ONNX Runtime's, NumPy's, and whether NumPy itself has it.
_TYPES: dict[str, tuple[str, str, bool]] = {
    "bool": ("bool", "bool", True),
    "u8": ("uint8", "uint8", True),
    "u16": ("uint16", "uint16", True),
    "u32": ("uint32", "uint32", True),
    "u64": ("uint64", "uint64", True),
    "i8": ("int8", "int8", True),
    "i16": ("int16", "int16", True),
    "i32": ("int32", "int32", True),
    "i64": ("int64", "int64", True),
    "f16": ("float16", "float16", True),
    "f32": ("float", "float32", True),
    "f64": ("double", "float64", True),
    # NumPy alone does not have these: ml_dtypes does.
    "bf16": ("bfloat16", "bfloat16", False),
    "f8e4m3": ("float8e4m3fn", "float8_e4m3fn", False),
    "f8e4m3z": ("float8e4m3fnuz", "float8_e4m3fnuz", False),
    "f8e5m2": ("float8e5m2", "float8_e5m2", False),
    "f8e5m2z": ("float8e5m2fnuz", "float8_e5m2fnuz", False),
    "f8e8m0": ("float8e8m0", "float8_e8m0fnu", False),
    "f4e2m1": ("float4e2m1", "float4_e2m1fn", False),
    "i4": ("int4", "int4", False),
    "u4": ("uint4", "uint4", False),
    "i2": ("int2", "int2", False),
    "u2": ("uint2", "uint2", False),
    "string": ("string", "object", True),
}


#: NumPy's own types, made once: every run looks for them.
_PLAIN: dict[str, np.dtype[Any]] = {name: np.dtype(row[1]) for name, row in _TYPES.items() if row[2]}


def type_text(name: str) -> str:
    """An element type as ONNX Runtime writes it: ``tensor(float)``."""
    return f"tensor({_TYPES[name][0]})"


def numpy_type(name: str) -> Optional[np.dtype[Any]]:
    """NumPy's type; None where ml_dtypes has it and is not installed."""
    plain = _PLAIN.get(name)
    if plain is not None:
        return plain
    try:
        import ml_dtypes
    except ImportError:
        return None
    found = getattr(ml_dtypes, _TYPES[name][1], None)
    return None if found is None else np.dtype(found)


class _View:
    """What NumPy makes an array of: the address, and the tensor that owns it."""

    __slots__ = ("__array_interface__", "tensor")

    def __init__(self, tensor: Tensor, typestr: str) -> None:
        self.__array_interface__ = tensor._interface(typestr)
        self.tensor = tensor


_BITS = {1: "|u1", 2: "<u2"}


def to_numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A result as an array that owns its memory; nothing is copied but what is on a GPU."""
    tensor = tensor.cpu()
    plain = _PLAIN.get(tensor.dtype)
    if plain is not None:
        return np.asarray(_View(tensor, plain.str))
    dtype = numpy_type(tensor.dtype)
    if dtype is None:
        name = _TYPES[tensor.dtype][1]
        raise TypeError(
            f"NumPy has no {name}: install ml_dtypes, or take the tensor itself by DLPack, as torch.from_dlpack does"
        )
    return np.asarray(_View(tensor, _BITS[dtype.itemsize])).view(dtype)


def to_result(tensor: Tensor) -> Any:
    """An array, or the tensor itself where NumPy does not have its element type."""
    return tensor if numpy_type(tensor.dtype) is None else to_numpy(tensor)


def to_texts(tensor: Tensor) -> Any:
    """Texts, which are bytes with one axis more and zeros behind the end of each, as an array of ``str``."""
    array = to_numpy(tensor)
    rows = array.reshape(-1, array.shape[-1]) if array.size else np.zeros((int(np.prod(array.shape[:-1])), 0), np.uint8)
    texts = np.empty(len(rows), object)
    texts[:] = [row.tobytes().rstrip(b"\0").decode() for row in rows]
    return texts.reshape(array.shape[:-1])


def _text_bytes(value: Any, port: NodeArg) -> np.ndarray[Any, Any]:
    """Strings as the native code reads them: the reverse of ``to_texts``."""
    array = np.asarray(value)
    if array.dtype.kind not in "OSU" or not all(isinstance(text, (str, bytes)) for text in array.ravel().tolist()):
        raise InvalidInput(f'input "{port.name}" has elements {array.dtype}, wanted {port.type}: give an array of strings')
    _checked(array, port)
    texts = [text.encode() if isinstance(text, str) else text for text in array.ravel().tolist()]
    width = max(map(len, texts), default=0)
    rows = np.frombuffer(b"".join(text.ljust(width, b"\0") for text in texts), np.uint8)
    return rows.reshape(*array.shape, width)


def to_feed(value: Any, port: NodeArg) -> Any:
    """What the native code reads: a C-contiguous array of the port's element type, or an object that speaks DLPack."""
    if port._dtype == "string":
        return _text_bytes(value, port)
    if not isinstance(value, np.ndarray):
        if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
            return _checked(value, port)
        value = _converted(value, port)
    wanted = numpy_type(port._dtype)
    if wanted is None:
        name = _TYPES[port._dtype][1]
        raise InvalidInput(
            f'input "{port.name}" is {name}, which NumPy does not have: install ml_dtypes, or give an object that speaks '
            "DLPack, such as a torch tensor"
        )
    if value.dtype != wanted:
        if value.dtype.newbyteorder("=") != wanted:
            raise InvalidInput(
                f'input "{port.name}" has elements {value.dtype}, wanted {port.type}: convert it, for instance by '
                f".astype({_spelling(port._dtype)})"
            )
        value = value.astype(wanted)
    if not (value.flags.c_contiguous and value.flags.aligned):
        value = np.array(value, order="C", copy=True)
    return _checked(value, port)


def _spelling(name: str) -> str:
    _, numpy_name, is_plain = _TYPES[name]
    return f"{'numpy' if is_plain else 'ml_dtypes'}.{numpy_name}"


def _converted(value: Any, port: NodeArg) -> np.ndarray[Any, Any]:
    """Numbers and lists of them, as far as their kind fits."""
    wanted = numpy_type(port._dtype)
    try:
        array = np.asarray(value)
    except Exception as error:
        raise InvalidInput(f'input "{port.name}" is no tensor: {error}') from error
    is_number = array.dtype.kind in "biuf"
    if not isinstance(value, np.generic) and is_number and wanted is not None and np.can_cast(array.dtype, wanted, "same_kind"):
        return array.astype(wanted)
    return array


def _checked(value: Any, port: NodeArg) -> Any:
    """Refuses another number of axes, or other sizes than are fixed."""
    if port.shape is None or not hasattr(value, "shape"):
        return value
    shape = tuple(value.shape)
    fits = len(shape) == len(port.shape)
    for size, wanted in zip(shape, port.shape):
        fits = fits and (not isinstance(wanted, int) or size == wanted)
    if not fits:
        raise InvalidInput(f'input "{port.name}" has the shape {shape}, wanted {tuple(port.shape)}')
    return value
