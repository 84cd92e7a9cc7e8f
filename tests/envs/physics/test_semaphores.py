"""Semaphores: nobody passes before a post, and one waiter passes for each."""

import ctypes
import threading

from geonpg.envs.physics.semaphores import FOREVER, NOW, Semaphore, look_function, post_function, wait_function

FORM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def passes(semaphore: Semaphore) -> bool:
    return FORM(look_function())(semaphore.address, NOW) == 0


def test_as_many_pass_as_were_posted() -> None:
    one, other = Semaphore(), Semaphore()
    assert not passes(one)
    for _ in range(3):
        one.post()
    FORM(post_function())(one.address, 0)  # as compiled code does
    assert [passes(one) for _ in range(5)] == [True] * 4 + [False]
    assert not passes(other), "another one is not touched"


def test_a_waiter_waits_for_the_post() -> None:
    semaphore, passed = Semaphore(), threading.Event()

    def wait() -> None:
        while FORM(wait_function())(semaphore.address, FOREVER) != 0:
            pass
        passed.set()

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    assert not passed.wait(0.05)
    semaphore.post()
    assert passed.wait(5)
    waiter.join(5)
    assert not passes(semaphore)
