"""No number that a caller sends is larger than what a ledger, or a reader of JSON, can hold."""

from typing import get_args

import pytest
from pydantic import BaseModel, ValidationError

from flashruntime.protocol.checkpoints import CommitRequest, Manifest, PartsRequest
from flashruntime.protocol.jobs import Checkpoints, CommandParameters
from flashruntime.protocol.nodes import NodeHeartbeat, NodeRegistration
from flashruntime.protocol.tasks import (
    ClaimRequest,
    CompleteRequest,
    FailRequest,
    HeartbeatRequest,
)

SENT: tuple[type[BaseModel], ...] = (
    Checkpoints, ClaimRequest, CommandParameters, CommitRequest, CompleteRequest,
    FailRequest, HeartbeatRequest, Manifest, NodeHeartbeat, NodeRegistration, PartsRequest,
)  # fmt: skip


def numbers(model: type[BaseModel]) -> list[str]:
    fields = model.model_fields.items()
    return [n for n, field in fields if int in (field.annotation, *get_args(field.annotation))]


@pytest.mark.parametrize("model", SENT, ids=lambda model: model.__name__)
def test_a_number_beyond_what_can_be_stored_is_refused(model: type[BaseModel]) -> None:
    for name in numbers(model):
        for value in (2**63, -(2**63) - 1, 10**30):
            with pytest.raises(ValidationError) as caught:
                model.model_validate({name: value})
            assert name in [error["loc"][0] for error in caught.value.errors()], (name, value)


def test_the_numbers_of_calls_are_found() -> None:
    assert {"step", "resumed_from"} <= set(numbers(CompleteRequest))
