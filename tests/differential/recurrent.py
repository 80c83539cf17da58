"""LSTM, GRU and RNN in all their variants."""

import numpy as np

from net import Net, op

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS = [
    "Tanh",
    "Sigmoid",
    "Relu",
    "HardSigmoid",
    "Softsign",
    "Softplus",
    "LeakyRelu",
    "Elu",
    "ScaledTanh",
    "ThresholdedRelu",
    "Affine",
]
ALPHA = {
    "LeakyRelu": (0.1, None),
    "Elu": (0.7, None),
    "ThresholdedRelu": (0.3, None),
    "HardSigmoid": (0.25, 0.4),
    "ScaledTanh": (0.8, 0.9),
    "Affine": (0.5, 0.1),
}


@op("LSTM", "GRU", "RNN")
def recurrent(d, name):
    net = Net(d, d.pick([7, 14, 22]))
    t, b, i, h, g = d.size(5), d.size(3), d.int(1, 4), d.int(1, 4), GATES[name]
    direction = d.pick(["forward", "reverse", "bidirectional"])
    n = 2 if direction == "bidirectional" else 1
    layout = d.int(0, 1) if net.opset >= 14 and d.chance(0.3) else 0
    a = {"hidden_size": h}
    if direction != "forward" or d.chance():
        a["direction"] = direction
    if layout:
        a["layout"] = 1
    if d.chance(0.4):
        per = {"LSTM": 3, "GRU": 2, "RNN": 1}[name]
        functions = [d.pick(FUNCTIONS) for _ in range(per * n)]
        a["activations"] = functions
        # The numbers of one function follow those of the one before; where all are given, nobody has to guess.
        a["activation_alpha"] = [float(ALPHA[f][0]) for f in functions if f in ALPHA] or None
        a["activation_beta"] = [float(ALPHA[f][1]) for f in functions if f in ALPHA and ALPHA[f][1] is not None] or None
    if d.chance(0.3):
        a["clip"] = 0.6
    if name == "GRU" and d.chance():
        a["linear_before_reset"] = d.int(0, 1)
    if name == "LSTM" and d.chance(0.2):
        a["input_forget"] = 1
    half = lambda *shape: d.array(shape, "f4", -1, 1)  # noqa: E731
    x, state = half(t, b, i), half(n, b, h)
    if layout:
        x, state = x.swapaxes(0, 1), state.swapaxes(0, 1)
    lens = d.rng.integers(1, t + 1, b).astype("i4")
    inputs = [
        net.give(x, False),
        net.give(half(n, g * h, i)),
        net.give(half(n, g * h, h)),
        net.maybe(half(n, 2 * g * h)),
        net.maybe(lens, 0.4),
        net.maybe(state),
    ]
    outputs = [d.chance(0.8), True] + ([True] if name == "LSTM" else [])
    if name == "LSTM":
        inputs += [net.maybe(state * np.float32(0.5)), net.maybe(half(n, 3 * h), 0.3)]
    net.node(name, inputs, outputs, **a)
    return net
