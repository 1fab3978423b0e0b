# A sweep by hand: one subprocess after another, the best result picked from their files.
import json
import subprocess
import sys
from pathlib import Path

results = []
for number in range(8):
    folder = Path(f"trial-{number}")
    folder.mkdir()
    lr = 0.01 * (number + 1)
    script = Path("trial.py").absolute()
    subprocess.run([sys.executable, script, "--lr", str(lr)], cwd=folder, check=True)
    metrics = json.loads((folder / "metrics.json").read_text())
    results.append({"lr": lr, **metrics})
best = min(results, key=lambda result: result["loss"])
print("finished", best)
