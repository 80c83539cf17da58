"""The numbers that seeded tensors stand for: what docs/structure-only-models.md says, in NumPy."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

MASK = np.uint64(0xFFFFFFFF)


def words(seed, count):
    """The first words of a stream: Philox-4x32-10, counter (block, 0), key `seed`."""
    blocks = np.arange((count + 3) // 4, dtype=np.uint64)
    counter = [blocks & MASK, blocks >> np.uint64(32), np.zeros_like(blocks), np.zeros_like(blocks)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * counter[0], np.uint64(0xCD9E8D57) * counter[2]
        high, low = (lambda x: x >> np.uint64(32)), (lambda x: x & MASK)
        counter = [high(b) ^ counter[1] ^ np.uint64(key[0]), low(b), high(a) ^ counter[3] ^ np.uint64(key[1]), low(a)]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(counter, axis=1).reshape(-1)[:count]


def draw(seed, low, high, dtype, dims):
    """A tensor of numbers between two bounds."""
    u = words(seed, int(np.prod(dims))).astype(np.float64) / 2**32
    floats = dtype.kind not in "biu"
    values = low + (high - low) * u if floats else np.minimum(np.floor(low + (high - low + 1) * u), high)
    return values.astype(dtype).reshape(dims)


def entries(tensor):
    """The entries of a seeded tensor's external data, or None if the tensor is not seeded."""
    found = {entry.key: entry.value for entry in tensor.external_data}
    return found if found.get("location", "").startswith("seeded:") else None


def fill(tensors):
    """Put numbers where there are seeds, so that any runtime takes the model."""
    for tensor in tensors:
        found = entries(tensor) if tensor.data_location == TensorProto.EXTERNAL else None
        if found:
            seed, dtype = int(found["location"].removeprefix("seeded:")), helper.tensor_dtype_to_np_dtype(tensor.data_type)
            values = draw(seed, float(found["low"]), float(found["high"]), np.dtype(dtype), list(tensor.dims))
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
