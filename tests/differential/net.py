"""Drawing small models at random: numbers, shapes, tensors, and the network that they feed."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOATS = ["f4", "f8", "f2"]
INTS = ["i4", "i8", "u1", "i1", "i2", "u2", "u4", "u8"]
ONNX_TYPE = {
    "f4": TensorProto.FLOAT,
    "f8": TensorProto.DOUBLE,
    "f2": TensorProto.FLOAT16,
    "i1": TensorProto.INT8,
    "i2": TensorProto.INT16,
    "i4": TensorProto.INT32,
    "i8": TensorProto.INT64,
    "u1": TensorProto.UINT8,
    "u2": TensorProto.UINT16,
    "u4": TensorProto.UINT32,
    "u8": TensorProto.UINT64,
    "b1": TensorProto.BOOL,
    "bool": TensorProto.BOOL,
    "str": TensorProto.STRING,
}
GENERATORS = {}


def op(*names):
    """Register a generator, a function that draws a `Net` with the help of a `Draw`, under the names of operators."""

    def register(function):
        for name in names:
            GENERATORS[name] = (lambda draw, name=name: function(draw, name)) if len(names) > 1 else function
        return function

    return register


class Draw:
    """Random choices. The same seed, operator and number of a case make the same choices."""

    def __init__(self, seed, name, k):
        self.rng = np.random.default_rng([seed, *name.encode(), k])

    def int(self, low, high):
        """An integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, p=0.5):
        return bool(self.rng.random() < p)

    def pick(self, choices):
        return choices[self.int(0, len(choices) - 1)]

    def some(self, choices, least=0):
        """Some of the choices, in random order."""
        n = self.int(least, len(choices))
        return [choices[i] for i in self.rng.permutation(len(choices))[:n]]

    def shape(self, low=0, high=5, largest=6, zero=0.04):
        """Sizes, of which some are 1 and few are 0."""
        return [self.size(largest, zero) for _ in range(self.int(low, high))]

    def size(self, largest=6, zero=0.0):
        if self.chance(zero):
            return 0
        if largest >= 5 and self.chance(0.06):  # more than a vector of any processor, and not a multiple of one
            return self.int(largest, 40)
        return 1 if self.chance(0.15) else self.int(1, largest)

    def axis(self, rank):
        """An axis, often from the back."""
        return self.int(-rank, rank - 1)

    def axes(self, rank, least=0):
        return [a - rank if self.chance(0.3) else a for a in self.some(list(range(rank)), least)]

    def broadcast(self, shape):
        """A shape that broadcasts to this one."""
        cut = self.int(0, len(shape)) if self.chance(0.4) else 0
        return [1 if self.chance(0.25) else n for n in shape[cut:]]

    def opset(self, low, high=23):
        return self.int(low, max(low, high))

    def array(self, shape, dtype="f4", low=-3, high=3):
        """Numbers of this type; floats have few bits often, so that they tie."""
        shape = tuple(shape)
        if dtype == "b1":
            return self.rng.random(shape) < 0.5
        if dtype == "str":
            words = np.array(["", "a", "b", "ab", "Abc", "x y", "é", "日本", "ab ", "10"], dtype=object)
            return np.asarray(words[self.rng.integers(0, len(words), shape)], dtype=object).reshape(shape)
        dtype = np.dtype(dtype)
        if dtype.kind == "f":
            x = self.rng.uniform(low, high, shape)
            return np.asarray(np.round(x) if self.chance(0.1) else x).astype(dtype)
        if dtype.kind == "u":
            low = max(low, 0)
        return self.rng.integers(low, high + 1, shape).astype(dtype)

    def any(self, shape, dtype="u1"):
        """Integers of all the values of a type."""
        info = np.iinfo(dtype)
        return self.rng.integers(info.min, info.max, tuple(shape), dtype=dtype, endpoint=True)


class Net:
    """A model and what it is fed."""

    def __init__(self, draw, opset=23, steps=0, tolerance=None, **domains):
        self.draw, self.opset, self.domains = draw, opset, {name.replace("_", "."): v for name, v in domains.items()}
        self.steps, self.tolerance = steps, tolerance  # how far integers and floats may be apart
        self.nodes, self.inputs, self.constants, self.feed, self.outputs = [], [], [], {}, []

    def give(self, array, constant=None):
        """An operand: an initializer or an input, whose sizes may be symbols."""
        array = np.asarray(array)
        name = f"x{len(self.inputs) + len(self.constants)}"
        if constant is None:
            constant = self.draw.chance(0.35)
        if constant:
            self.constants.append(numpy_helper.from_array(array, name))
            return name
        dynamic = self.draw.chance(0.4)
        shape = [f"{name}_{k}" if dynamic and self.draw.chance(0.7) else n for k, n in enumerate(array.shape)]
        self.inputs.append(helper.make_tensor_value_info(name, onnx_type(array), shape))
        self.feed[name] = array
        return name

    def maybe(self, array, p=0.5, constant=None):
        """An optional operand: there, or left out."""
        return self.give(array, constant) if self.draw.chance(p) else ""

    def ints(self, values, constant=None, dtype="i8"):
        return self.give(np.array(values, dtype).reshape(np.shape(values) or ()), constant)

    def node(self, name, inputs, outputs=1, domain="", keep=True, **attributes):
        """A node; `outputs` is a number of results or says of each whether it is wanted. Those that are kept are the model's."""
        wanted = [True] * outputs if isinstance(outputs, int) else outputs
        results = [f"y{len(self.nodes)}_{k}" if w else "" for k, w in enumerate(wanted)]
        inputs = list(inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        attributes = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(helper.make_node(name, inputs, results, domain=domain, **attributes))
        if keep:
            self.outputs += [r for r in results if r]
        return results[0] if len(results) == 1 else results

    def model(self, types=None):
        """The file; `types` are the element types and shapes of outputs where they are known."""
        results = [output_info(name, (types or {}).get(name)) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "drawn", self.inputs, results, self.constants)
        imports = [helper.make_opsetid("", self.opset)] + [helper.make_opsetid(d, v) for d, v in self.domains.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


def onnx_type(array):
    return ONNX_TYPE["str" if array.dtype.kind in "OUS" else array.dtype.str[1:] if array.dtype != bool else "b1"]


def output_info(name, array):
    """What a model says about an output: nothing, or a type with its rank."""
    if array is None:
        return onnx.ValueInfoProto(name=name)
    if isinstance(array, list):
        element = helper.make_tensor_type_proto(onnx_type(array[0]) if array else TensorProto.FLOAT, None)
        return helper.make_value_info(name, helper.make_sequence_type_proto(element))
    return helper.make_tensor_value_info(name, onnx_type(array), [f"{name}_{k}" for k in range(array.ndim)])
