"""The catalogue against a model of one chain: attempts come, lapse, come back late and restart."""

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flashruntime.errors import FlashError
from flashruntime.leases.checkpoint_rules import Offer
from flashruntime.leases.memory import MemoryStore
from flashruntime.protocol.checkpoints import TakenOver
from tests.unit.leases.conftest import World
from tests.unit.leases.test_checkpoint_catalogue import TASK, Catalogue, manifest, part

KEEP = 3
STEPS = st.integers(0, 12)
MOVES = st.one_of(
    st.tuples(st.sampled_from(["commit", "zombie", "announce"]), STEPS),
    st.tuples(st.sampled_from(["claim", "restart", "aside"]), st.just(0)),
)


class Model:
    """What the chain should hold: (step, attempt) of commits by their ids, and their order."""

    def __init__(self) -> None:
        self.chain: dict[str, tuple[int, int]] = {}
        self.aside: set[str] = set()

    def newest(self) -> str | None:
        good = [name for name in self.chain if name not in self.aside]
        return max(good, key=lambda name: self.chain[name], default=None)

    def commit(self, name: str, step: int, attempt: int, taken: int | None) -> None:
        cap = -1 if taken is None else taken
        for other, (at, by) in list(self.chain.items()):
            if by != attempt and at > cap and other not in self.aside:
                del self.chain[other]
        self.chain[name] = (step, attempt)
        older = [n for n in self.chain if n not in self.aside and self.chain[n][0] <= step]
        for surplus in sorted(older, key=lambda n: self.chain[n])[:-KEEP]:
            del self.chain[surplus]


class Play:
    """Makes the moves on a world and on the model, and compares."""

    def __init__(self) -> None:
        self.world = World(MemoryStore)
        self.world.submit()
        self.catalogue = Catalogue(self.world)
        self.model = Model()
        self.zombies: list[Any] = []
        self.announced: set[str] = set()
        self.lease: Any = None
        self.claim(0)

    def claim(self, _: int) -> None:
        if self.lease is not None:
            self.zombies.append(self.lease)
            self.world.lapse()
        self.lease = self.world.claim()
        name = self.model.newest()
        self.taken = name and TakenOver(step=self.model.chain[name][0], manifest_id=name)

    def commit(self, step: int) -> None:
        found = manifest(self.lease, step)
        took = self.taken or None
        attempt = self.lease.attempt_number
        before = found.manifest_id in self.model.chain
        try:
            self.offer(self.lease, found, took)
        except FlashError:
            assert before, "only what is there already may be refused"
            return
        if not before:
            self.model.commit(found.manifest_id, step, attempt, took and took.step)
            self.announced.clear()

    def offer(self, lease: Any, found: Any, took: Any) -> None:
        offer = Offer(found, found.model_dump_json(), took)
        self.world.manager.commit_checkpoint(TASK, lease.lease_id, offer)

    def zombie(self, step: int) -> None:
        for lease in self.zombies:
            before = self.catalogue.steps()
            with suppress(FlashError):
                self.offer(lease, manifest(lease, step), None)
            assert self.catalogue.steps() == before

    def announce(self, step: int) -> None:
        parts = [part(f"{self.lease.lease_id}/{step}"), part("frozen")]
        self.world.manager.announce_parts(TASK, self.lease.lease_id, parts)
        self.announced = {each.sha256 for each in parts}

    def aside(self, _: int) -> None:
        name = self.model.newest()
        if name is not None:
            call = self.world.manager.set_checkpoint_aside
            call(TASK, self.lease.lease_id, name, "no use")
            self.model.aside.add(name)

    def restart(self, _: int) -> None:
        self.world.restart()

    def check(self) -> None:
        found = self.world.manager.newest_checkpoint(TASK, ())
        assert (found and found.record.manifest_id) == self.model.newest()
        kept = self.world.manager.checkpoints(TASK).items
        good = {r.manifest_id: r for r in kept if r.set_aside is None}
        assert set(good) == set(self.model.chain) - self.model.aside
        needed = {part(f"{r.lease_id}/{r.step}").sha256 for r in good.values()}
        assert self.catalogue.needed() == needed | self.announced


@settings(max_examples=40, deadline=None)
@given(st.lists(MOVES, max_size=30))
def test_the_catalogue_is_one_chain_whatever_happens(moves: list[tuple[str, int]]) -> None:
    """No zombie adds to it, nothing set aside is offered, and only what it names is needed."""
    play = Play()
    for name, step in moves:
        getattr(play, name)(step)
        play.check()
