"""The rivals of `fuseline compare`: loads one model in several runtimes and runs them when it is told to.

Requests and answers are lines of JSON on standard input and output, each followed by as many bytes as its "bytes" says: an .npz file. The first
request opens the model; every further one names a rival and how often it shall run.
"""
import io
import json
import os
import sys
import time


def onnxruntime(model, feeds, request):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = request["threads"]
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return onnxruntime.__version__, lambda: session.run(request["outputs"], feeds)


def openvino(model, feeds, request):
    import openvino

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

    torch.set_num_threads(request["threads"])
    module = torch.compile(onnx2torch.convert(model).eval())
    tensors = [torch.from_numpy(feed) for feed in feeds.values()]

    def run():
        with torch.inference_mode():
            results = module(*tensors)
        return [r.numpy() for r in (results if isinstance(results, (list, tuple)) else [results])]

    return torch.__version__.split("+")[0], run


RIVALS = {"onnxruntime": onnxruntime, "openvino": openvino, "torch": torch}
INSTALL = {"torch": "torch onnx2torch"}


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
    except ImportError as error:
        missing = (error.name or name).split(".")[0]
        return {"state": "missing", "why": f"no module {missing}", "install": INSTALL.get(name, name)}, b"", None
    except Exception as error:  # runtimes raise many kinds
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        return {"state": "failed", "why": why[:200]}, b"", None
    content = io.BytesIO()
    numpy.savez(content, **dict(zip(request["outputs"], results)))
    return {"state": "ready", "version": version, "seconds": time.perf_counter() - start}, content.getvalue(), run


def main():
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
