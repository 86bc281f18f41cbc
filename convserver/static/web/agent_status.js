// What the agent is doing, in words, and what the user can do about it.

/**
 * Every state of the page: `words` for the header; `next`, a sentence about what to do, with the `actions` that do
 * it; the `controls` beside the header; and until when a message that is sent now is `queued`.
 */
export const STATUSES = {
  unstarted: { words: "Not started" },
  ready: { words: "Idle" },
  starting: { words: "Starting…", controls: ["stop"], queued: "until the agent has started" },
  running: { words: "Running", controls: ["pause", "stop"], queued: "until this turn ends" },
  pausing: {
    words: "Pausing…",
    next: "The agent pauses after this step.",
    actions: ["stop"],
    controls: ["pause"],
    queued: "until the agent resumes",
  },
  paused: {
    words: "Paused",
    next: "The agent is paused. Messages you send are queued until it resumes.",
    actions: ["run"],
    controls: ["stop"],
    queued: "until the agent resumes",
  },
  waiting: { words: "Needs your approval", controls: ["stop"], queued: "until you approve or reject the call" },
  decided: { words: "Continuing…", controls: ["stop"], queued: "until this turn ends" },
  stopping: { words: "Stopping…", controls: ["stop"] },
  stopped: { words: "Stopped", next: "The agent was stopped. Send a message to continue.", actions: ["retry"] },
  finished: { words: "Finished" },
  error: { words: "Failed", next: "Retry your last message, or send another.", actions: ["retry"] },
  stuck: { words: "Stuck", next: "The agent keeps repeating itself. Tell it what to do differently, or retry.", actions: ["retry"] },
  interrupted: {
    words: "Failed",
    next: "The agent was stopped because the server restarted or lost its database. What it said is kept.",
    actions: ["retry"],
  },
  evicted: {
    words: "Idle",
    next: "Too many of your agents were running, so this one was stopped. Send a message to start it again.",
    actions: ["retry"],
    queued: "until another agent is done",
  },
  cut: {
    words: "Failed",
    next: "The agent failed, or was stopped to make room for another one. Retry your last message, or send another.",
    actions: ["retry"],
  },
  failed: { words: "Failed", next: "The agent couldn't start.", actions: ["start"], queued: "until the agent can start" },
  away: { words: "Failed", queued: "until the agent's program is started" },
  deleted: { words: "Deleted", next: "This conversation was deleted.", actions: ["restore", "back"] },
  unavailable: { words: "Unavailable", next: "This conversation was deleted or isn't yours any more.", actions: ["restore", "back"] },
  unreachable: { words: "Unavailable", next: "This page can't connect to the conversation.", actions: ["back"] },
};

/** The state of an agent that is not there any more, by how it ended. */
const OVER = { stopped: "stopped", crowded_out: "evicted", interrupted: "interrupted" };
/** The same where its last turn failed or was cut off. */
const FAILED = { crowded_out: "cut", interrupted: "interrupted" };

/** The name of the state that a loop is in, as the server tells of it. */
export function statusOf({ status, execution_status: execution, agent, ended_by: endedBy }) {
  const isThere = status === "running" || status === "starting";
  if (status === "starting") return "starting";
  if (status === "error") return "failed";
  if (execution === "waiting_for_confirmation") return "waiting";
  if (execution === "paused") return "paused";
  if (execution === "running") return isThere ? "running" : (OVER[endedBy] ?? "starting");
  if (execution === "finished" || execution === "stuck") return execution;
  if (execution === "error") return FAILED[endedBy] ?? "error";
  if (isThere) return "ready";
  return agent ? (OVER[endedBy] ?? "ready") : "unstarted";
}
