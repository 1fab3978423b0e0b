"""The thread that saves: what it leaves to the training."""

import os
import threading

from flashruntime.checkpoint.snapshot import Saver


def test_a_save_is_less_urgent_than_the_thread_that_asked_for_it() -> None:
    """Also where that one is nice already, and the user may do anything."""
    seen: list[int] = []

    def urgency() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def train() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, urgency() + 3))
        seen.append(urgency())
        saver = Saver()
        saver.start(lambda: seen.append(urgency()), nice=2)
        saver.wait()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen[1] == min(19, seen[0] + 2)
