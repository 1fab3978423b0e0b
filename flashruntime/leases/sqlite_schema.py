"""Tables and indexes of the SQLite ledger."""

SCHEMA_VERSION = 3
# What leads from each older version to the one after it.
UPGRADES = {
    1: "ALTER TABLE tasks ADD COLUMN same_run INTEGER NOT NULL DEFAULT 0",
    2: "CREATE INDEX IF NOT EXISTS jobs_open ON jobs (seq) WHERE state IN ('PENDING','RUNNING')",
}

SCHEMA = """
CREATE TABLE schema_version (version INTEGER NOT NULL);

CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    created_at TEXT NOT NULL,
    finished_at TEXT,
    lease_ns INTEGER NOT NULL,
    max_errors INTEGER NOT NULL,
    output_prefix TEXT NOT NULL,
    idempotency_key TEXT UNIQUE,
    request_digest TEXT NOT NULL,
    pending INTEGER NOT NULL,
    leased INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    cancelled INTEGER NOT NULL
);
CREATE INDEX jobs_open ON jobs (seq) WHERE state IN ('PENDING','RUNNING');

CREATE TABLE specs (job_id TEXT PRIMARY KEY, spec TEXT NOT NULL);

CREATE TABLE tasks (
    task_id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL,
    job_seq INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    state TEXT NOT NULL,
    lease_id TEXT,
    holder TEXT,
    attempts INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    loss_run INTEGER NOT NULL,
    best_step INTEGER NOT NULL,
    not_before_ns INTEGER NOT NULL,
    backoff_ns INTEGER NOT NULL,
    avoid_node TEXT,
    last_failure TEXT,
    reason TEXT,
    result TEXT,
    same_run INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE UNIQUE INDEX tasks_of_job ON tasks (job_seq, idx);
CREATE INDEX tasks_ready ON tasks (job_seq, idx)
    WHERE state = 'PENDING' AND not_before_ns = 0;
CREATE INDEX tasks_waiting ON tasks (not_before_ns, job_seq, idx)
    WHERE state = 'PENDING' AND not_before_ns > 0;
CREATE INDEX tasks_waiting_of_job ON tasks (job_seq, not_before_ns, idx)
    WHERE state = 'PENDING' AND not_before_ns > 0;

CREATE TABLE payloads (task_id TEXT PRIMARY KEY, payload TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE leases (
    lease_id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    session_id TEXT,
    claim_id TEXT,
    attempt_number INTEGER NOT NULL,
    state TEXT NOT NULL,
    lease_ns INTEGER NOT NULL,
    deadline_ns INTEGER NOT NULL,
    output_prefix TEXT NOT NULL,
    step INTEGER,
    metrics TEXT,
    refused TEXT NOT NULL,
    decision TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX leases_of_claim ON leases (node_id, claim_id) WHERE claim_id IS NOT NULL;
CREATE INDEX leases_deadline ON leases (deadline_ns, lease_id) WHERE state = 'LIVE';
CREATE INDEX leases_of_node ON leases (node_id) WHERE state = 'LIVE';

CREATE TABLE events (
    event_id INTEGER PRIMARY KEY AUTOINCREMENT,
    type TEXT NOT NULL,
    job_id TEXT,
    task_id TEXT,
    lease_id TEXT,
    at TEXT NOT NULL,
    mono_ns INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX events_of_job ON events (job_id, event_id);

CREATE TABLE objects (
    key TEXT PRIMARY KEY,
    sha256 TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    accepted INTEGER NOT NULL,
    job_id TEXT,
    task_id TEXT,
    path TEXT
) WITHOUT ROWID;
CREATE INDEX objects_of_job ON objects (job_id, key) WHERE accepted = 1;

CREATE TABLE nodes (
    node_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    hostname TEXT,
    registered_at TEXT NOT NULL,
    registration TEXT NOT NULL
) WITHOUT ROWID;
"""
