"""Settings from the environment."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from flashruntime.config import CoordinatorSettings, KeepingSettings, WorkerSettings
from flashruntime.errors import ConfigError
from flashruntime.leases.journal import Journal

NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def test_an_empty_environment_gives_data_below_the_current_directory() -> None:
    settings = CoordinatorSettings.from_env({})
    assert settings.ledger_dir == Path.cwd() / "flashruntime-data/ledger"
    assert settings.artifact_dir == Path.cwd() / "flashruntime-data/artifacts"


def test_an_empty_variable_counts_as_unset() -> None:
    empty = {"FLASHML_LEDGER_DIR": "", "FLASHML_MAX_ARTIFACT_BYTES": "", "FLASHML_NOTICE_S": ""}
    assert CoordinatorSettings.from_env(empty) == CoordinatorSettings.from_env({})
    assert WorkerSettings.from_env(empty).notice_s == 20.0


def test_given_values_are_taken() -> None:
    settings = WorkerSettings.from_env(
        {
            "FLASHML_COORDINATOR_URL": "http://c:8000/",
            "FLASHML_CHECKPOINT_ROOT": "/ck",
            "FLASHML_WORK_DIR": "/w",
            "FLASHML_NODE_ID": "n-1",
            "FLASHML_NOTICE_S": "0.5",
        }
    )
    assert settings == WorkerSettings("http://c:8000", Path("/ck"), Path("/w"), "n-1", 0.5)


@pytest.mark.parametrize("host", ["lab pc/№1 (new)", "", "x" * 255, "-._"])
def test_171_any_host_name_makes_a_valid_node_id_of_its_own(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    first, second = (WorkerSettings.from_env({}).node_id for _ in range(2))
    assert NODE_ID.fullmatch(first)
    assert first != second


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLASHML_COORDINATOR_URL", "coordinator:8000"),
        ("FLASHML_COORDINATOR_URL", "http://c:8000/?x=1"),
        ("FLASHML_NOTICE_S", "-1"),
        ("FLASHML_NOTICE_S", "nan"),
        ("FLASHML_NOTICE_S", "1e9"),
        ("FLASHML_NODE_ID", "a b"),
        ("FLASHML_NODE_ID", "../x"),
        ("FLASHML_WORK_DIR", "a\0b"),
    ],
)
def test_a_wrong_worker_setting_is_named_with_its_value(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        WorkerSettings.from_env({name: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("value", ["0", "-5", "1e6", "many", "٣", "9" * 30])
def test_a_wrong_size_limit_is_named_with_its_value(value: str) -> None:
    with pytest.raises(ConfigError, match="FLASHML_MAX_ARTIFACT_BYTES"):
        CoordinatorSettings.from_env({"FLASHML_MAX_ARTIFACT_BYTES": value})


def test_what_is_kept_has_settings_of_which_0_means_no_bound() -> None:
    names = {
        "FLASHML_RETENTION_DAYS": "retention_days",
        "FLASHML_RETENTION_NODE_DAYS": "retention_node_days",
        "FLASHML_MAX_STORE_BYTES": "max_store_bytes",
        "FLASHML_MAX_JOB_BYTES": "max_job_bytes",
        "FLASHML_MAX_LOG_BYTES": "max_log_bytes",
        "FLASHML_SCRUB_BYTES_PER_S": "scrub_bytes_per_s",
    }
    assert CoordinatorSettings.from_env({}).keeping == KeepingSettings()
    for name, field in names.items():
        keeping = CoordinatorSettings.from_env({name: "7"}).keeping
        assert keeping == replace(KeepingSettings(), **{field: 7})
        for wrong in ("-1", "1.5", "many"):
            with pytest.raises(ConfigError, match=name):
                CoordinatorSettings.from_env({name: wrong})
        if name == "FLASHML_MAX_LOG_BYTES":
            with pytest.raises(ConfigError, match=name):
                CoordinatorSettings.from_env({name: "0"})
        else:
            assert getattr(CoordinatorSettings.from_env({name: "0"}).keeping, field) == 0
    with pytest.raises(ConfigError, match="FLASHML_RETENTION_DAYS=36501 must be at most 36500"):
        CoordinatorSettings.from_env({"FLASHML_RETENTION_DAYS": "36501"})


def test_the_journal_of_the_ledger_is_wal_or_delete() -> None:
    assert CoordinatorSettings.from_env({}).ledger_journal is Journal.WAL
    named = CoordinatorSettings.from_env({"FLASHML_LEDGER_JOURNAL": "delete"})
    assert named.ledger_journal is Journal.DELETE
    with pytest.raises(ConfigError, match=r"FLASHML_LEDGER_JOURNAL='off'.*wal.*delete"):
        CoordinatorSettings.from_env({"FLASHML_LEDGER_JOURNAL": "off"})


def test_a_coordinator_is_closed_unless_told_otherwise() -> None:
    access = CoordinatorSettings.from_env({}).access
    assert (access.needs_token, access.allow_open, access.allowed_hosts) == (False, False, set())
    told = {
        "FLASHML_ALLOW_OPEN": "1",
        "FLASHML_ALLOWED_HOSTS": "Coordinator, flash.example ::1",
    }
    opened = CoordinatorSettings.from_env(told).access
    assert opened.allow_open
    assert opened.allowed_hosts == {"coordinator", "flash.example", "::1"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLASHML_ALLOW_OPEN", "sure"),
        ("FLASHML_ALLOWED_HOSTS", "coordinator:8000"),
        ("FLASHML_ALLOWED_HOSTS", "http://coordinator"),
        ("FLASHML_ALLOWED_HOSTS", "*.example.org"),
        ("FLASHML_MAX_REQUESTS_PER_S", "0"),
        ("FLASHML_MAX_OPEN_REQUESTS", "many"),
    ],
)
def test_a_wrong_rule_of_access_is_named_with_its_value(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        CoordinatorSettings.from_env({name: value})
    assert value in str(caught.value)


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    for url in ("http://me:secret@c:8000", "http://secret@c", "https://a:b:secret@c/x"):
        with pytest.raises(ConfigError, match="FLASHML_TOKEN") as caught:
            WorkerSettings.from_env({"FLASHML_COORDINATOR_URL": url})
        assert "secret" not in str(caught.value)
