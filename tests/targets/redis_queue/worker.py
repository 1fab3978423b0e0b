"""Takes numbered tasks from a Redis list, works on each for a moment, and writes its result.

What a worker has taken lies in a list of its own until the result is there: after its death the
next process of that name puts it back. With LOSES=1 it is deliberately wrong: it pops tasks, so
that one which it had when it died is gone.
"""

import hashlib
import json
import os
import socket
import sys
import time
from pathlib import Path

from resp import Redis

ROUNDS = 2_500_000
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
TELL = """
local function tell(kind, task, attempt, data)
  redis.call('RPUSH', 'events', cjson.encode({type = kind, task = task, attempt = attempt,
    node = ARGV[1], mono_ns = ARGV[2], boot_id = ARGV[3], data = data}))
end
"""
CLAIM = (
    TELL
    + """
local task = ARGV[4] == '1' and redis.call('LPOP', 'queue')
  or ARGV[4] ~= '1' and redis.call('LMOVE', 'queue', 'working:' .. ARGV[1], 'LEFT', 'RIGHT')
if not task then return false end
local attempt = redis.call('HINCRBY', 'attempts', task, 1)
redis.call('HSET', 'holder', task, ARGV[1])
tell('LEASE_CLAIMED', task, attempt, {node_id = ARGV[1]})
return {task, attempt}
"""
)
DONE = (
    TELL
    + """
local task, attempt = ARGV[4], tonumber(ARGV[5])
redis.call('LREM', 'working:' .. ARGV[1], 1, task)
redis.call('HDEL', 'holder', task)
if redis.call('HSETNX', 'results', task, ARGV[6]) == 0 then
  tell('TASK_COMMIT_REFUSED', task, attempt, {})
  return 0
end
tell('TASK_COMMIT_ACCEPTED', task, attempt, {node_id = ARGV[1]})
if redis.call('HLEN', 'results') == tonumber(redis.call('GET', 'tasks')) then
  tell('JOB_SUCCEEDED', false, 0, {})
end
return 1
"""
)
RETURN = (
    TELL
    + """
local back = redis.call('LRANGE', 'working:' .. ARGV[1], 0, -1)
for _, task in ipairs(back) do
  tell('TASK_REQUEUED', task, tonumber(redis.call('HGET', 'attempts', task)), {reason = 'restart'})
  redis.call('LPUSH', 'queue', task)
end
redis.call('DEL', 'working:' .. ARGV[1])
local held = redis.call('HGETALL', 'holder')
for at = 1, #held, 2 do
  if held[at + 1] == ARGV[1] then redis.call('HDEL', 'holder', held[at]) end
end
return #back
"""
)


def say(event: str, **more: object) -> None:
    """Write a line of the log."""
    line = {"event": event, "mono_ns": time.monotonic_ns(), **more}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def result_of(task: str) -> str:
    """Return the result of a task, which takes a moment."""
    return hashlib.pbkdf2_hmac("sha256", task.encode(), b"queue", ROUNDS).hex()


def main() -> None:
    """Work for ever."""
    name, loses = socket.gethostname(), os.environ.get("LOSES", "0")
    redis = Redis(os.environ.get("REDIS", "redis"), 6379)

    def ask(script: str, *words: str | int) -> object:
        now = time.monotonic_ns()
        return redis("EVAL", script, 0, name, now, BOOT_ID, *words)

    redis("HSET", "workers", name, time.monotonic_ns())
    say("worker_started", returned=ask(RETURN))
    while True:
        claimed = ask(CLAIM, loses)
        if not isinstance(claimed, list):
            time.sleep(0.05)
            continue
        task, attempt = claimed
        say("claimed", task=task, attempt=attempt)
        accepted = ask(DONE, task, attempt, result_of(task))
        say("done", task=task, attempt=attempt, accepted=accepted)


if __name__ == "__main__":
    main()
