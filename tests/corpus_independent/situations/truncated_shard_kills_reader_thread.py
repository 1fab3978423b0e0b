"""A gzip shard that ends too early kills the reader thread; the main one finds its queue empty."""

import gzip
import json
import queue
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

batches: "queue.Queue[str]" = queue.Queue()


def lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt") as shard:
        yield from shard


def read_shards(folder: Path) -> None:
    for path in sorted(folder.glob("shard-*.jsonl.gz")):
        for line in lines(path):
            batches.put(line)


with tempfile.TemporaryDirectory(prefix="corpus-") as name:
    folder = Path(name)
    for number in range(3):
        rows = "".join(json.dumps({"id": i, "text": f"row {i * 7919}"}) + "\n" for i in range(500))
        (folder / f"shard-{number:05d}.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    last = folder / "shard-00002.jsonl.gz"
    last.write_bytes(last.read_bytes()[:900])
    threading.Thread(target=read_shards, args=(folder,), name="shard-reader", daemon=True).start()
    seen = 0
    while seen < 1500:
        batches.get(timeout=1.0)
        seen += 1
        if seen % 250 == 0:
            print(f"{seen} of 1500 rows", flush=True)
