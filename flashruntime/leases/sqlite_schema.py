"""Tables and indexes of the SQLite ledger."""

from flashruntime.leases.sqlite_checkpoints import CHECKPOINT_TABLES

SCHEMA_VERSION = 7
_SPOOL = """CREATE TABLE spool (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    sha256 TEXT NOT NULL,
    data BLOB NOT NULL
)"""
_READY_INDEX = """CREATE INDEX tasks_ready ON tasks (need, job_seq, idx)
    WHERE state = 'PENDING' AND not_before_ns = 0"""
_NEED_INDEX = """CREATE INDEX tasks_waiting_of_need ON tasks (need, not_before_ns, job_seq, idx)
    WHERE state = 'PENDING' AND not_before_ns > 0"""
_KEEPING = (
    """CREATE TABLE removals (
    job_seq INTEGER PRIMARY KEY,
    job_id TEXT NOT NULL UNIQUE,
    output_prefix TEXT NOT NULL,
    removed_at TEXT NOT NULL,
    done INTEGER NOT NULL
)""",
    "CREATE INDEX removals_open ON removals (job_seq) WHERE done = 0",
    "CREATE INDEX removals_done ON removals (removed_at) WHERE done = 1",
    """CREATE TABLE job_inputs (
    key TEXT NOT NULL,
    job_seq INTEGER NOT NULL,
    PRIMARY KEY (key, job_seq)
) WITHOUT ROWID""",
    "CREATE INDEX inputs_of_job ON job_inputs (job_seq)",
    """CREATE TABLE job_usage (
    job_id TEXT PRIMARY KEY,
    stored_bytes INTEGER NOT NULL
) WITHOUT ROWID""",
    """CREATE TABLE damaged (
    sha256 TEXT PRIMARY KEY,
    found_at TEXT NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID""",
    "CREATE TABLE marks (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE INDEX jobs_finished ON jobs (finished_at, seq) WHERE finished_at IS NOT NULL",
    "CREATE INDEX objects_of_digest ON objects (sha256)",
)
# What leads from each older version to the one after it, statement by statement.
UPGRADES: dict[int, tuple[str, ...]] = {
    1: ("ALTER TABLE tasks ADD COLUMN same_run INTEGER NOT NULL DEFAULT 0",),
    2: (
        *_KEEPING,
        """INSERT INTO job_usage SELECT job_id, sum(size_bytes) FROM objects
    WHERE accepted = 1 AND job_id IS NOT NULL GROUP BY job_id""",
        """INSERT OR IGNORE INTO job_inputs SELECT json_extract(input.value, '$.key'), jobs.seq
    FROM jobs JOIN specs USING (job_id),
    json_each(specs.spec, '$.spec.workload.parameters.inputs') AS input""",
    ),
    3: (_SPOOL,),
    4: (
        "ALTER TABLE jobs ADD COLUMN need TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE tasks ADD COLUMN need TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE nodes ADD COLUMN duty TEXT NOT NULL DEFAULT 'active'",
        "DROP INDEX tasks_ready",
        _READY_INDEX,
        _NEED_INDEX,
    ),
    5: (
        "ALTER TABLE tasks ADD COLUMN suspect_step INTEGER",
        "ALTER TABLE tasks ADD COLUMN failed_resume INTEGER",
        "ALTER TABLE tasks ADD COLUMN high_step INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE tasks ADD COLUMN recomputed INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE leases ADD COLUMN resumed_from INTEGER",
        "ALTER TABLE leases ADD COLUMN checkpoint_step INTEGER",
        *CHECKPOINT_TABLES,
    ),
    6: ("CREATE INDEX jobs_open ON jobs (seq) WHERE state IN ('PENDING','RUNNING')",),
}

SCHEMA = f"""
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
    cancelled INTEGER NOT NULL,
    need TEXT NOT NULL DEFAULT ''
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
    same_run INTEGER NOT NULL DEFAULT 0,
    need TEXT NOT NULL DEFAULT '',
    suspect_step INTEGER,
    failed_resume INTEGER,
    high_step INTEGER NOT NULL DEFAULT 0,
    recomputed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE UNIQUE INDEX tasks_of_job ON tasks (job_seq, idx);
{_READY_INDEX};
CREATE INDEX tasks_waiting ON tasks (not_before_ns, job_seq, idx)
    WHERE state = 'PENDING' AND not_before_ns > 0;
{_NEED_INDEX};
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
    decision TEXT,
    resumed_from INTEGER,
    checkpoint_step INTEGER
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

{_SPOOL};

CREATE TABLE nodes (
    node_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    hostname TEXT,
    registered_at TEXT NOT NULL,
    registration TEXT NOT NULL,
    duty TEXT NOT NULL DEFAULT 'active'
) WITHOUT ROWID;
"""
SCHEMA += ";\n".join((*_KEEPING, *CHECKPOINT_TABLES))
