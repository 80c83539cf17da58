#!/usr/bin/env python3
"""Make structure-only models: ONNX files with everything but the weights, of which only seeds and bounds are left.

    python3 tests/models/structure.py                     the models of tests/models/structure, from their sources
    python3 tests/models/structure.py --only 'gpt2.*dyn'  some of them
    python3 tests/models/structure.py MODEL.onnx OUT.onnx one of your own

A float tensor of more than 64 elements becomes external data at the location `seeded:N`, which Fuseline draws when it
is read (docs/structure-only-models.md). It is drawn between bounds that keep the mean and the deviation of the original and
do not leave its range, so that activations stay as large as they were and variances stay positive. Equal tensors
share a seed. Everything else stays as it is: integers, truth values, small tensors, and tensors that are no weights
but tables (whole numbers, masks of infinities). Large tables of one value are drawn between equal bounds, and large
triangular masks become operators that make them. Types of inner values, descriptions and metadata are left out, and
inner values have short names; nodes keep theirs.

Beside a tiny model MODEL.K.npz holds inputs and what ONNX Runtime answers to them when seeds.py fills in the numbers.

The sources are those of check.py, which exports them where they are missing; one folder (--dir) serves both.
"""
import argparse
import hashlib
import itertools
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import environment

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(__file__).resolve().parent / "structure"
MODELS = """
bert_base.legacy bert_base.legacy_dyn bert_base.dynamo bert_base.dynamo_dyn
gpt2.dynamo gpt2.dynamo_dyn gpt2_masked.legacy gpt2_masked.legacy_dyn gpt2_masked.dynamo_dyn
llama4l.legacy llama4l.dynamo llama4l_hf.dynamo llama4l_hf.dynamo_dyn llama4l_hf_masked.legacy llama4l_hf_masked.legacy_dyn
vit_b16.legacy vit_b16.dynamo resnet50.legacy resnet50.legacy_dyn resnet50.dynamo resnet50.dynamo_dyn
mobilenetv3l.legacy mobilenetv3l.dynamo efficientnet_b0.legacy efficientnet_b0.dynamo
resnet50.legacy_plain resnet50.dynamo_plain
bert_tiny.legacy bert_tiny.legacy_dyn bert_tiny.dynamo bert_tiny.dynamo_dyn
gpt2_tiny.legacy gpt2_tiny.dynamo_dyn llama_tiny.legacy llama_tiny.dynamo_dyn
regnet_tiny.legacy regnet_tiny.dynamo regnet_tiny.legacy_plain regnet_tiny.dynamo_plain
vit_tiny.legacy vit_tiny.dynamo mobilenet_tiny.legacy mobilenet_tiny.dynamo_plain
convnext_tiny.legacy convnext_tiny.dynamo decoder_tiny.legacy decoder_tiny.dynamo
convnext_t.legacy convnext_t.dynamo whisper_tiny_enc.legacy whisper_tiny_enc.dynamo
""".split()
SMALL = 64  # elements; smaller tensors stay as they are
MOST_EXACT = 64 << 10  # bytes of a table that stays as it is
MOST_BYTES = 300_000  # of a file


def main():
    args = arguments()
    home = (args.dir / "venv").resolve()
    if Path(sys.prefix).resolve() != home:
        try:
            environment.ensure(home)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"set-up failed: {error}")
        os.execv(environment.python_of(home), [str(environment.python_of(home)), *sys.argv])
    if args.model:
        convert(args.model, args.out)
        return
    import generate

    failures = {}
    TARGET.mkdir(exist_ok=True)
    for name in (name for name in MODELS if re.search(args.only, name)):
        source = args.dir.resolve() / "generated" / f"{name}.onnx"
        generate.generate_all(args.dir.resolve(), f"^generated/{re.escape(name)}$", failures.__setitem__)
        if source.exists():
            convert(source, TARGET / source.name)
            if "_tiny." in name:
                answer(TARGET / source.name)
    for name, reason in failures.items():
        print(f"FAILED {name}: {reason}")
    sys.exit(1 if failures else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="a model of your own")
    parser.add_argument("out", nargs="?", type=Path, help="where its structure goes")
    option = parser.add_argument
    option("--only", metavar="REGEX", default="", help="only models whose name contains this, e.g. 'gpt2.*dyn'")
    option("--dir", type=Path, default=ROOT / "target/models", help="working folder (default: target/models)")
    args = parser.parse_args()
    if args.model and not args.out:
        parser.error("a model of your own needs a place for its structure")
    return args


def convert(source, target):
    """Write the structure of one model."""
    import onnx

    model = onnx.load(source)
    strip(model)
    shorten(model.graph)
    Seeding().apply(model)
    data = model.SerializeToString(deterministic=True)
    if len(data) > MOST_BYTES:
        sys.exit(f"{source.name}: {len(data)} bytes are left, more than {MOST_BYTES}")
    target.write_bytes(data)
    print(f"structure: {target.name}, {len(data)} bytes", flush=True)


def answer(path):
    """Write feeds for a structure, and the answers of ONNX Runtime with them."""
    import feeds
    import numpy
    import onnx
    import seeds

    model = onnx.load(path, load_external_data=False)
    seeds.fill(tensor for graph in graphs(model.graph) for tensor in tensors(graph))
    session = feeds.session(model.SerializeToString(), feeds.onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    outputs = [output.name for output in session.get_outputs()]
    inputs = [port.name for port in session.get_inputs()]
    for k, feed in enumerate(feeds.make_feeds(f"generated/{path.stem}", inputs)):
        answers = dict(zip(outputs, session.run(outputs, feed)))
        numpy.savez_compressed(path.with_suffix(f".{k}.npz"), **feed, **answers)


def strip(model):
    """Leave out what no compiler reads."""
    for message in [model, *graphs(model.graph), *model.functions]:
        for field in ("doc_string", "metadata_props", "value_info"):
            if field in message.DESCRIPTOR.fields_by_name:
                message.ClearField(field)
    for graph in graphs(model.graph):
        for port in (*graph.input, *graph.output):
            port.ClearField("doc_string")
            port.ClearField("metadata_props")
    for node in (*nodes(model.graph), *(node for function in model.functions for node in function.node)):
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
        for attribute in node.attribute:
            attribute.ClearField("doc_string")


def shorten(graph):
    """Call the results of nodes v0, v1, …; inputs, outputs and weights keep their names."""
    kept = {port.name for inner in graphs(graph) for port in (*inner.input, *inner.output, *inner.initializer)}
    free = (short for short in map("v{}".format, itertools.count()) if short not in kept)
    names = {}
    for node in nodes(graph):
        for name in node.output:
            if name and name not in kept and name not in names:
                names[name] = next(free)
    for node in nodes(graph):
        for field in (node.input, node.output):
            field[:] = [names.get(name, name) for name in field]


class Seeding:
    """Replaces weights by seeds, numbered in the order in which their contents are first met."""

    def __init__(self):
        self.seeds = {}

    def apply(self, model):
        for graph in list(graphs(model.graph)):
            made = []
            for tensor in list(tensors(graph)):
                made += self.replace(tensor, graph.initializer)
            for node in reversed(made):
                graph.node.insert(0, node)

    def replace(self, tensor, initializers):
        """Seed a tensor, or take an initializer out and return the nodes that make it."""
        import numpy
        from onnx import numpy_helper

        if math.prod(tensor.dims) <= SMALL:
            return []
        values = numpy_helper.to_array(tensor)
        is_large = values.nbytes > MOST_EXACT
        if is_weight(values) or is_large and numpy.isfinite(values.flat[0]) and (values == values.flat[0]).all():
            self.seed(tensor, values.astype(numpy.float64))
            return []
        if not is_large:
            return []
        made = triangle(tensor.name, values)
        if made is None or tensor not in initializers:
            sys.exit(f"the table {tensor.name!r} of {values.nbytes} bytes is neither weights nor a triangle")
        initializers.remove(tensor)
        return made

    def seed(self, tensor, values):
        mean, deviation = values.mean(), values.std()
        low = max(values.min(), mean - math.sqrt(3) * deviation)
        high = min(values.max(), mean + math.sqrt(3) * deviation)
        content = hashlib.sha256(f"{tensor.data_type} {tensor.dims} ".encode() + values.tobytes()).digest()
        seed = self.seeds.setdefault(content, len(self.seeds))
        name, data_type, dims = tensor.name, tensor.data_type, list(tensor.dims)
        tensor.Clear()
        tensor.name, tensor.data_type, tensor.data_location = name, data_type, tensor.EXTERNAL
        tensor.dims.extend(dims)
        bounds = f"{low:.4g}", f"{high:.4g}"
        if bounds[0] == bounds[1]:  # all digits, so that close bounds stay apart and equal ones are exact
            bounds = repr(float(low)), repr(float(high))
        for key, value in zip(("location", "low", "high"), (f"seeded:{seed}", *bounds)):
            tensor.external_data.add(key=key, value=value)


def is_weight(values):
    """Whether any numbers will do: floats, but no mask and no table of whole numbers."""
    import numpy

    if values.dtype.kind != "f" and values.dtype.name not in ("bfloat16", "float16"):
        return False
    values = values.astype(numpy.float64)
    return bool(numpy.isfinite(values).all()) and bool((values != numpy.floor(values)).any())


def triangle(name, values):
    """The nodes that make a table which is 0 on one side of a diagonal and one value on the other, or None."""
    import numpy
    from onnx import helper, numpy_helper

    rows, columns = values.shape[-2:] if values.ndim >= 2 else (1, values.size)
    fill = next((x for x in (values.flat[0], values.flat[-1], values.flat[columns - 1]) if x != 0), None)
    if fill is None or values.ndim < 2:
        return None
    everywhere = numpy.full(values.shape, fill)
    for upper in (0, 1):
        cut = numpy.triu if upper else numpy.tril
        for diagonal in range(-rows, columns + 1):
            if numpy.array_equal(cut(everywhere, diagonal), values):
                shape = numpy_helper.from_array(numpy.array(values.shape, dtype=numpy.int64))
                one = numpy_helper.from_array(numpy.array([fill], dtype=values.dtype))
                offset = numpy_helper.from_array(numpy.array(diagonal, dtype=numpy.int64))
                node, inner = helper.make_node, [f"{name}.{part}" for part in ("shape", "full", "diagonal")]
                return [
                    node("Constant", [], [inner[0]], value=shape),
                    node("ConstantOfShape", [inner[0]], [inner[1]], value=one),
                    node("Constant", [], [inner[2]], value=offset),
                    node("Trilu", [inner[1], inner[2]], [name], upper=upper),
                ]
    return None


def graphs(graph):
    """A graph and all graphs inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from graphs(inner)


def tensors(graph):
    """The initializers of a graph and the tensors that its nodes hold as attributes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t


def nodes(graph):
    return [node for inner in graphs(graph) for node in inner.node]


if __name__ == "__main__":
    main()
