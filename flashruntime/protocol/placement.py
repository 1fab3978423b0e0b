"""Where a task may run: what it asks of a node, and what a node says that it has."""

from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError

from flashruntime.protocol.base import OpenModel, WireModel

MAX_LABELS = 64
MAX_CPUS = 4096
MAX_ACCELERATORS = 1024
LABEL_KEY = r"^[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$"
LABEL_VALUE = r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$"
LabelKey = Annotated[str, StringConstraints(pattern=LABEL_KEY)]
LabelValue = Annotated[str, StringConstraints(pattern=LABEL_VALUE)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=MAX_LABELS)]
Cpus = Annotated[float, Field(ge=0, le=MAX_CPUS)]
MemoryBytes = Annotated[int, Field(strict=True, ge=0, le=2**50)]
Accelerators = Annotated[int, Field(strict=True, ge=0, le=MAX_ACCELERATORS)]


MAX_IMPORTS = 64
IMPORT_WORD = r"^[A-Za-z_][A-Za-z0-9_.]{0,127}:[A-Za-z0-9_,]{0,1024}$"
Imports = Annotated[
    list[Annotated[str, StringConstraints(pattern=IMPORT_WORD)]], Field(max_length=MAX_IMPORTS)
]


class Resources(WireModel):
    """Cores, bytes of memory and accelerators; what is 0 is not asked for.

    They are counted when tasks are placed; nothing limits a process to what its task asks for.
    """

    cpus: Cpus = 0
    memory_bytes: MemoryBytes = 0
    accelerators: Accelerators = 0


class PlacedParameters(WireModel):
    """What each task of a job asks of the node that runs it; `node_selector` are its labels."""

    resources: Resources = Resources()
    node_selector: Labels = {}


class NodeCapabilities(OpenModel):
    """What a node declares: tasks at once, resources of all of them together, and its labels.

    What is not declared is not there.
    """

    workloads: list[str] = []
    slots: Annotated[int, Field(ge=1, le=MAX_CPUS)] = 1
    cpus: Cpus = 0
    memory_bytes: MemoryBytes = 0
    accelerators: Accelerators = 0
    labels: Labels = {}


def capabilities_of(declared: Any) -> NodeCapabilities:
    """Return what a registration declares; one that cannot be read declares nothing."""
    try:
        return NodeCapabilities.model_validate(declared or {})
    except ValidationError:
        return NodeCapabilities()
