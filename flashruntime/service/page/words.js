// Events in words.

const short = (taskId) => (taskId ? `task ${Number(taskId.slice(taskId.lastIndexOf("-") + 1))}` : "");

export const OUTCOMES = {
  live: "running", completed: "accepted", failed: "failed", lost: "holder lost", cancelled: "cancelled",
};

export const ACTIONS = {
  retry_task: "try the task again", fail_job: "fail the job", restart_group: "restart the group",
  replace_node: "try again on another node", pause_job: "pause the job", freeze_automation: "freeze recovery",
};

// Returns what happened and how it is: good, bad, warn or plain.
export function describe(event, jobName) {
  const { type, data } = event;
  const task = short(event.task_id);
  const of = `${task} of ${jobName}`;
  const Of = of[0].toUpperCase() + of.slice(1);
  const attempt = data.attempt_number ? ` (attempt ${data.attempt_number})` : "";
  switch (type) {
    case "JOB_ACCEPTED": return [`Job ${jobName} accepted with ${data.tasks} ${data.tasks === 1 ? "task" : "tasks"}`, "plain"];
    case "JOB_SUCCEEDED": return [`Job ${jobName} succeeded`, "good"];
    case "JOB_FAILED": return [`Job ${jobName} failed: ${data.reason ?? "no reason"}`, "bad"];
    case "JOB_CANCELLED": return [`Job ${jobName} was cancelled, ${data.cancelled_tasks ?? 0} tasks with it`, "warn"];
    case "LEASE_CLAIMED": return [`${data.node_id} took ${of}${attempt}`, "plain"];
    case "LEASE_RENEWED": return [`${data.node_id} is back and keeps ${of}`, "good"];
    case "LEASE_EXPIRED":
      return [data.reason === "session_ended" ? `${data.node_id} is gone; ${of} can be claimed` : `${data.node_id} was not heard any more; ${of} can be claimed`, "warn"];
    case "LEASE_REFUSED": return [`${data.node_id} came back too late for ${of}: its ${data.call} was refused`, "warn"];
    case "TASK_REQUEUED": return [`${Of} waits for its next attempt${data.backoff_s ? ` (in ${data.backoff_s.toFixed(1)} s)` : ""}`, "plain"];
    case "TASK_COMMIT_ACCEPTED": return [`${data.node_id} completed ${of}${attempt}`, "plain"];
    case "TASK_COMMIT_REJECTED": return [`${data.node_id} handed in ${of} too late; refused`, "warn"];
    case "TASK_ATTEMPT_FAILED": return [`${Of} failed on ${data.node_id}${attempt}: ${data.reason}`, "bad"];
    case "TASK_EXHAUSTED": return [`${Of} is given up: ${data.reason}`, "bad"];
    case "FAILURE_CLASSIFIED": return [`${Of}: ${String(data.failure_class).replaceAll("_", " ")} – ${data.reason}`, "plain"];
    case "RECOVERY_ACTION_SELECTED": return [`${Of}: ${ACTIONS[data.action] ?? data.action}${data.backoff_s ? ` after ${data.backoff_s.toFixed(1)} s` : ""}`, "plain"];
    case "RECOVERY_FROZEN": return [`Recovery frozen: ${data.reason}`, "bad"];
    case "CHECKPOINT_MANIFEST_COMMITTED": return [`${Of}: checkpoint of step ${data.step ?? "?"} committed`, "plain"];
    case "CHECKPOINT_REJECTED": return [`${Of}: a checkpoint was refused`, "warn"];
    case "NODE_SESSION_STARTED": return [`${data.node_id} is connected`, "plain"];
    case "NODE_SESSION_ENDED": return [`${data.node_id} is disconnected (${data.reason ?? "closed"})`, data.reason === "stopping" ? "plain" : "warn"];
    case "NODE_CORDONED": return [`${data.node_id} takes no new tasks`, "plain"];
    case "NODE_UNCORDONED": return [`${data.node_id} takes tasks again`, "plain"];
    case "NODE_DRAINING": return [`${data.node_id} gives its tasks back`, "plain"];
    case "NODE_DRAINED": return [`${data.node_id} is drained`, "plain"];
    case "JOB_DELETED": return [`Job ${jobName} was removed with what it stored`, "plain"];
    case "ARTIFACT_CORRUPT": return [`Stored bytes are damaged: ${data.reason ?? data.sha256 ?? ""}`, "bad"];
    case "ARTIFACT_RESTORED": return ["Damaged bytes are whole again", "good"];
    case "COORDINATOR_STARTED": return [`Coordinator started with ${data.live_leases ?? 0} live leases`, "plain"];
    default: return [`${type.toLowerCase().replaceAll("_", " ")}${event.task_id ? `: ${of}` : ""}${data.node_id ? ` (${data.node_id})` : ""}`, "plain"];
  }
}
