"""The rivals of `fuseline compare`: loads one model in several runtimes and runs them when it is told to.

Requests and answers are lines of JSON on standard input and output, each followed by as many bytes as its "bytes" says: an .npz file. The first
request opens the model; every further one names a rival and how often it shall run.
"""
import io
import json
import os
import sys
import threading
import time


def onnxruntime(model, feeds, request):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if request["device"] == "cuda":
        return onnxruntime.__version__, onnxruntime_on_cuda(onnxruntime, model, feeds, options, request["outputs"])
    options.intra_op_num_threads = request["threads"]
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return onnxruntime.__version__, lambda: session.run(request["outputs"], feeds)


def onnxruntime_on_cuda(onnxruntime, model, feeds, options, outputs):
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise Missing("onnxruntime has no CUDAExecutionProvider", "onnxruntime-gpu")
    session = onnxruntime.InferenceSession(model, options, providers=["CUDAExecutionProvider"])
    if "CUDAExecutionProvider" not in session.get_providers():
        raise RuntimeError("the libraries of CUDA that it wants are not there")
    binding = session.io_binding()
    for name, feed in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(feed, "cuda", 0))
    for name in outputs:
        binding.bind_output(name, "cuda")

    def run():
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return binding.copy_outputs_to_cpu

    return run


def openvino(model, feeds, request):
    import openvino

    if request["device"] == "cuda":
        raise RuntimeError("OpenVINO does not run on NVIDIA's GPUs")
    config = {"INFERENCE_NUM_THREADS": request["threads"]}
    if request["precision"] == "f32":
        config["INFERENCE_PRECISION_HINT"] = "f32"
    infer = openvino.Core().compile_model(model, "CPU", config).create_infer_request()

    def run():
        results = infer.infer(feeds)
        return [results[k] for k in range(len(request["outputs"]))]

    return openvino.__version__.split("-")[0], run


def torch(model, feeds, request):
    import torch

    import onnx2torch

    device = request["device"]
    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU")
    torch.set_num_threads(request["threads"])
    tensors = [torch.from_numpy(feed).to(device) for feed in feeds.values()]
    with torch.no_grad():
        try:
            read_later_versions()
            module = with_fixed_sizes(torch, onnx2torch.convert(as_it_reads(model)).eval().to(device), tensors)
        except Exception as error:  # of many kinds, some of which say no more than a name
            raise RuntimeError(f"onnx2torch does not read this model ({told(error)})") from error
        module = torch.compile(module)
    narrow = {"bf16": torch.bfloat16, "f16": torch.float16}.get(request["precision"] if device == "cuda" else "f32")

    def run():
        with torch.inference_mode(), torch.autocast(device, dtype=narrow, enabled=narrow is not None):
            results = module(*tensors)
        if device == "cuda":
            torch.cuda.synchronize()
        results = results if isinstance(results, (list, tuple)) else [results]
        # Results of autocast may be narrower than the model says.
        return lambda: [(r.float() if r.dtype == narrow else r).cpu().numpy() for r in results]

    return torch.__version__.split("+")[0], run


def read_later_versions():
    """Has onnx2torch read operators of later operator sets as the latest that it knows, where nothing changed but types, inputs and attributes that a node does
    without, and axes that became an input (`as_it_reads` makes an attribute of them again)."""
    from onnx import defs
    from onnx2torch.node_converters import registry

    latest = {}
    for known in registry._CONVERTER_REGISTRY:
        version = latest.get((known.domain, known.operation_type), 0)
        latest[known.domain, known.operation_type] = max(version, known.version)
    for later in defs.get_all_schemas_with_history():
        version = latest.get((later.domain, later.name))
        if version is None or later.since_version <= version:
            continue
        schema = defs.get_schema(later.name, version, later.domain)
        default = lambda attribute: attribute.default_value.SerializeToString()
        moved = {"axes"} & {given.name for given in later.inputs}
        is_same = lambda name: name in later.attributes and default(later.attributes[name]) == default(schema.attributes[name])
        if not all(is_same(name) for name in set(schema.attributes) - moved):
            continue
        read = registry._CONVERTER_REGISTRY[registry.OperationDescription(later.domain, later.name, version)]
        try:
            registry.add_converter(later.name, later.since_version, later.domain)(as_before(read, schema, later))
        except ValueError:
            pass  # there already
    if ("", "Gelu") not in latest:
        registry.add_converter("Gelu", 20)(read_gelu)


def read_gelu(node, graph):
    from onnx2torch.utils.common import OperationConverterResult, onnx_mapping_from_node
    from torch.nn import GELU

    approximate = node.attributes.get("approximate", "none")
    return OperationConverterResult(torch_module=GELU(approximate=approximate), onnx_mapping=onnx_mapping_from_node(node))


def as_before(read, schema, later):
    """How a node is read by an earlier version of its operator."""
    from onnx import helper

    usual = lambda name: helper.get_attribute_value(later.attributes[name].default_value) if later.attributes[name].default_value.name else None

    def read_node(node, graph):
        more = [name for name, value in node.attributes.items() if name not in schema.attributes and value != usual(name)]
        if more or len(node.input_values) > schema.max_input:
            raise NotImplementedError(f"{schema.name} with {', '.join(more) or 'more inputs'}")
        return read(node, graph)

    return read_node


def as_it_reads(path):
    """The model as onnx2torch reads it: it does not look for weights behind an Identity, which exporters write for those that are shared; it wants the axes of
    folds as an attribute; and it knows no sizes of zero."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(path)
    graph = model.graph
    if any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute):
        return model
    numbers = {weight.name: weight for weight in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            numbers[node.output[0]] = node.attribute[0].t
    weights = {weight.name for weight in graph.initializer}
    results, kept, names = {output.name for output in graph.output}, [], {}
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        if node.op_type == "Identity" and node.input[0] in weights and node.output[0] not in results:
            names[node.output[0]] = node.input[0]
            continue
        if node.op_type.startswith("Reduce") and node.op_type != "ReduceSum" and len(node.input) == 2 and node.input[1] in numbers:
            axes = numpy_helper.to_array(numbers[node.input[1]]).tolist()
            del node.input[1]
            node.attribute.append(helper.make_attribute("axes", axes))
        if node.op_type == "Reshape":
            for attribute in [attribute for attribute in node.attribute if attribute.name == "allowzero"]:
                node.attribute.remove(attribute)
        kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
    return model


def told(error):
    """The kind of an error, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])


def with_fixed_sizes(torch, module, tensors):
    """The module at the sizes at hand: torch.compile does not follow how modules of onnx2torch read sizes from tensors."""

    class Recorder(torch.fx.Interpreter):
        def run_node(self, node):
            node.meta["result"] = super().run_node(node)
            return node.meta["result"]

    Recorder(module).run(*tensors)
    kind = lambda node: type(module.get_submodule(node.target)).__name__ if node.op == "call_module" else node.op
    # What follows from sizes and constants alone is a constant.
    known = set()
    for node in list(module.graph.nodes):
        if kind(node) not in ("placeholder", "output") and (kind(node) == "OnnxShape" or known.issuperset(node.all_input_nodes)):
            known.add(node)
    for node in list(module.graph.nodes):
        result = node.meta.pop("result", None)
        with module.graph.inserting_before(node):
            if node in known and node.op != "get_attr" and isinstance(result, torch.Tensor):
                module.register_buffer(f"known_{node.name}", result)
                fixed = module.graph.get_attr(f"known_{node.name}")
            elif kind(node) in ("OnnxReshape", "OnnxExpand"):
                fixed = module.graph.call_method(kind(node)[4:].lower(), (node.args[0], tuple(result.shape)))
            else:
                continue
        node.replace_all_uses_with(fixed)
        module.graph.erase_node(node)
    module.recompile()
    return module


def tensorrt(model, feeds, request):
    import tensorrt

    import torch

    if request["device"] != "cuda":
        raise RuntimeError("TensorRT runs on GPUs")
    logger = tensorrt.Logger(tensorrt.Logger.ERROR)
    builder = tensorrt.Builder(logger)
    # Up to version 9, batches are explicit only where that is said.
    explicit = getattr(tensorrt.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH", None)
    network = builder.create_network(0 if explicit is None else 1 << int(explicit))
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse_from_file(model):
        raise RuntimeError(str(parser.get_error(0).desc()))
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    for name, feed in feeds.items():
        profile.set_shape(name, feed.shape, feed.shape, feed.shape)
    config.add_optimization_profile(profile)
    if request["precision"] == "f32":
        config.clear_flag(tensorrt.BuilderFlag.TF32)
    else:
        config.set_flag({"bf16": tensorrt.BuilderFlag.BF16, "f16": tensorrt.BuilderFlag.FP16}[request["precision"]])
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("it makes no engine of the model")
    engine = tensorrt.Runtime(logger).deserialize_cuda_engine(plan)
    context, stream = engine.create_execution_context(), torch.cuda.Stream()
    tensors = {name: torch.from_numpy(feed).cuda() for name, feed in feeds.items()}
    for name, tensor in tensors.items():
        context.set_input_shape(name, tuple(tensor.shape))
    for name in request["outputs"]:
        dtype = torch.from_numpy(numpy.empty(0, tensorrt.nptype(engine.get_tensor_dtype(name)))).dtype
        tensors[name] = torch.empty(tuple(context.get_tensor_shape(name)), dtype=dtype, device="cuda")
    for name, tensor in tensors.items():
        context.set_tensor_address(name, tensor.data_ptr())
    torch.cuda.synchronize()

    def run():
        context.execute_async_v3(stream.cuda_stream)
        stream.synchronize()
        return lambda: [tensors[name].cpu().numpy() for name in request["outputs"]]

    return tensorrt.__version__, run


class Missing(ImportError):
    """Something is not installed; pip has it under this name."""

    def __init__(self, why, package):
        super().__init__(why)
        self.package = package


RIVALS = {"onnxruntime": onnxruntime, "openvino": openvino, "torch": torch, "tensorrt": tensorrt}
INSTALL = {"torch": "torch onnx2torch", "tensorrt": "tensorrt torch"}


class Pipe:
    def __init__(self):
        # What libraries print must not be taken for answers.
        self.answers = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self.requests = sys.stdin.buffer

    def read(self):
        line = self.requests.readline()
        if not line:
            sys.exit(0)
        request = json.loads(line)
        return request, self.requests.read(request.get("bytes", 0))

    def write(self, answer, content=b""):
        self.answers.write(json.dumps({**answer, "bytes": len(content)}).encode() + b"\n" + content)
        self.answers.flush()


def opened(name, feeds, request):
    """What the first answer says of a rival, its outputs, and how to run it."""
    start = time.perf_counter()
    try:
        version, run = RIVALS[name](request["model"], feeds, request)
        results = run()
        # What brings results to main memory is not part of a run on a GPU.
        results = results() if callable(results) else results
    except Missing as error:
        return {"state": "missing", "why": str(error), "install": error.package}, b"", None
    except ImportError as error:
        missing = (error.name or name).split(".")[0]
        return {"state": "missing", "why": f"no module {missing}", "install": INSTALL.get(name, name)}, b"", None
    except Exception as error:  # runtimes raise many kinds
        why = str(error).strip().splitlines()[:1] if type(error) is RuntimeError else []
        return {"state": "failed", "why": (why or [told(error)])[0][:200]}, b"", None
    content = io.BytesIO()
    numpy.savez(content, **dict(zip(request["outputs"], results)))
    return {"state": "ready", "version": version, "seconds": time.perf_counter() - start}, content.getvalue(), run


def leave_with(parent):
    """Ends this process with the one that started it, however that ended, also in the middle of a long compilation."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main():
    threading.Thread(target=leave_with, args=(os.getppid(),), daemon=True).start()
    pipe = Pipe()
    request, content = pipe.read()
    global numpy
    try:
        import numpy
    except ImportError:
        for name in request["rivals"]:
            pipe.write({"state": "missing", "why": "no module numpy", "install": INSTALL.get(name, name)})
        return
    feeds = dict(numpy.load(io.BytesIO(content)))
    runs = {}
    for name in request["rivals"]:
        answer, outputs, runs[name] = opened(name, feeds, request)
        pipe.write(answer, outputs)
    while True:
        request, _ = pipe.read()
        times, run = [], runs[request["rival"]]
        run()
        for _ in range(request["iters"]):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e3)
        pipe.write({"ms": times})


main()
