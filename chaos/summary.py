"""What the console shows of runs that are over."""

from collections.abc import Sequence

from chaos.console import Screen
from chaos.judge import Judgement
from chaos.report import told
from chaos.runner import Result

HEADS = ("experiment", "verdict", "landed", "mttd s", "mttr s", "goodput ≤", "wall s", "run dir")
LEGEND = (
    "mttd: from the fault until the lost task could be claimed again; mttr: until a later attempt "
    "made its first step; goodput: useful / executed steps, at most this, for it counts the steps "
    "heard of"
)


def show(results: Sequence[Result], screen: Screen) -> None:
    """Show what is not as it should be, one line for each run, and what the columns mean."""
    for result in results:
        _explain(result.judgement, screen)
    screen.table(HEADS, [_row(result) for result in results])
    screen.say(LEGEND)
    for result in results:
        screen.say(f"open {result.folder / 'report.html'}")


def show_judgement(judgement: Judgement, screen: Screen) -> None:
    """Show what each invariant says of a saved run, and the verdict."""
    rows = [(found.name, str(found.verdict), found.detail) for found in judgement.findings]
    if rows:
        screen.table(("invariant", "verdict", "why"), rows)
    _say_reason(judgement, screen)
    screen.say(f"{judgement.experiment}, seed {judgement.seed}: {judgement.outcome}")


def _row(result: Result) -> tuple[str, ...]:
    judgement, figures = result.judgement, result.judgement.figures
    landed = sum(fault["landed"] == "landed" for fault in judgement.faults)
    return (
        judgement.experiment,
        judgement.outcome,
        f"{landed}/{len(judgement.faults)}",
        told(figures.get("mttd_s")),
        told(figures.get("mttr_s")),
        told(figures.get("goodput")),
        f"{result.wall_s:.0f}",
        str(result.folder),
    )


def _explain(judgement: Judgement, screen: Screen) -> None:
    _say_reason(judgement, screen)
    for found in judgement.findings:
        if found.verdict != "valid":
            screen.say(f"{judgement.experiment}: {found.name} {found.verdict}: {found.detail}")


def _say_reason(judgement: Judgement, screen: Screen) -> None:
    if judgement.reason:
        screen.say(f"{judgement.experiment}: {judgement.reason}")
    for name, tail in judgement.log_tails.items():
        screen.say(f"the last lines of {name}:")
        for line in tail.splitlines():
            screen.say(f"  {line}")
