"""How commands stop: a long job finishes what it is at, saves, and ends; anything else ends at once, and quietly."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

AFTER_UPDATE = "stopping after this update; Ctrl-C again stops at once, without saving"
STDERR = 2
INTERRUPTED = 128 + signal.SIGINT  # the exit code


class Stopped(Exception):
    """A job was asked to stop; its state is saved."""


def stopping_at(stop: Callable[[], bool]) -> Callable[[], None]:
    """What to call between steps that `stop()` shall end, by raising Stopped."""

    def watch() -> None:
        if stop():
            raise Stopped

    return watch


class Signals:
    """The first SIGINT or SIGTERM asks the job to stop after its update; another one ends it at once.

    words: what the first one is answered with, at once, on standard error.
    """

    def __init__(self, words: str = "") -> None:
        self.words, self.received = words, 0

    def receive(self, number: int, frame: FrameType | None) -> None:
        if self.words and not self.received:
            with suppress(OSError):  # not by `print`, which this may have interrupted: it cannot be entered twice
                os.write(STDERR, f"\n{self.words}\n".encode())
        self.received = number
        signal.signal(number, signal.SIG_DFL)

    def __call__(self) -> bool:
        return self.received > 0


@contextmanager
def listening(words: str = "") -> Iterator[Signals]:
    """Inside, signals are heard; afterwards they mean what they meant before."""
    signals = Signals(words)
    before = {number: signal.signal(number, signals.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Interrupt:
    """Ctrl-C for a process that has nothing to save: KeyboardInterrupt, so that what is half-written is removed.

    While modules are imported it ends the process, because their C code may turn that exception into others, or lose
    it. So does a second one.
    """

    def __init__(self) -> None:
        self.received = False

    def receive(self, number: int, frame: FrameType | None) -> None:
        if self.received or is_importing(frame):
            os._exit(INTERRUPTED)
        self.received = True
        raise KeyboardInterrupt

    def lost(self, exception: "sys.UnraisableHookArgs") -> None:
        """A `sys.unraisablehook`: nobody above has seen this exception, which came where none can be raised."""
        if self.received:
            os._exit(INTERRUPTED)
        sys.__unraisablehook__(exception)


def is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def leave(code: int) -> int:
    """End this process at once if it is not the first of several under torchrun; the exit code otherwise.

    Threads of torch's process group may still let go of tensors while the interpreter goes down, and abort it. The
    first process has files to close; the others have nothing to lose.
    """
    if os.environ.get("RANK", "0") != "0":
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def as_process(command: Callable[[], int]) -> int:
    """The exit code of a command that has this process to itself; Ctrl-C ends it with 130, without a word."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # whoever started it does not want it heard
        return command()
    interrupt = Interrupt()
    sys.unraisablehook = interrupt.lost
    signal.signal(signal.SIGINT, interrupt.receive)
    try:
        return command()
    except BaseException:
        if interrupt.received:  # whatever has become of it on its way
            return INTERRUPTED
        raise
