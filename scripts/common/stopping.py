"""How commands stop: a long job finishes its update, saves and ends; any other ends at once, without a traceback."""

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

AFTER_UPDATE = "stopping after this update; Ctrl-C again stops at once, without saving"
STDOUT, STDERR = 1, 2
INTERRUPTED = 128 + signal.SIGINT  # the exit code
UNREAD = 128 + signal.SIGPIPE  # the exit code


class Stopped(Exception):
    """A job was asked to stop; its state is saved."""


def stopping_at(stop: Callable[[], bool]) -> Callable[[], None]:
    """Make a function to call between steps, which raises Stopped once `stop()` is true."""

    def watch() -> None:
        if stop():
            raise Stopped

    return watch


class Signals:
    """A handler of SIGINT and SIGTERM: the first asks the job to stop after its update, another ends it at once.

    words: printed on standard error as soon as the first one comes.
    """

    def __init__(self, words: str = "") -> None:
        self.words, self.received = words, 0

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Note a signal, answer the first one, and let the next end the process."""
        if self.words and not self.received:
            with suppress(OSError):  # not by `print`, which this may have interrupted: it cannot be entered twice
                os.write(STDERR, f"\n{self.words}\n".encode())
        self.received = number
        signal.signal(number, signal.SIG_DFL)

    def __call__(self) -> bool:
        """Return whether a signal has come."""
        return self.received > 0


@contextmanager
def listening(words: str = "") -> Iterator[Signals]:
    """Handle SIGINT and SIGTERM by `Signals`, and restore the former handlers afterwards."""
    signals = Signals(words)
    before = {number: signal.signal(number, signals.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Interrupt:
    """A handler of Ctrl-C for a process that has nothing to save.

    It raises KeyboardInterrupt, so that half-written files are removed. While modules are imported it ends the process
    instead, because their C code may turn that exception into others, or lose it; so does a second Ctrl-C.
    """

    def __init__(self) -> None:
        self.received = False

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt; end the process if that is not safe, or has not helped."""
        if self.received or is_importing(frame):
            os._exit(INTERRUPTED)
        self.received = True
        raise KeyboardInterrupt

    def lost(self, exception: "sys.UnraisableHookArgs") -> None:
        """End the process if Ctrl-C came where no exception can be raised; this is a `sys.unraisablehook`."""
        if self.received:
            os._exit(INTERRUPTED)
        sys.__unraisablehook__(exception)


def is_importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported in this frame or below it."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def leave(code: int) -> int:
    """End this process at once if it is not the first of several under torchrun; otherwise return the exit code.

    Threads of torch's process group may still free tensors while the interpreter shuts down, and abort it. The
    first process has files to close; the others have nothing to lose.
    """
    if os.environ.get("RANK", "0") != "0":
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def interruptible(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; Ctrl-C silently ends it with 130."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # whoever started us wants it ignored
        return command()
    interrupt = Interrupt()
    sys.unraisablehook = interrupt.lost
    signal.signal(signal.SIGINT, interrupt.receive)
    try:
        return command()
    except BaseException:
        if interrupt.received:  # whatever the exception has turned into on its way
            return INTERRUPTED
        raise


def unread_streams() -> list[int]:
    """Return which of standard output and error go to a pipe that nobody reads any more."""
    poll = select.poll()
    for stream in (STDOUT, STDERR):
        poll.register(stream, 0)
    return [stream for stream, event in poll.poll(0) if event & (select.POLLERR | select.POLLHUP)]


def silence(stream: int) -> None:
    """Let nobody get what is still written to a stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def flush_output() -> None:
    """Write out what was printed, which the interpreter would do in the end, with a traceback where it cannot."""
    try:
        print(end="", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        silence(STDOUT)
        print(f"geonpg: cannot write to standard output: {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None


def as_process(command: Callable[[], int]) -> int:
    """Run a command that has this process to itself, and return its exit code.

    It ends silently with 130 after Ctrl-C, and with 141 if whoever reads its output leaves, as `head` does.
    """
    try:
        try:
            return interruptible(command)
        finally:
            flush_output()
    except BrokenPipeError:
        if not (streams := unread_streams()):  # another pipe, such as that to a process of our own
            raise
        for stream in streams:
            silence(stream)
        return UNREAD
