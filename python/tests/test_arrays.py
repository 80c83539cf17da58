"""What goes in and comes out: arrays, DLPack, and what is refused."""

import gc
import sys
import weakref

import ml_dtypes
import models
import numpy as np
import pytest

import fuseline


class Speaker:
    """Something that speaks DLPack and nothing else."""

    def __init__(self, array, versioned=True):
        self.array, self.versioned = array, versioned

    @property
    def shape(self):
        return self.array.shape

    def __dlpack__(self, **words):
        if words and not self.versioned:
            raise TypeError("an older library")
        return self.array.__dlpack__(**words)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnGpu(Speaker):
    def __dlpack_device__(self):
        return (2, 0)


@pytest.fixture(scope="module")
def double():
    return fuseline.InferenceSession(models.typed(models.F32))


def values(*sizes):
    return np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)


def test_inputs_are_not_copied_and_not_kept(double):
    x = values(1000, 2)
    before = sys.getrefcount(x)
    double.run(None, {"x": x})
    [y] = double.run(None, {"x": x})
    assert sys.getrefcount(x) == before
    x[...] = 0
    assert (y == 2 * values(1000, 2)).all(), "results do not lie in inputs"


def test_results_own_their_memory_and_can_be_written(double):
    results = [double.run(None, {"x": values(50, 2)})[0] for _ in range(4)]
    assert all(result.flags.writeable and result.flags.c_contiguous for result in results)
    results[0][...] = -1
    assert all((result == 2 * values(50, 2)).all() for result in results[1:])
    session = fuseline.InferenceSession(models.typed(models.F32))
    [y] = session.run(None, {"x": values(50, 2)})
    del session
    gc.collect()
    assert (y == 2 * values(50, 2)).all(), "results outlive their session"


def test_results_share_no_memory():
    session = fuseline.InferenceSession(models.aliases())
    x = values(10)
    for _ in range(2):
        results = session.run(None, {"x": x})
        same, twice, again, weight = results
        assert (same == x).all() and (twice == 2 * x).all() and (again == twice).all()
        assert (weight == np.arange(40000)).all()
        for k, result in enumerate(results):
            assert not any(np.shares_memory(result, other) for other in [x, *results[:k]])
            result[...] = 7
    assert (x == values(10)).all()


@pytest.mark.parametrize(
    "x",
    [
        values(6, 4)[:, ::2],
        values(2, 6).T,
        values(6, 2)[::-1],
        np.asfortranarray(values(6, 2)),
        np.broadcast_to(values(1, 2), (6, 2)),
        values(6, 2).astype(">f4"),
        np.frombuffer(b"\0" + values(6, 2).tobytes(), "f4", offset=1, count=12).reshape(6, 2),
        values(0, 2),
        values(6, 2)[3:],
        values(6, 2).tolist(),
        [[1, 2], [3, 4]],
        values(6, 2).view(np.matrix),
    ],
    ids="strided transposed reversed fortran broadcast bigendian unaligned empty offset floats integers matrix".split(),
)
def test_other_arrays_are_converted(double, x):
    [y] = double.run(None, {"x": x})
    np.testing.assert_array_equal(y, 2 * np.asarray(x, np.float32))


def test_read_only_arrays_are_read(double):
    x = values(3, 2)
    x.flags.writeable = False
    assert (double.run(None, {"x": x})[0] == 2 * x).all()


@pytest.mark.parametrize(
    "x,message",
    [
        (values(3, 2).astype("f8"), r'input "x" has elements float64, wanted tensor\(float\).*astype\(numpy.float32\)'),
        (values(3, 2).astype("i4"), "int32"),
        (values(3, 2).astype("c8"), "complex64"),
        (values(3, 2).astype(object), "object"),
        (np.array([["a", "b"]]), "<U1"),
        (np.float64(3), "float64"),
        ("text", "<U4"),
        ([["a", 1]], "<U"),
        (None, "object"),
        ([[1, 2], [3]], "no tensor"),
        ([[1j, 2]], "complex"),
        (values(3, 3), r"has the shape \(3, 3\), wanted \('n', 2\)"),
        (values(3), "shape"),
        (values(1, 3, 2), "shape"),
        (np.float32(3), "shape"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_name(double, x, message):
    with pytest.raises(fuseline.InvalidInput, match=message):
        double.run(None, {"x": x})
    with pytest.raises(ValueError):
        double.run(None, {"x": x})


def test_lists_of_floats_are_no_integers():
    session = fuseline.InferenceSession(models.typed(models.I64))
    assert (session.run(None, {"x": [[1, 2]]})[0] == [[2, 4]]).all()
    with pytest.raises(fuseline.InvalidInput, match="float64"):
        session.run(None, {"x": [[1.5, 2.0]]})


def test_names_are_checked(double):
    with pytest.raises(fuseline.InvalidInput, match='no input called "z"; there are: x'):
        double.run(None, {"x": values(1, 2), "z": values(1, 2)})
    with pytest.raises(fuseline.InvalidInput, match="required inputs are missing: x") as caught:
        double.run(None, {})
    assert caught.value.message == str(caught.value) and caught.value.path == []
    with pytest.raises(TypeError, match="a list"):
        double.run("y", {"x": values(1, 2)})
    with pytest.raises(TypeError, match="dictionary by name, not list"):
        double.run(None, [values(1, 2)])
    with pytest.raises(fuseline.InvalidInput, match='no output called "q"; there are: y'):
        double.run(["q"], {"x": values(1, 2)})


def test_sizes_must_agree_with_one_another():
    session = fuseline.InferenceSession(models.attention())
    feeds = {name: values(1, 4, 8) for name in "qkv"}
    feeds["mask"] = np.ones((1, 1, 5), bool)
    with pytest.raises(fuseline.InvalidInput, match="mask"):
        session.run(None, feeds)


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack_comes_in_without_a_copy(double, versioned):
    x = values(5, 2)
    [y] = double.run(None, {"x": Speaker(x, versioned)})
    assert (y == 2 * x).all()
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert alive() is None, "what was given is given back"


@pytest.mark.parametrize("x", [values(6, 4)[:, ::2], values(2, 6).T, values(6, 2)[::-1], values(0, 2), values(1, 2)[:, ::-1]])
def test_dlpack_with_strides(double, x):
    assert (double.run(None, {"x": Speaker(x)})[0] == 2 * x).all()


def test_dlpack_that_does_not_fit_is_refused(double):
    with pytest.raises(fuseline.InvalidInput, match="a tensor of f64 where f32 is wanted"):
        double.run(None, {"x": Speaker(values(3, 2).astype("f8"))})
    with pytest.raises(fuseline.InvalidInput, match="shape"):
        double.run(None, {"x": Speaker(values(3, 3))})

    class Silent(Speaker):
        def __dlpack__(self, **words):
            raise BufferError("it has a gradient")

    with pytest.raises(fuseline.InvalidInput, match='input "x": the tensor cannot be read: it has a gradient'):
        double.run(None, {"x": Silent(values(3, 2))})
    with pytest.raises(fuseline.Unsupported, match=r'memory of GPU 0.*\.cpu\(\).*device="cuda"'):
        double.run(None, {"x": OnGpu(values(3, 2))})

    class Elsewhere(Speaker):
        def __dlpack_device__(self):
            return (8, 0)

    with pytest.raises(fuseline.Unsupported, match=r'input "x".*another device \(DLPack\'s kind 8\)'):
        double.run(None, {"x": Elsewhere(values(3, 2))})


def test_dlpack_goes_out_without_a_copy(double):
    [y] = double.run_dlpack(None, {"x": values(5, 2)})
    assert y.shape == (5, 2) and y.dtype == "f32" and y.nbytes == 40 and y.__dlpack_device__() == (1, 0)
    assert y.device == "cpu" and y.cpu() is y
    one, two = np.from_dlpack(y), np.from_dlpack(y)
    assert np.shares_memory(one, two) and np.shares_memory(one, y.numpy())
    del y
    gc.collect()
    assert (one == 2 * values(5, 2)).all()
    assert repr(double.run_dlpack(None, {"x": values(5, 2)})[0]) == "fuseline.Tensor(f32[5, 2])"


def test_capsules_that_nobody_takes_are_freed(double):
    [y] = double.run_dlpack(None, {"x": values(5, 2)})
    before = sys.getrefcount(y)
    for version in [None, (1, 0)]:
        y.__dlpack__(max_version=version)
    assert sys.getrefcount(y) == before
    with pytest.raises(BufferError):
        y.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        y.__dlpack__(copy=True)


def test_a_tensor_is_an_array_and_an_input(double):
    [y] = double.run_dlpack(None, {"x": values(5, 2)})
    assert (np.asarray(y) == 2 * values(5, 2)).all()
    assert np.asarray(y, np.float64).dtype == np.float64
    assert (double.run(None, {"x": y})[0] == 4 * values(5, 2)).all()


def test_bf16_by_ml_dtypes_and_without(monkeypatch):
    session = fuseline.InferenceSession(models.typed(models.BF16))
    x = values(3, 2).astype(ml_dtypes.bfloat16)
    [y] = session.run(None, {"x": x})
    assert y.dtype == ml_dtypes.bfloat16 and (y.astype("f4") == 2 * values(3, 2)).all()
    assert session.get_inputs()[0].type == "tensor(bfloat16)"
    [tensor] = session.run_dlpack(None, {"x": x})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    [again] = session.run(None, {"x": tensor})
    assert isinstance(again, fuseline.Tensor) and again.dtype == "bf16"
    with pytest.raises(TypeError, match="install ml_dtypes"):
        again.numpy()
    with pytest.raises(fuseline.InvalidInput, match="install ml_dtypes"):
        session.run(None, {"x": values(3, 2)})


def test_scalars_come_and_go():
    session = fuseline.InferenceSession(models.counted())
    count = session.run(["count"], {"x": [[1.0, -1.0]]})[0]
    assert count.shape == () and count == 1 and count.dtype == np.int64


@pytest.mark.parametrize(
    "kind,dtype,numbers",
    [
        ("INT4", ml_dtypes.int4, [-8, 7, -1, 0, 3]),
        ("UINT4", ml_dtypes.uint4, [0, 15, 1, 7, 9]),
        ("FLOAT8E4M3FN", ml_dtypes.float8_e4m3fn, [0, 1.5, -448, 0.25, 2]),
        ("FLOAT8E5M2", ml_dtypes.float8_e5m2, [0, 1.5, -2, 0.25, 2]),
        ("BFLOAT16", ml_dtypes.bfloat16, [0, 1.5, -2, 0.25, 2]),
    ],
)
def test_narrow_types_come_and_go(kind, dtype, numbers):
    numbers = np.array(numbers, np.float32)
    [wide] = fuseline.InferenceSession(models.cast(kind, "FLOAT")).run(None, {"x": numbers.astype(dtype)})
    [narrow] = fuseline.InferenceSession(models.cast("FLOAT", kind)).run(None, {"x": numbers})
    assert wide.dtype == np.float32 and (wide == numbers).all()
    assert narrow.dtype == dtype and (narrow.astype(np.float32) == numbers).all()
