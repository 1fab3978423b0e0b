"""Tokens: how a file of them is read, replaced and kept secret."""

import hashlib
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashruntime.config import AccessSettings, token_source
from flashruntime.credentials import PREFIX, Role, digest_of, is_token, new_token
from flashruntime.errors import ConfigError
from flashruntime.launch.environment import child_environment
from flashruntime.service.auth import LOOK_EVERY_S, TokenBook, parse_line, read_tokens

ALICE, POOL, NEXT = (PREFIX + letter * 43 for letter in "abc")


def digest(token: str) -> str:
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.chmod(mode)
    return part.replace(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lines = f"# tokens\n\noperator alice {digest(ALICE)}\nworker pool {digest(POOL)}\n"
    return write(tmp_path / "tokens", lines)


class Seconds:
    """Time that stands still until told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_token_is_random_and_has_the_form_that_is_asked_for() -> None:
    assert new_token() != new_token()
    assert is_token(new_token())


def test_a_token_stands_for_its_caller_and_no_other_text_does(file: Path) -> None:
    book = TokenBook(AccessSettings(tokens_file=file))
    alice = book.caller(ALICE)
    assert alice is not None
    assert (alice.name, alice.roles) == ("alice", {Role.OPERATOR})
    for wrong in ("", ALICE[:-1], ALICE + "x", digest(ALICE), NEXT, "\udcff", "é"):
        assert book.caller(wrong) is None


def test_a_worker_is_the_nodes_of_its_name_unless_its_line_says_which(file: Path) -> None:
    pool = TokenBook(AccessSettings(tokens_file=file)).caller(POOL)
    assert pool is not None
    assert [pool.may_be(name) for name in ("pool", "pool-7", "poole", "other", "*")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    named = parse_line(["worker", "a", digest(POOL), "nodes=gpu-*,cpu.1"]).caller
    assert [named.may_be(name) for name in ("gpu-3", "cpu.1", "a", "cpu-1")] == [
        True,
        True,
        False,
        False,
    ]


def test_every_token_is_compared_whichever_matches(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first match must not end the search: its time would tell which one it was."""
    import hmac

    compared: list[bytes] = []
    real = hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return real(one, other)

    book = TokenBook(AccessSettings(tokens_file=file))
    monkeypatch.setattr("hmac.compare_digest", counting)
    for token in (ALICE, POOL, NEXT):
        book.caller(token)
    assert len(compared) == 6
    assert {len(each) for each in compared} == {32}


def test_a_replaced_file_counts_without_a_restart(file: Path) -> None:
    clock = Seconds()
    book = TokenBook(AccessSettings(tokens_file=file), clock)
    assert book.caller(ALICE) is not None
    write(file, f"operator alice {digest(NEXT)}\n")
    clock.now += LOOK_EVERY_S
    assert book.caller(ALICE) is None
    assert book.caller(NEXT) is not None
    write(file, f"operator alice {digest(NEXT)}\noperator alice {digest(ALICE)}\n")
    clock.now += LOOK_EVERY_S
    assert book.caller(ALICE) is not None


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "operator alice\n",
        f"operator alice {digest(NEXT)}",
        f"root alice {digest(NEXT)}\n",
        f"operator alice {digest(NEXT)} nodes=*\n",
        f"worker pool {digest(NEXT)} nodes=\n",
        f"worker pool {digest(NEXT)} nodes=a/b\n",
        f"worker ../x {digest(NEXT)}\n",
        f"operator alice {digest(NEXT)[:-1]}\n",
        "operator alice short-secret\n",
        f"operator alice {digest(NEXT)}\nworker alice {digest(POOL)}\n",
        f"operator alice {digest(NEXT)}\noperator bob {digest(NEXT)}\n",
        "operator é x\n",
    ],
)
def test_a_broken_file_leaves_the_old_tokens_in_force_and_says_so(
    file: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Seconds()
    book = TokenBook(AccessSettings(tokens_file=file), clock)
    write(file, broken)
    with pytest.raises(ConfigError, match="FLASHML_TOKENS_FILE"):
        read_tokens(file)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            clock.now += LOOK_EVERY_S
            assert book.caller(ALICE) is not None
            assert book.caller(NEXT) is None
    (said,) = caplog.records
    assert "stay in force" in said.getMessage()
    for secret in (NEXT, digest(NEXT)[7:], "short-secret"):
        assert secret not in said.getMessage()


def test_a_file_that_is_gone_leaves_the_old_tokens_in_force(file: Path) -> None:
    clock = Seconds()
    book = TokenBook(AccessSettings(tokens_file=file), clock)
    file.unlink()
    clock.now += LOOK_EVERY_S
    assert book.caller(ALICE) is not None
    with pytest.raises(ConfigError, match="cannot be read"):
        TokenBook(AccessSettings(tokens_file=file))


@pytest.mark.parametrize(
    ("mode", "secret", "good"),
    [
        (0o600, ALICE, True),
        (0o640, ALICE, True),
        (0o644, ALICE, False),
        (0o644, digest(ALICE), True),
        (0o664, digest(ALICE), False),
        (0o606, digest(ALICE), False),
    ],
)
def test_a_file_that_others_could_read_or_change_is_refused(
    tmp_path: Path, mode: int, secret: str, good: bool
) -> None:
    file = write(tmp_path / "tokens", f"operator alice {secret}\n", mode)
    if good:
        assert read_tokens(file)[0].digest == digest_of(ALICE)
    else:
        with pytest.raises(ConfigError, match="chmod"):
            read_tokens(file)


@settings(max_examples=40)
@given(st.lists(st.text(min_size=1, max_size=80), max_size=6))
def test_any_words_are_a_token_line_or_refused_by_rule(words: list[str]) -> None:
    try:
        known = parse_line(words)
    except ValueError:
        return
    assert known.caller.roles


def test_one_token_in_the_environment_is_both_roles() -> None:
    settings = AccessSettings.from_env({"FLASHML_TOKEN": ALICE})
    caller = TokenBook(settings).caller(ALICE)
    assert caller is not None
    assert caller.roles == set(Role)
    assert caller.may_be("any")


def test_no_secret_is_shown_by_repr_or_in_an_error(file: Path) -> None:
    settings = AccessSettings.from_env({"FLASHML_TOKEN": ALICE, "FLASHML_TOKENS_FILE": str(file)})
    shown = [repr(settings), repr(read_tokens(file)), repr(token_source({"FLASHML_TOKEN": ALICE}))]
    for env in ({"FLASHML_TOKEN": "short-secret"}, {"FLASHML_TOKEN": f"{ALICE} "}):
        for read in (AccessSettings.from_env, token_source):
            with pytest.raises(ConfigError, match="FLASHML_TOKEN") as caught:
                read(env)
            shown.append(str(caught.value))
    for text in shown:
        for secret in (ALICE, repr(digest_of(ALICE)), digest(ALICE)[7:], "short-secret"):
            assert secret not in text


def test_a_callers_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = write(tmp_path / "token", f"{ALICE}\n")
    source = token_source({"FLASHML_TOKEN_FILE": str(file)})
    assert source() == ALICE
    write(file, NEXT)
    assert source() == NEXT
    write(file, "")
    assert source() == NEXT
    file.unlink()
    assert source() == NEXT


@pytest.mark.parametrize(("text", "mode"), [("", 0o600), ("a b", 0o600), (ALICE, 0o644)])
def test_a_callers_file_that_breaks_a_rule_is_refused_without_its_content(
    tmp_path: Path, text: str, mode: int
) -> None:
    file = write(tmp_path / "token", text, mode)
    with pytest.raises(ConfigError, match="FLASHML_TOKEN_FILE") as caught:
        token_source({"FLASHML_TOKEN_FILE": str(file)})
    assert not text or text not in str(caught.value)


def test_two_sources_of_one_token_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="both set"):
        token_source({"FLASHML_TOKEN": ALICE, "FLASHML_TOKEN_FILE": str(tmp_path / "x")})
    assert token_source({})() is None


def test_f15_a_launched_process_never_inherits_the_workers_token() -> None:
    inherited = {"FLASHML_TOKEN": ALICE, "FLASHML_TOKEN_FILE": "/run/t", "PATH": os.defpath}
    assert not {"FLASHML_TOKEN", "FLASHML_TOKEN_FILE"} & set(child_environment(inherited, {}, {}))
