// The logical plan with figures, beside the physical plan of each lane.

import { bytes, clock, compact, count, counted, NONE, share } from "../format";
import { Empty, Meter } from "../parts/facts";
import type { Instance, JobDetail, Lane, PlanStep, StepFacts } from "../types";
import { Graph, TimeLegend, timeInWords, timeOf } from "./graph";

const SHOWN_SEPARATELY = new Set(["number", "from", "step"]);

export function Plans({ job }: { job: JobDetail }) {
  if (!job.plan) return <Empty title="The plan is shown once the job has started" />;
  return (
    <>
      <section class="card"><h2>Data flow</h2><Graph job={job} /><TimeLegend /></section>
      <div class="plans">
        <section class="card" aria-labelledby="logical">
          <h2 id="logical">Logical plan <span class="quiet">operators and streams</span></h2>
          <ol class="steps">
            {job.plan.steps.map((step) => <Step key={step.number} step={step} facts={job.steps[step.step]} job={job} />)}
            {job.plan.outputs.map((out) => (
              <li key={out.output}>
                <p class="head-line"><span class="place" aria-hidden="true">→</span><strong>{out.output}</strong></p>
                <dl class="words"><dt>from</dt><dd>{out.from}</dd><dt>to</dt><dd>{out.to}</dd></dl>
              </li>
            ))}
          </ol>
        </section>
        <section class="card" aria-labelledby="physical">
          <h2 id="physical">Physical plan <span class="quiet">processes, tasks, transports</span></h2>
          {(job.lanes ?? []).map((lane) => <LaneView key={lane.lane} lane={lane} used={job.batches_shown.filter((batch) => batch.lane === lane.lane).length} of={job.batches_shown.length} />)}
          {(job.leaving ?? []).length > 0 && <div class="lane"><h3>Writing a batch</h3>{job.leaving!.map((line) => <p class="quiet" key={line}>{line}</p>)}</div>}
        </section>
      </div>
    </>
  );
}

function Step({ step, facts, job }: { step: PlanStep; facts: StepFacts | undefined; job: JobDetail }) {
  const words = Object.entries(step).filter(([word]) => !SHOWN_SEPARATELY.has(word));
  return (
    <li>
      <p class="head-line"><span class="place">{step.number}</span><strong>{step.step}</strong></p>
      <dl class="words">
        {step.from.length > 0 && <><dt>from</dt><dd>{step.from.join(", ")}</dd></>}
        {words.map(([word, does]) => <Word key={word} word={word} does={inWords(does)} />)}
        {facts && <Figures facts={facts} job={job} />}
      </dl>
      <Instances all={facts?.instances ?? job.sources[step.step.slice(5)]?.instances ?? []} of={step.step} />
    </li>
  );
}

const inWords = (does: unknown): string => (Array.isArray(does) ? does.map(inWords).join(", ") : typeof does === "string" ? does : JSON.stringify(does));

const Word = ({ word, does }: { word: string; does: string }) => <><dt>{word}</dt><dd>{does}</dd></>;

function Figures({ facts, job }: { facts: StepFacts; job: JobDetail }) {
  const time = timeOf(facts.busy, job.batches_shown);
  return (
    <>
      <Word word="rows" does={`${count(facts.in)} in, ${count(facts.out)} out, ${compact(facts.rows_per_second)} a second`} />
      {facts.behind > 0 && <Word word="behind" does={`${count(facts.behind)} rows behind the watermark were still processed`} />}
      {(facts.late > 0 || facts.dead > 0) && <Word word="side outputs" does={`${count(facts.late)} late, ${count(facts.dead)} dead`} />}
      {facts.state_rows !== null && <Word word="state" does={`${count(facts.state_rows)} rows, ${bytes(facts.state_bytes ?? 0)}`} />}
      {facts.watermark && <Word word="watermark" does={clock(facts.watermark)} />}
      <dt>time</dt><dd>{timeInWords(time)}<Meter label={timeInWords(time)} parts={[["busy", time.busy], ["waiting", time.waiting]]} /></dd>
    </>
  );
}

/** The instances of an operator: partitions of a source, ranges of buckets of a step. */
function Instances({ all, of }: { all: Instance[]; of: string }) {
  if (!all.length) return null;
  return (
    <details class="instances">
      <summary>{counted(all.length, "instance")}</summary>
      <div class="scroll" tabIndex={0} role="region" aria-label={`instances of ${of}`}><table>
        <thead><tr><th scope="col">instance</th><th scope="col">where</th><th scope="col" class="number">in</th><th scope="col" class="number">out</th><th scope="col" class="number">a second</th><th scope="col" class="number">busy</th><th scope="col" class="number">state</th><th scope="col" class="number">late</th><th scope="col" class="number">dead</th></tr></thead>
        <tbody>{all.map((one) => (
          <tr key={one.instance}>
            <th scope="row">{one.instance}</th><td>{one.where}</td><td class="number">{compact(one.in)}</td><td class="number">{compact(one.out)}</td><td class="number">{compact(one.rows_per_second)}</td>
            <td class="number">{share(one.busy)}</td><td class="number">{one.state_rows === null ? NONE : compact(one.state_rows)}</td><td class="number">{count(one.late)}</td><td class="number">{count(one.dead)}</td>
          </tr>
        ))}</tbody>
      </table></div>
    </details>
  );
}

function LaneView({ lane, used, of }: { lane: Lane; used: number; of: number }) {
  return (
    <div class="lane">
      <h3>{lane.lane} lane <span class="quiet">{lane.when}{of > 0 && ` · ${used} of the last ${of} batches`}</span></h3>
      <dl class="words">{Object.entries(lane.runs).map(([word, does]) => <Word key={word} word={word} does={does} />)}</dl>
      <ol class="steps">
        {lane.stages.map((stage) => (
          <li key={stage.stage}>
            <p class="head-line"><span class="place">{stage.stage}</span><strong>{stage.name}</strong></p>
            <dl class="words">{Object.entries(stage.does).map(([word, does]) => <Word key={word} word={word} does={does} />)}</dl>
          </li>
        ))}
      </ol>
    </div>
  );
}
