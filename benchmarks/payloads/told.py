"""`told.py SCRIPT ...`: tells whoever wants to kill it where it is, then is SCRIPT."""

import json
import os
import runpy
import sys
from pathlib import Path

place = Path(os.environ["BENCH_PIDS"]) / f"{os.environ['FLASHML_ATTEMPT_ID']}.json"
whole = {
    "pid": os.getpid(),
    "attempt_id": os.environ["FLASHML_ATTEMPT_ID"],
    "ckpt_dir": os.environ["FLASHML_CKPT_DIR"],
    "restart": int(os.environ["FLASHML_RESTART_COUNT"]),
}
scratch = place.with_suffix(".tmp")
scratch.write_text(json.dumps(whole), encoding="utf-8")
scratch.replace(place)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
