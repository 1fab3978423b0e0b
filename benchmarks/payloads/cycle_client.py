"""A client of a coordinator for load: raw HTTP over one connection, told what to do on stdin."""

import http.client
import json
import sys
import time
from hashlib import sha256
from typing import Any

JSON = {"Content-Type": "application/json"}


class Client:
    """Counts its calls, so that no two of its uploads have the same bytes."""

    def __init__(self, port: int, node_id: str) -> None:
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.node_id = node_id
        self.number = 0
        self.leases: list[str] = []
        self.times: dict[str, list[float]] = {}

    def call(self, name: str, method: str, path: str, body: bytes, headers: dict[str, str]) -> Any:
        began = time.monotonic()
        self.http.request(method, f"/v1alpha1{path}", body, headers)
        answer = self.http.getresponse()
        content = answer.read()
        self.times.setdefault(name, []).append(time.monotonic() - began)
        if answer.status != 200:
            raise SystemExit(f"{name}: {answer.status} {content[:300]!r}")
        return json.loads(content)

    def claim(self) -> dict[str, Any]:
        self.number += 1
        wanted = {"node_id": self.node_id, "claim_id": f"{self.node_id}-{self.number}"}
        lease: dict[str, Any] = self.call(
            "claim", "POST", "/leases/claim", json.dumps(wanted).encode(), JSON
        )
        return lease

    def hold(self) -> None:
        self.leases.append(self.claim()["lease_id"])

    def beat(self) -> None:
        lease_id = self.leases[self.number % len(self.leases)]
        self.number += 1
        self.call("heartbeat", "POST", f"/attempts/{lease_id}/heartbeat", b'{"step": 1}', JSON)

    def cycle(self) -> None:
        lease = self.claim()
        attempt = f"/attempts/{lease['lease_id']}"
        self.call("heartbeat", "POST", f"{attempt}/heartbeat", b'{"step": 1}', JSON)
        data = f'{{"loss": 0.25, "from": "{self.node_id}-{self.number}"}}\n'.encode()
        key = f"{lease['output_prefix']}/metrics.json"
        self.call("upload", "PUT", f"/artifacts/{key}", data, {})
        outputs = [{"path": "metrics.json", "key": key, "sha256": sha256(data).hexdigest()}]
        body = json.dumps({"outputs": outputs, "step": 1}).encode()
        done = self.call("complete", "POST", f"{attempt}/complete", body, JSON)
        if not done["accepted"]:
            raise SystemExit(f"not accepted: {done}")


def main() -> None:
    client = Client(int(sys.argv[1]), sys.argv[2])
    for line in sys.stdin:
        told = json.loads(line)
        client.times.clear()
        client.http.close()
        client.http.connect()
        begun = time.monotonic()
        for _ in range(told["count"]):
            getattr(client, told["do"])()
        print(json.dumps([begun, time.monotonic(), client.times]), flush=True)


if __name__ == "__main__":
    main()
