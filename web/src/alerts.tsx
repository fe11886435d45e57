// Alerts: what is wrong now, what may become so, what is over; and silence for those who know already.

import { useState } from "preact/hooks";
import { clock, count, counted, moment, NONE, since } from "./format";
import { tell, told, useAsked } from "./live";
import { Modal } from "./parts/dialog";
import { Empty, Pill, Tile, Tiles, Trouble, Wait } from "./parts/facts";
import { Given } from "./parts/given";
import { Icon } from "./parts/icon";
import { address } from "./route";
import type { AlertFacts, Notification, SilenceWish, Value } from "./types";

export const ALERTS = "/api/alerts";
const EVERY = 2;
const DURATIONS = ["10 minutes", "1 hour", "8 hours", "1 day", "7 days"];
const NOTIFIED: Record<string, string> = { yes: "told", waiting: "being told", silenced: "kept quiet", failed: "could not be told" };

type Key = AlertFacts["key"];

/** An alert with all its keys that stand out, the worst first. */
interface Standing { job: string; alert: string; worst: AlertFacts; keys: AlertFacts[] }

function standing(all: AlertFacts[]): Standing[] {
  const found = new Map<string, Standing>();
  for (const one of all) {
    const name = JSON.stringify([one.job, one.alert]);
    const known = found.get(name) ?? { job: one.job, alert: one.alert, worst: one, keys: [] };
    if (one.state !== "ok") known.keys.push(one);
    found.set(name, known);
  }
  return [...found.values()];
}

export function Alerts() {
  const { answer, error, again } = useAsked<AlertFacts[]>(ALERTS, EVERY);
  const [wish, choose] = useState<{ of: Standing; key: Key } | null>(null);
  const of = (state: AlertFacts["state"]) => answer?.filter((one) => one.state === state).length ?? 0;
  return (
    <>
      <header class="head"><div><h1>Alerts</h1><p class="quiet">raised by <code>ms.Alert</code> on rows, and by <code>ms.JobAlert</code> on jobs themselves</p></div></header>
      {error && <Trouble text={error} />}
      {!answer ? (!error && <Wait />) : (
        <>
          <Tiles label="alerts in figures">
            <Tile label="firing" value={count(of("firing"))} tone={of("firing") ? "bad" : ""} fact="firing" note="somebody is told" />
            <Tile label="pending" value={count(of("pending"))} tone={of("pending") ? "warn" : ""} fact="pending" note="not yet for long enough" />
            <Tile label="resolved" value={count(of("resolved"))} fact="resolved" note="over again" />
            <Tile label="calm" value={count(of("ok"))} fact="ok" note="nothing stands out" />
          </Tiles>
          {answer.length ? <ul class="alerts">{standing(answer).map((one) => <Alert key={`${one.job}/${one.alert}`} one={one} silence={(key) => choose({ of: one, key })} again={again} />)}</ul>
            : <Empty title="No job has an alert"><p>A pipeline raises one with <code>stream.to(ms.Alert("pages fail", when="failures &gt; 5"))</code>.</p></Empty>}
        </>
      )}
      {wish && <Silence of={wish.of} only={wish.key} close={() => { choose(null); again(); }} />}
    </>
  );
}

const pathOf = ({ job, alert }: { job: string; alert: string }): string => `${ALERTS}/${encodeURIComponent(job)}/${encodeURIComponent(alert)}`;

const inWords = (row: Record<string, Value>): string =>
  Object.entries(row).map(([name, value]) => `${name} ${typeof value === "string" ? moment(value) : JSON.stringify(value)}`).join(" · ") || "all rows together";

/** `Email('ann@example.com', url=…)` as "Email ann@example.com". */
const whom = (to: string): string => to.replace(/^(\w+)\('([^']*)'.*$/s, "$1 $2");

const isQuiet = (one: AlertFacts): boolean => one.silenced_until !== null && Date.parse(one.silenced_until) > Date.now();

function Alert({ one, silence, again }: { one: Standing; silence: (key: Key) => void; again: () => void }) {
  const [shown, show] = useState(false);
  const [refused, say] = useState<string | null>(null);
  const { worst, keys } = one, silenced = isQuiet(worst);
  const end = async () => {
    try {
      await tell("POST", `${pathOf(one)}/silence`, { for: null } satisfies SilenceWish);
      say(null);
      again();
    } catch (error) {
      say(told(error));
    }
  };
  return (
    <li class={`card alert is-${worst.state}`} data-alert={one.alert}>
      <div class="titled">
        <div class="about">
          <h2>{one.alert} <Pill state={worst.state === "ok" ? "calm" : worst.state} />{silenced && <span class="tag">silenced until {clock(worst.silenced_until!)}</span>}</h2>
          <p class="quiet"><a href={address("jobs", one.job)}>{one.job}</a> · when <code>{worst.when}</code> · {worst.to.length ? `tells ${worst.to.map(whom).join(", ")}` : "tells nobody, is shown here"}</p>
        </div>
        <div class="row">
          <button type="button" aria-expanded={shown} onClick={() => show(!shown)}>What was told</button>
          {silenced ? <button type="button" onClick={() => void end()}>End the silence</button> : <button type="button" onClick={() => silence(null)}><Icon name="quiet" />Silence …</button>}
        </div>
      </div>
      {refused && <Trouble text={refused} />}
      {worst.problem && <Trouble text={worst.problem} warn />}
      {keys.length > 0 && <Keys keys={keys} of={one.alert} silence={silence} />}
      {worst.untracked > 0 && <p class="quiet">{counted(worst.untracked, "key")} more stood out at once than are watched one by one.</p>}
      {shown && <Told one={one} />}
    </li>
  );
}

function Keys({ keys, of, silence }: { keys: AlertFacts[]; of: string; silence: (key: Key) => void }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`keys of ${of}`}><table>
      <thead><tr><th scope="col">of</th><th scope="col">state</th><th scope="col">since</th><th scope="col">for</th><th scope="col">told</th><th scope="col">the row that raised it</th><th scope="col"><span class="hidden-words">silence</span></th></tr></thead>
      <tbody>{keys.map((one) => (
        <tr key={`${one.episode ?? JSON.stringify(one.key)}`}>
          <th scope="row"><Given text={one.key ? inWords(one.key) : one.job} first={120} /></th><td><Pill state={one.state} /></td>
          <td>{one.since ? clock(one.since) : NONE}</td><td>{one.since ? since(one.since) : NONE}</td><td>{one.notified ? NOTIFIED[one.notified] : NONE}</td>
          <td class="long mono">{one.row ? <Given text={inWords(one.row)} first={240} /> : NONE}</td>
          <td>{isQuiet(one) ? <span class="quiet">silenced</span> : one.key && one.state !== "resolved" && <button type="button" class="plain" aria-label={`Silence ${of} of ${inWords(one.key)}`} onClick={() => silence(one.key)}>Silence …</button>}</td>
        </tr>
      ))}</tbody>
    </table></div>
  );
}

function Told({ one }: { one: Standing }) {
  const { answer, error } = useAsked<Notification[]>(`${pathOf(one)}/notifications?last=20`, EVERY);
  if (answer === null) return error ? <Trouble text={error} /> : <Wait />;
  if (!answer.length) return <p class="quiet">Nothing was told yet.</p>;
  return (
    <div class="scroll tall" tabIndex={0} role="region" aria-label={`what was told of ${one.alert}`}><table>
      <thead><tr><th scope="col">at</th><th scope="col">what</th><th scope="col">of</th><th scope="col">came of it</th><th scope="col" class="number">tries</th></tr></thead>
      <tbody>{answer.map((line, i) => (
        <tr key={i}><td>{clock(line.at)}</td><td><Pill state={line.state} /></td><td><Given text={inWords(line.key)} first={120} /></td><td class="long">{line.outcome}{line.sent_at && ` at ${clock(line.sent_at)}`}{line.problem && <span class="warn"> {line.problem}</span>}</td><td class="number">{count(line.tries)}</td></tr>
      ))}</tbody>
    </table></div>
  );
}

function Silence({ of, only, close }: { of: Standing; only: Key; close: () => void }) {
  const [duration, choose] = useState("1 hour");
  const [refused, say] = useState<string | null>(null);
  const go = async (event: Event) => {
    event.preventDefault();
    const wish: SilenceWish = only ? { for: duration, key: only } : { for: duration };
    try {
      await tell("POST", `${pathOf(of)}/silence`, wish);
      close();
    } catch (error) {
      say(told(error));
    }
  };
  return (
    <Modal title={`Silence ${of.alert}`} close={close}>
      <form onSubmit={go}>
        <p>Nobody is told about <b>{of.alert}</b> of <b>{of.job}</b>{only && <> for <b><Given text={inWords(only)} first={120} /></b></>} for a while. It goes on standing here; what still fires when the silence is over is told then.</p>
        <label class="field">for<select value={duration} onChange={(event) => choose(event.currentTarget.value)}>{DURATIONS.map((one) => <option key={one}>{one}</option>)}</select></label>
        {refused && <Trouble text={refused} />}
        <div class="row"><button type="button" onClick={close}>Cancel</button><button type="submit" class="first">Silence for {duration}</button></div>
      </form>
    </Modal>
  );
}
