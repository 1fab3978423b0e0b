"""A signal that reaches another thread of the process is obeyed too, whatever the main one does."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

DELIVER = """
import signal, sys, threading
ready = threading.Event()
def deliver():
    ready.wait()
    while "wait" not in str(sys._current_frames()[threading.main_thread().ident].f_code.co_name):
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
threading.Thread(target=deliver, daemon=True).start()
"""
WORKER = """
from flashruntime.worker.agent import stop_on_signals
from flashruntime.worker.control import StopRequest
stop = StopRequest(5.0)
stop_on_signals(stop)
with stop.changed:
    ready.set()
    stop.changed.wait_for(lambda: stop.requested)
"""
RUN = """
from unittest.mock import Mock
from flashruntime.sdk.run import Run
def interrupt(*_): raise KeyboardInterrupt
signal.signal(signal.SIGTERM, interrupt)
ready.set()
try: Run(Mock(), Mock(), threading.Event()).wait()
except KeyboardInterrupt: pass
"""


@pytest.mark.parametrize("waits", [WORKER, RUN])
def test_a_signal_ends_a_wait_of_the_main_thread(waits: str) -> None:
    subprocess.run([sys.executable, "-c", DELIVER + waits], check=True, timeout=20)
