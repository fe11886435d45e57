// Responses of the API that the page uses.
//
// Every route below needs `Authorization: Bearer TOKEN`; errors are `{ "error": "one sentence" }` with
// 400 wrong input, 401 token, 404 not found, 409 conflict, 410 deleted from the log, 413/414/431 too large,
// 415 a body that is not application/json, 429 too many requests (Retry-After: seconds), 503 Kafka unavailable or too many readers.
// In the text of records, control characters and direction marks are escaped as \uXXXX.
//
// jobs
//   GET    /api/jobs                                        JobFacts[]
//   GET    /api/jobs/{job}                                  JobDetail
//   DELETE /api/jobs/{job}                                  202
//   POST   /api/jobs/{job}/stop | restart                   202
//   POST   /api/jobs/{job}/rewind        body RewindWish    RewindDone   answers when it is done (up to minutes); 409 while another is running
//   GET    /api/jobs/{job}/commits?last=50&before=BATCH     Commits      newest last; `before` pages back
//   GET    /api/jobs/{job}/watermarks?last=300              WatermarkHistory
//   GET    /api/jobs/{job}/late?topic=&step=&at=end&from=&before=&limit=50                     LatePage
//   GET    /api/jobs/{job}/dead?reason=&step=&source=&state=&at=end&from=&before=&limit=50     DeadPage
//   GET    /api/jobs/{job}/log?last=100                     JSON lines
//   GET    /api/jobs/{job}/state, /api/jobs/{job}/state/{step}?key=NAME=VALUE
//   GET    /api/jobs/{job}/results                          Result[]
//   GET    /api/stream, /api/jobs/{job}/stream              server-sent events, one snapshot per second
// topics and groups
//   GET    /api/topics?internal=false                       TopicFacts[]
//   GET    /api/topics/{topic}                              TopicDetail
//   GET    /api/topics/{topic}/records?at=end&partition=&where=&format=auto&from=&before=&limit=50   RecordsPage
//            at: beginning | end | -1h | 2026-01-01T12:00 (UTC) | @1200 (an offset); `end` gives the last records, all
//            others read forward. `before=page.earlier` pages back, `from=page.later` forward (without `at`).
//            partition may be given several times; format: auto | json | text | hex; where: as `millstream tail --where`
//   GET    /api/topics/{topic}/records/{partition}/{offset}?format=auto   StoredRecord   one record, cut only beyond 1 MB
//   GET    /api/topics/{topic}/follow?partition=&where=&format=auto       server-sent events: data: Followed;
//            `event: dropped` (you were too slow) and `event: gone` (topic deleted, Kafka unavailable) carry one sentence as
//            a JSON string and end the stream. To pause, close the stream; to continue without a gap: records?from=Followed.later
//   GET    /api/groups                                      GroupFacts[]
//   GET    /api/groups/{group}                              GroupDetail
// alerts
//   GET    /api/alerts?job=&alert=                          AlertFacts[]   the worst first
//   GET    /api/alerts/{job}/{alert}/notifications?last=50  Notification[]  newest first
//   POST   /api/alerts/{job}/{alert}/silence   body SilenceWish   { job, alert, key, silenced_until }

export type State =
  | "starting" | "running" | "idle" | "waiting" | "degraded" | "failing" | "failed" | "stopped" | "finished";

/** A system that is down: the job waits for it, or works without it (`degraded`). */
export interface Outage { system: string; why: string; since: string; next_try: string | null; kind: "waiting" | "degraded" }

/** What ran a batch: Spark's tasks, the driver while Spark was starting, or the driver alone. */
export type Where = "spark" | "bridge" | "driver";

/** `spark_ui` is the address of Spark's own page while the job runs and that page is on. */
export interface JobFacts {
  job: string; state: State; since: string; reason: string | null; outages: Outage[]; application: string; owner: string;
  version: string | null; phase: string | null; pid: number | null; rows_per_second: number; rates: number[];
  lag: number | null; warnings: string[]; checkpoint_files: number | null; checkpoint_bytes: number | null; rows: number; out: number; late: number; dead: number;
  batches: number; where: Record<string, number>; spark_ui: string | null; restarts: number;
}

export interface PlanStep { number: number; from: number[]; step: string; [word: string]: unknown }
export interface PlanOutput { output: string; from: number; to: string }
export interface Plan { steps: PlanStep[]; outputs: PlanOutput[]; dead: string; stages: { stage: number; name: string; path: string[] }[] }

/** One instance of an operator: a partition of a source, or a range of buckets of a step. */
export interface Instance {
  instance: string; where: string; in: number; out: number; late: number; dead: number; rows_per_second: number; busy: number;
  watermark: string | null; state_rows: number | null; state_bytes: number | null; idle?: boolean;
}
/** `behind` counts rows behind the watermark that were still processed; late rows are not included. */
export interface StepFacts {
  in: number; out: number; late: number; behind: number; dead: number; rows_per_second: number; busy: number;
  watermark: string | null; state_rows: number | null; state_bytes: number | null; instances: Instance[];
}
export interface SourceFacts { watermark: string | null; held_by: number | null; idle: number[]; partitions: number; instances: Instance[] }

export interface Batch {
  batch: number; at: string; rows: number; late: number; dead: number; lane: string; where: Where; seconds: number;
  phases: Record<string, number>; outputs: Record<string, number>;
}

export interface Lag { source: string; topic: string; partition: number; lag: number; position: number; end: number; warning: string | null }
export interface Lane { lane: string; when: string; runs: Record<string, string>; stages: { stage: number; name: string; does: Record<string, string> }[] }

export interface JobDetail extends JobFacts {
  file: string; submitted: string; kafka: string | null; plan: Plan | null; lanes: Lane[] | null; leaving: string[] | null;
  steps: Record<string, StepFacts>; sources: Record<string, SourceFacts>; lags: Lag[]; batches_shown: Batch[]; watermarks: Record<string, string | null>;
  state_rows: number; state_bytes: number; events: { at: string; event: string; detail: string | null }[];
}

export type Value = string | number | boolean | null | Value[] | { [name: string]: Value };
export interface Result {
  output: string; kind: "Chart" | "LiveTable"; batch: number; rows: Record<string, Value>[];
  x?: string; y?: string[]; by?: string | null; shape?: "line" | "bars"; key: string[]; keep: number;
}

// ---- topics, records, groups

/** Part of a record as text; avro and protobuf as JSON, if the schema is known from a job that reads the topic. `size` is its size in bytes; `cut`: `text` is only its beginning. */
export interface Body { kind: "json" | "text" | "bytes" | "none" | "avro" | "protobuf"; text: string; size: number; cut: boolean }
export interface StoredRecord {
  topic: string; partition: number; offset: number; timestamp: string; key: Body; value: Body;
  headers: { name: string; value: Body }[]; headers_total: number;
}
/** Records by time, oldest first. `scanned` were searched; `unknown` counts those for which `where` could not be
 * evaluated (a field is missing or has another type). `earlier`/`later` are cursors, null at the end; `complete` is
 * false if the scan stopped at its limit, so that there may be fewer records than requested. `gone` counts offsets
 * of `from` that retention has deleted. */
export interface RecordsPage {
  topic: string; records: StoredRecord[]; scanned: number; unknown: number; gone: number; complete: boolean;
  earlier: string | null; later: string | null; lost: Lost[];
}
/** Offsets in a batch that cannot be read: from `first` up to `next`. */
export interface Lost { partition: number; first: number; next: number; why: string }
/** Records of a quarter of a second; `left_out` matched but are not sent (too many), `skipped` were not read. */
export interface Followed { records: StoredRecord[]; scanned: number; left_out: number; skipped: number; later: string; lost: Lost[] }

export interface TopicFacts {
  topic: string; partitions: number; replicas: number; offsets_held: number; internal: boolean; compacted: boolean;
  read_by: string[]; written_by: string[];
}
/** `stable` is the last stable offset: below `latest` while a transaction is open. `bytes` is the size on the leader's
 * disk, null if the cluster does not report it. */
export interface Partition {
  partition: number; leader: number | null; replicas: number[]; isr: number[]; earliest: number | null; latest: number | null; stable: number | null;
  bytes: number | null;
}
/** Settings of the topic itself, secrets as ***. */
export interface TopicDetail extends TopicFacts { id: string; settings: Record<string, string>; parts: Partition[] }

/** `lag`, `members` and `topics` are null if there are too many groups to query all of them. */
export interface GroupFacts { group: string; state: string; members: number | null; topics: string[] | null; lag: number | null }
export interface GroupPartition {
  topic: string; partition: number; committed: number | null; earliest: number; end: number; lag: number; gone: number; member: string | null;
}
export interface GroupDetail {
  group: string; state: string; lag: number;
  members: { member: string; client: string; host: string; partitions: string[]; idle: boolean }[]; partitions: GroupPartition[];
}

// ---- commits, watermarks, late and dead rows

export interface Commit {
  batch: number; at: string | null; lane: string; where: Where; rows: number; late: number; dead: number; seconds: number; finished: boolean;
  outputs: Record<string, number>; watermarks: Record<string, string | null>; reachable: boolean;
}
export interface Commits { job: string; commits: Commit[]; earlier: number | null; suffix: string }
/** One of `into` (a suffix such as "-2": new outputs) and `again: true` (the same outputs). `to`: a batch number, start, or a time. */
export interface RewindWish { to: string; into?: string; again?: boolean }
export interface RewindDone { job: string; messages: string[] }

/** `delay` is how many seconds the watermark was behind the wall clock when the batch was committed; null before the
 * first row and after the end of the input. `clock` is the batch clock (null in old entries), `held_by` the partition
 * that delays the watermark. */
export interface WatermarkPoint {
  batch: number; at: string; clock: string | null; watermarks: Record<string, string | null>; delay: Record<string, number | null>;
  held_by: Record<string, number | null>;
}
export interface WatermarkHistory { job: string; now: string; sources: string[]; points: WatermarkPoint[] }

/** `topics` are the topics, or folders of files, that receive late rows of this job, `topic` the one shown (null if
 * there is none); `other_sinks` are other sinks. `unreadable` counts records that other programs wrote. */
export interface LatePage {
  job: string; topic: string | null; topics: string[]; other_sinks: string[]; rows: LateRow[]; scanned: number; unreadable: number;
  complete: boolean; earlier: string | null; later: string | null;
}
export interface LateRow {
  position: string; at: string; step: string; reason: string; watermark: string | null; windows: { start: string; end: string }[];
  origin: { source: string; partition: number; offset: number; index: number }; row: Body;
}
export interface DeadPage {
  job: string; topic: string | null; other_sinks: string[]; rows: DeadRow[]; scanned: number; unreadable: number; complete: boolean;
  earlier: string | null; later: string | null;
}
/** `record` is the original record with its topic, partition and offset; `position` is the position in the dead-letter topic. */
export interface DeadRow { position: string; step: string; reason: string; state: "waiting" | "retried" | "dropped"; record: StoredRecord }

// ---- alerts

/** The state of an alert for one key: on `rows` of a pipeline or on the `job` itself. `key` is null if no key is
 * pending, firing or resolved; `row` is the last row that met the condition; `problem` says why a notification could
 * not be sent; `untracked` counts keys beyond the limit. */
export interface AlertFacts {
  job: string; alert: string; on: "rows" | "job"; when: string; key: Record<string, Value> | null;
  state: "pending" | "firing" | "resolved" | "ok"; since: string | null; row: Record<string, Value> | null;
  episode: string | null; silenced_until: string | null; notified: "yes" | "waiting" | "silenced" | "failed" | null;
  problem: string | null; to: string[]; untracked: number;
}
/** A notification of an alert. */
export interface Notification {
  at: string; state: string; key: Record<string, Value>; episode: string; outcome: string; tries: number;
  problem: string | null; sent_at: string | null;
}
/** `for`: a duration such as "1 hour", or null to end a silence; `key`: only this key of it. */
export interface SilenceWish { for: string | null; key?: Record<string, Value> | null }
