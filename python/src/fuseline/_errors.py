"""What goes wrong, told apart: your model or input, our gap, a limit, the machine's end, our bug."""

from __future__ import annotations


class Error(Exception):
    """Everything that Fuseline raises about models and runs.

    ``str(error)`` names the place in the model; ``message`` is the sentence without it, and ``path`` the places, outermost first:

    >>> try:
    ...     fuseline.InferenceSession("broken.onnx")
    ... except fuseline.Error as error:
    ...     print(error.path, error.message)
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.message: str = text
        self.path: list[str] = []


class Invalid(Error, ValueError):
    """The model or an input is wrong."""


class InvalidModel(Invalid):
    """The model is wrong: a broken file, shapes that do not fit."""


class InvalidInput(Invalid):
    """What a model was run with is wrong: a name, an element type, a shape, a value."""


class NeedsValue(Invalid):
    """The structure of the model hangs on values or sizes that are not known or do not agree."""


class Unsupported(Error, NotImplementedError):
    """The model is right, but asks for something that Fuseline does not do yet."""


class Limit(Error):
    """More memory, loop trips, text, nodes, nesting or time than a model may use; see ``max_memory`` and the like of ``InferenceSession``."""


class Exhausted(Error, MemoryError):
    """The machine has no more of what that takes: memory, threads."""


class Bug(Error):
    """An invariant of Fuseline does not hold. Please report it together with the model."""
