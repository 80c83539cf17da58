"""Tensors in the memory of a GPU, in and out. Needs one, torch and onnx; not part of `check.py`:

    python3 -m pytest python/tests/gpu.py
"""

import gc
import threading

import models
import numpy as np
import pytest
import torch

import fuseline

SOFTMAX = "gallery:softmax"


def session(model=SOFTMAX, **words):
    return fuseline.InferenceSession(model, device="cuda", **words)


def values(*sizes):
    return torch.randn(*sizes, device="cuda")


def check(y, x):
    y = torch.from_dlpack(y) if isinstance(y, fuseline.Tensor) else torch.from_numpy(y).cuda()
    torch.testing.assert_close(y, torch.softmax(x, -1), rtol=1e-5, atol=1e-6)


def test_tensors_go_in_and_come_out_on_the_device():
    s = session()
    for rows in (1, 7, 4096):
        for _ in range(4):
            x = values(rows, 1000)
            [y] = s.run_dlpack(None, {"x": x})
            assert y.device == "cuda" and y.__dlpack_device__() == (2, 0) and "on cuda" in repr(y)
            check(y, x)
            [host] = s.run(None, {"x": x})
            assert isinstance(host, np.ndarray) and (host == y.numpy()).all() and (np.asarray(y) == host).all()


def test_nothing_is_copied():
    s = session()
    x = values(1 << 14, 1 << 14)  # a gigabyte
    [y] = s.run_dlpack(None, {"x": x})
    t = torch.from_dlpack(y)
    again = torch.from_dlpack(y)
    assert t.data_ptr() == again.data_ptr()
    free = torch.cuda.mem_get_info()[0]
    del t, again, y
    [y] = s.run_dlpack(None, {"x": x})
    torch.cuda.synchronize()
    assert free - torch.cuda.mem_get_info()[0] < 1 << 20, "no place for inputs, and the output's is used again"


def test_results_are_inputs_also_of_other_sessions():
    one, two = session(), session()
    x = values(64, 512)
    [y] = one.run_dlpack(None, {"x": x})
    [z] = two.run_dlpack(None, {"x": y})
    check(z, torch.softmax(x, -1))
    for _ in range(5):
        [y] = one.run_dlpack(None, {"x": y})
    assert torch.from_dlpack(y).sum(-1).allclose(torch.ones(64, device="cuda"))


def test_results_own_their_memory():
    s = session()
    xs = [values(128, 256) for _ in range(12)]
    ys = [s.run_dlpack(None, {"x": x})[0] for x in xs]
    del s
    gc.collect()
    assert len({torch.from_dlpack(y).data_ptr() for y in ys}) == 12
    for x, y in zip(xs, ys):
        check(y, x)


def test_the_work_of_other_streams_is_waited_for():
    s = session()
    x = values(8192, 1024)
    s.run_dlpack(None, {"x": x})
    for stream in [torch.cuda.default_stream(), torch.cuda.Stream()]:
        with torch.cuda.stream(stream):
            for _ in range(20):
                slow = values(4096, 4096)
                for _ in range(4):
                    slow = slow @ slow.T / 4096
                x = values(8192, 1024) + slow.sum() * 0
                [y] = s.run_dlpack(None, {"x": x})
                wanted = torch.softmax(x, -1)
                t = torch.from_dlpack(y)
                # What reads the result is not done when the result is dropped.
                kept = slow @ slow.T
                got = t + kept.sum() * 0
                del t, y
                [other] = s.run_dlpack(None, {"x": x * 0})
                torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)


def test_main_memory_and_the_device_together():
    s = session("gallery:add_gelu")
    names = [port.name for port in s.get_inputs()]
    assert len(names) == 2, names
    shape = [4 if not isinstance(n, int) else n for n in (s.get_inputs()[0].shape or [4])]
    x, b = values(*shape), np.ones(shape, np.float32)
    for _ in range(3):
        [y] = s.run_dlpack(None, {names[0]: x, names[1]: b})
        wanted = torch.nn.functional.gelu(x + 1)
        torch.testing.assert_close(torch.from_dlpack(y), wanted, rtol=1e-3, atol=1e-3)


def test_views_that_begin_anywhere():
    s = session()
    whole = values(100, 33)
    for first in range(5):
        check(s.run_dlpack(None, {"x": whole[first:]})[0], whole[first:])


def test_what_does_not_fit_is_refused_by_name():
    s = session()
    with pytest.raises(fuseline.InvalidInput, match=r'input "x": .*contiguous'):
        s.run(None, {"x": values(64, 64).T})
    with pytest.raises(fuseline.InvalidInput, match="a tensor of f64 where f32 is wanted"):
        s.run(None, {"x": values(4, 4).double()})
    with pytest.raises(fuseline.InvalidInput, match="shape"):
        s.run(None, {"x": values(4)})
    on_processor = fuseline.InferenceSession(SOFTMAX)
    with pytest.raises(fuseline.Unsupported, match=r"memory of GPU 0.*\.cpu\(\)"):
        on_processor.run(None, {"x": values(4, 4)})
    [y] = s.run_dlpack(None, {"x": values(4, 4)})
    with pytest.raises(fuseline.Unsupported, match=r"memory of GPU 0"):
        on_processor.run(None, {"x": y})
    assert on_processor.run(None, {"x": y.cpu()})[0].shape == (4, 4)
    with pytest.raises(BufferError, match="cpu"):
        y.__dlpack__(dl_device=(1, 0))
    with pytest.raises(ValueError):
        y.__array__(copy=False)


def test_empty_and_threads():
    s = session()
    assert s.run_dlpack(None, {"x": values(0, 16)})[0].shape == (0, 16)
    wrong = []

    def work():
        for _ in range(50):
            x = values(32, 100)
            try:
                check(s.run_dlpack(None, {"x": x})[0], x)
            except Exception as error:  # of any kind
                wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong, wrong[0]


def test_half_floats():
    s = session(models.typed(models.BF16))
    x = values(16, 2).bfloat16()
    assert torch.from_dlpack(s.run_dlpack(None, {"x": x})[0]).equal(2 * x)


def test_results_share_no_memory():
    s = session(models.aliases())
    x = values(10)
    before = x.clone()
    for _ in range(3):
        same, twice, again, weight = (torch.from_dlpack(y) for y in s.run_dlpack(None, {"x": x}))
        assert same.equal(before) and twice.equal(2 * before) and again.equal(twice)
        assert weight.equal(torch.arange(40000, dtype=weight.dtype, device="cuda"))
        for result in (same, twice, again, weight):
            result.fill_(7)
        assert x.equal(before)
    assert len({same.data_ptr(), twice.data_ptr(), again.data_ptr(), weight.data_ptr(), x.data_ptr()}) == 5


def test_the_host_between_kernels():
    s = session(models.control())
    for choice in (True, False, True):
        x = values(100)
        [y] = s.run_dlpack(None, {"x": x, "c": torch.tensor(choice, device="cuda")})
        assert y.device == "cuda" and torch.from_dlpack(y).equal(x + x if choice else x * x)


def test_several_element_types():
    s = session(models.counted())
    for _ in range(3):
        x = values(6, 2)
        for y, host in zip(s.run_dlpack(None, {"x": x}), s.run(None, {"x": x.cpu()})):
            assert y.device == "cuda" and (y.numpy() == host).all()


def test_elements_of_less_than_a_byte_come_out_in_main_memory():
    s = session(models.cast("FLOAT", "INT4"))
    [y] = s.run_dlpack(None, {"x": torch.tensor([1.0, -2.0, 7.0], device="cuda")})
    assert y.device == "cpu" and y.dtype == "i4"


def test_structure_that_hangs_on_values_of_the_device():
    s = session(models.reshape_by_value())
    x = values(24)
    for shape in ([4, 6], [24], [2, 3, 4], [4, 6]):
        [y] = s.run_dlpack(None, {"x": x, "shape": torch.tensor(shape, device="cuda")})
        torch.testing.assert_close(torch.from_dlpack(y), x.reshape(shape).sum(-1))


def test_defaults_may_be_replaced_from_the_device():
    s = session(models.defaults())
    x, w = values(5, 3), values(3)
    assert torch.from_dlpack(s.run_dlpack(None, {"x": x})[0]).equal(x * torch.tensor([1.0, 2, 3], device="cuda"))
    assert torch.from_dlpack(s.run_dlpack(None, {"x": x, "w": w})[0]).equal(x * w)
