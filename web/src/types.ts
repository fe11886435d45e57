// What the API gives, as far as the page shows it.

export type State =
  | "starting" | "running" | "catching up" | "idle" | "failing" | "hung" | "stopped" | "failed";

export interface JobFacts {
  job: string; state: State; since: string; reason: string | null; application: string; owner: string;
  version: string | null; phase: string | null; pid: number | null; rows_per_second: number; rates: number[];
  lag: number | null; warnings: string[]; rows: number; out: number; late: number; dead: number;
  batches: number; restarts: number;
}

export interface PlanStep { number: number; from: number[]; step: string; [word: string]: unknown }
export interface PlanOutput { output: string; from: number; to: string }
export interface Plan { steps: PlanStep[]; outputs: PlanOutput[]; dead: string; stages: { stage: number; name: string; path: string[] }[] }

export interface StepFacts {
  in: number; out: number; late: number; dead: number; rows_per_second: number; busy: number;
  watermark: string | null; state_rows: number | null; state_bytes: number | null;
}

export interface Batch {
  batch: number; at: string; rows: number; late: number; dead: number; lane: string; seconds: number;
  phases: Record<string, number>; outputs: Record<string, number>;
}

export interface Lag { source: string; topic: string; partition: number; lag: number; position: number; end: number; warning: string | null }
export interface Lane { lane: string; when: string; runs: Record<string, string>; stages: { stage: number; name: string; does: Record<string, string> }[] }

export interface JobDetail extends JobFacts {
  file: string; submitted: string; kafka: string | null; plan: Plan | null; lanes: Lane[] | null; leaving: string[] | null;
  steps: Record<string, StepFacts>; lags: Lag[]; batches_shown: Batch[]; watermarks: Record<string, string | null>;
  state_rows: number; state_bytes: number; events: { at: string; event: string; detail: string | null }[];
}

export type Value = string | number | boolean | null | Value[] | { [name: string]: Value };
export interface Result {
  output: string; kind: "Chart" | "LiveTable"; batch: number; rows: Record<string, Value>[];
  x?: string; y?: string[]; by?: string | null; shape?: "line" | "bars"; key: string[]; keep: number;
}
