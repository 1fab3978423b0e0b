"""A task that takes a stated time: `sleep_task.py SECONDS`."""

import sys
import time

time.sleep(float(sys.argv[1]))
