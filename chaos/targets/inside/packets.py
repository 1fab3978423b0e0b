"""The packet filter of the network namespace that this runs in.

Request: {"do": "drop", "chain", "flow": "in" | "out" | "both", "probability"}, {"do": "count",
"chain"} or {"do": "clear" | "list", "prefix"}. Answer: {"chains": names with that prefix, "seen",
"dropped"}, the counters None but for a chain that was counted.
"""

import subprocess
from typing import Any

HOOKS = {"in": ("INPUT",), "out": ("OUTPUT",), "both": ("INPUT", "OUTPUT")}
NOT_LOOPBACK = {"INPUT": ("!", "-i", "lo"), "OUTPUT": ("!", "-o", "lo")}
WAIT_S = "5"


def iptables(*words: str) -> str:
    """Return what the command printed; raise with its own words where it fails."""
    command = ["iptables", "-w", WAIT_S, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def chains(rules: str, prefix: str) -> list[str]:
    """Return the names with this prefix that `iptables -S` lists."""
    names = [line.split()[1] for line in rules.splitlines() if line.startswith("-N ")]
    return [name for name in names if name.startswith(prefix)]


def jumps(rules: str, prefix: str) -> list[list[str]]:
    """Return the rules of other chains that lead to those with this prefix."""
    lines = [line.split() for line in rules.splitlines() if line.startswith("-A ")]
    return [
        words[1:]
        for words in lines
        if not words[1].startswith(prefix)
        and "-j" in words
        and words[words.index("-j") + 1].startswith(prefix)
    ]


def counters(listing: str) -> tuple[int, int]:
    """Return packets (seen, dropped) of the two rules that `iptables -nvxL` lists."""
    rules = [line.split() for line in listing.splitlines()[2:] if line.strip()]
    dropped = sum(int(words[0]) for words in rules if words[2] == "DROP")
    seen = sum(int(words[0]) for words in rules if words[2] != "DROP")
    return seen, dropped


def drop(chain: str, flow: str, probability: float) -> None:
    """Count what comes by, then drop it or some of it; a chain that is there is made anew."""
    clear(chain)
    iptables("-N", chain)
    iptables("-A", chain)
    chance = ("-m", "statistic", "--mode", "random", "--probability", f"{probability:.4f}")
    iptables("-A", chain, *(chance if probability < 1 else ()), "-j", "DROP")
    for hook in HOOKS[flow]:
        iptables("-I", hook, "1", *NOT_LOOPBACK[hook], "-j", chain)


def clear(prefix: str) -> None:
    """Take away the chains with this prefix, and what leads to them first."""
    rules = iptables("-S")
    for words in jumps(rules, prefix):
        iptables("-D", *words)
    for name in chains(rules, prefix):
        iptables("-F", name)
        iptables("-X", name)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked and say which chains there are then."""
    asked = request["do"]
    seen = dropped = None
    if asked == "drop":
        drop(request["chain"], request["flow"], request["probability"])
    elif asked == "clear":
        clear(request["prefix"])
    prefix = request.get("chain") or request["prefix"]
    found = chains(iptables("-S"), prefix)
    if asked == "count" and found:
        seen, dropped = counters(iptables("-nvxL", request["chain"]))
    return {"chains": found, "seen": seen, "dropped": dropped}
