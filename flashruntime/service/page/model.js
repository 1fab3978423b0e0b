// What the page knows: jobs and nodes as last told, leases and events as they happened.

export const STATES = {
  P: "pending", W: "pausing before its next attempt", L: "running", C: "completed", F: "failed", X: "cancelled",
};
const MAX_EVENTS = 2000;
const MAX_LEASES = 20000;
const ENDS = new Set(["JOB_SUCCEEDED", "JOB_FAILED", "JOB_CANCELLED"]);
const FAILS = new Set(["fail_job", "pause_job"]);

export const indexOf = (taskId) => Number(taskId.slice(taskId.lastIndexOf("-") + 1));

export class Model {
  constructor() {
    this.skew = 0;
    this.clear();
  }

  clear() {
    this.jobs = new Map();
    this.nodes = [];
    this.events = [];
    this.leases = new Map();
    this.starts = [];
    this.lastId = 0;
    this.instance = null;
    this.open = { jobs: 0, PENDING: 0, LEASED: 0 };
    this.lostAt = [];
    this.recoveries = [];
    this.claimable = new Map();
    this.selected = null;
    this.states = [];
    this.attempts = "";
    this.gridId = 0;
  }

  now() { return Date.now() + this.skew; }

  overview(told) {
    this.jobs = new Map(told.jobs.map((job) => [job.job_id, job]));
    this.open = told.open;
    this.coordinator = told.coordinator;
  }

  grid(told) {
    if (told.job_id !== this.selected) return;
    this.states = [...told.states];
    this.attempts = told.attempts;
    this.gridId = told.last_event_id;
    for (const event of this.events) if (event.id > this.gridId) this.#mark(event);
  }

  select(jobId) {
    if (jobId === this.selected) return;
    this.selected = jobId;
    this.states = [];
    this.attempts = "";
  }

  // Takes an event in once, however often it is told.
  apply(event) {
    if (event.id <= this.lastId) return false;
    this.lastId = event.id;
    event.ms = Date.parse(event.at);
    this.events.push(event);
    if (this.events.length > 2 * MAX_EVENTS) this.events.splice(0, MAX_EVENTS);
    if (event.type === "COORDINATOR_STARTED") this.starts.push(event.ms);
    if (event.lease_id) this.#lease(event);
    if (ENDS.has(event.type)) this.#ended(event);
    this.#mark(event);
    return true;
  }

  #lease(event) {
    const { data, ms } = event;
    let lease = this.leases.get(event.lease_id);
    if (!lease) {
      lease = {
        id: event.lease_id, task: event.task_id, job: event.job_id, node: data.node_id ?? "unknown",
        attempt: data.attempt_number ?? null, start: ms, end: null, outcome: "live", marks: [], why: null, decision: null,
      };
      this.leases.set(lease.id, lease);
      if (this.leases.size > MAX_LEASES) this.leases.delete(this.leases.keys().next().value);
    }
    const end = (outcome, why) => Object.assign(lease, { end: ms, outcome, why: why ?? lease.why });
    switch (event.type) {
      case "LEASE_CLAIMED": this.#recovered(event); break;
      case "LEASE_EXPIRED":
        end("lost", data.reason === "session_ended" ? "its worker's session ended" : "nothing was heard of it");
        lease.marks.push({ ms, kind: "lost" });
        this.lostAt.push(ms);
        break;
      case "LEASE_RENEWED": Object.assign(lease, { end: null, outcome: "live", why: null }); this.claimable.delete(event.task_id); break;
      case "TASK_ATTEMPT_FAILED": end("failed", data.reason); lease.marks.push({ ms, kind: "failed" }); break;
      case "TASK_COMMIT_ACCEPTED": end("completed"); this.claimable.delete(event.task_id); break;
      case "TASK_REQUEUED": this.claimable.set(event.task_id, ms + 1000 * (data.backoff_s ?? 0)); break;
      case "TASK_COMMIT_REJECTED": case "LEASE_REFUSED": lease.marks.push({ ms, kind: "refused" }); break;
      case "CHECKPOINT_MANIFEST_COMMITTED": lease.marks.push({ ms, kind: "checkpoint" }); break;
      case "FAILURE_CLASSIFIED": lease.failure = data.failure_class; break;
      case "RECOVERY_ACTION_SELECTED": lease.decision = data; break;
    }
  }

  #recovered(event) {
    const since = this.claimable.get(event.task_id);
    this.claimable.delete(event.task_id);
    if (since !== undefined) this.recoveries.push({ ms: event.ms, took: Math.max(0, event.ms - since) });
    if (this.recoveries.length > 1000) this.recoveries.splice(0, 500);
    if (this.lostAt.length > 4000) this.lostAt.splice(0, 2000);
  }

  #ended(event) {
    for (const lease of this.leases.values()) {
      if (lease.job === event.job_id && lease.outcome === "live") Object.assign(lease, { end: event.ms, outcome: "cancelled" });
    }
  }

  #mark(event) {
    if (event.job_id !== this.selected || !event.task_id || event.id <= this.gridId) return;
    const index = indexOf(event.task_id);
    if (index >= this.states.length) return;
    const { type, data } = event;
    if (type === "LEASE_CLAIMED" || type === "LEASE_RENEWED") this.states[index] = "L";
    else if (type === "TASK_COMMIT_ACCEPTED") this.states[index] = "C";
    else if (type === "TASK_REQUEUED") this.states[index] = data.backoff_s > 0 ? "W" : "P";
    else if (type === "TASK_EXHAUSTED" || (type === "RECOVERY_ACTION_SELECTED" && FAILS.has(data.action))) this.states[index] = "F";
  }

  attemptsOf(index) { return Number(this.attempts[index] ?? 0); }

  counts() {
    const found = { P: 0, W: 0, L: 0, C: 0, F: 0, X: 0 };
    for (const state of this.states) found[state] += 1;
    return found;
  }

  lostSince(ms) { return this.lostAt.filter((at) => at >= ms).length; }

  medianRecovery(sinceMs) {
    const took = this.recoveries.filter((one) => one.ms >= sinceMs).map((one) => one.took).sort((a, b) => a - b);
    return took.length ? took[Math.floor(took.length / 2)] : null;
  }
}
