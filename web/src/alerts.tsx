// Alerts with their keys, the notifications they sent, and silences.

import { useState } from "preact/hooks";
import { clock, count, counted, moment, NONE, since } from "./format";
import { send, errorText, useAsked } from "./live";
import { Modal } from "./parts/dialog";
import { Empty, Pill, Tile, Tiles, Trouble, Wait } from "./parts/facts";
import { Given } from "./parts/given";
import { Icon } from "./parts/icon";
import { address } from "./route";
import type { AlertFacts, Notification, SilenceWish, Value } from "./types";

export const ALERTS = "/api/alerts";
const EVERY = 2;
const DURATIONS = ["10 minutes", "1 hour", "8 hours", "1 day", "7 days"];
const NOTIFICATION: Record<string, string> = { yes: "sent", waiting: "sending", silenced: "silenced", failed: "failed" };

type Key = AlertFacts["key"];

/** An alert with its keys that are pending, firing or resolved, the worst first. */
interface GroupedAlert { job: string; alert: string; worst: AlertFacts; keys: AlertFacts[] }

function grouped(all: AlertFacts[]): GroupedAlert[] {
  const found = new Map<string, GroupedAlert>();
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
  const [wish, choose] = useState<{ of: GroupedAlert; key: Key } | null>(null);
  const of = (state: AlertFacts["state"]) => answer?.filter((one) => one.state === state).length ?? 0;
  return (
    <>
      <header class="head"><div><h1>Alerts</h1><p class="quiet">raised by <code>ms.Alert</code> on rows, and by <code>ms.JobAlert</code> on jobs themselves</p></div></header>
      {error && <Trouble text={error} />}
      {!answer ? (!error && <Wait />) : (
        <>
          <Tiles label="summary of alerts">
            <Tile label="firing" value={count(of("firing"))} tone={of("firing") ? "bad" : ""} fact="firing" note="notifications sent" />
            <Tile label="pending" value={count(of("pending"))} tone={of("pending") ? "warn" : ""} fact="pending" note="condition holds, but not long enough" />
            <Tile label="resolved" value={count(of("resolved"))} fact="resolved" note="condition no longer holds" />
            <Tile label="ok" value={count(of("ok"))} fact="ok" note="condition does not hold" />
          </Tiles>
          {answer.length ? <ul class="alerts">{grouped(answer).map((one) => <Alert key={`${one.job}/${one.alert}`} one={one} silence={(key) => choose({ of: one, key })} again={again} />)}</ul>
            : <Empty title="No alerts"><p>Add one to a pipeline with <code>stream.to(ms.Alert("pages fail", when="failures &gt; 5"))</code>.</p></Empty>}
        </>
      )}
      {wish && <Silence of={wish.of} only={wish.key} close={() => { choose(null); again(); }} />}
    </>
  );
}

const pathOf = ({ job, alert }: { job: string; alert: string }): string => `${ALERTS}/${encodeURIComponent(job)}/${encodeURIComponent(alert)}`;

const inWords = (row: Record<string, Value>): string =>
  Object.entries(row).map(([name, value]) => `${name} ${typeof value === "string" ? moment(value) : JSON.stringify(value)}`).join(" · ") || "all rows";

/** `Email('ann@example.com', url=…)` as "Email ann@example.com". */
const receiver = (to: string): string => to.replace(/^(\w+)\('([^']*)'.*$/s, "$1 $2");

const isQuiet = (one: AlertFacts): boolean => one.silenced_until !== null && Date.parse(one.silenced_until) > Date.now();

function Alert({ one, silence, again }: { one: GroupedAlert; silence: (key: Key) => void; again: () => void }) {
  const [shown, show] = useState(false);
  const [refused, say] = useState<string | null>(null);
  const { worst, keys } = one, silenced = isQuiet(worst);
  const end = async () => {
    try {
      await send("POST", `${pathOf(one)}/silence`, { for: null } satisfies SilenceWish);
      say(null);
      again();
    } catch (error) {
      say(errorText(error));
    }
  };
  return (
    <li class={`card alert is-${worst.state}`} data-alert={one.alert}>
      <div class="titled">
        <div class="about">
          <h2>{one.alert} <Pill state={worst.state} />{silenced && <span class="tag">silenced until {clock(worst.silenced_until!)}</span>}</h2>
          <p class="quiet"><a href={address("jobs", one.job)}>{one.job}</a> · when <code>{worst.when}</code> · {worst.to.length ? `notifies ${worst.to.map(receiver).join(", ")}` : "shown here only, no receivers"}</p>
        </div>
        <div class="row">
          <button type="button" aria-expanded={shown} onClick={() => show(!shown)}>Notifications</button>
          {silenced ? <button type="button" onClick={() => void end()}>End silence</button> : <button type="button" onClick={() => silence(null)}><Icon name="quiet" />Silence …</button>}
        </div>
      </div>
      {refused && <Trouble text={refused} />}
      {worst.problem && <Trouble text={worst.problem} warn />}
      {keys.length > 0 && <Keys keys={keys} of={one.alert} silence={silence} />}
      {worst.untracked > 0 && <p class="quiet">{counted(worst.untracked, "more key")} met the condition; they are counted, not tracked.</p>}
      {shown && <Notifications one={one} />}
    </li>
  );
}

function Keys({ keys, of, silence }: { keys: AlertFacts[]; of: string; silence: (key: Key) => void }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`keys of ${of}`}><table>
      <thead><tr><th scope="col">key</th><th scope="col">state</th><th scope="col">since</th><th scope="col">for</th><th scope="col">notification</th><th scope="col">last row that met the condition</th><th scope="col"><span class="hidden-words">silence</span></th></tr></thead>
      <tbody>{keys.map((one) => (
        <tr key={`${one.episode ?? JSON.stringify(one.key)}`}>
          <th scope="row"><Given text={one.key ? inWords(one.key) : one.job} first={120} /></th><td><Pill state={one.state} /></td>
          <td>{one.since ? clock(one.since) : NONE}</td><td>{one.since ? since(one.since) : NONE}</td><td>{one.notified ? NOTIFICATION[one.notified] : NONE}</td>
          <td class="long mono">{one.row ? <Given text={inWords(one.row)} first={240} /> : NONE}</td>
          <td>{isQuiet(one) ? <span class="quiet">silenced</span> : one.key && one.state !== "resolved" && <button type="button" class="plain" aria-label={`Silence ${of} for ${inWords(one.key)}`} onClick={() => silence(one.key)}>Silence …</button>}</td>
        </tr>
      ))}</tbody>
    </table></div>
  );
}

function Notifications({ one }: { one: GroupedAlert }) {
  const { answer, error } = useAsked<Notification[]>(`${pathOf(one)}/notifications?last=20`, EVERY);
  if (answer === null) return error ? <Trouble text={error} /> : <Wait />;
  if (!answer.length) return <p class="quiet">No notifications yet.</p>;
  return (
    <div class="scroll tall" tabIndex={0} role="region" aria-label={`notifications of ${one.alert}`}><table>
      <thead><tr><th scope="col">time</th><th scope="col">state</th><th scope="col">key</th><th scope="col">delivery</th><th scope="col" class="number">attempts</th></tr></thead>
      <tbody>{answer.map((line, i) => (
        <tr key={i}><td>{clock(line.at)}</td><td><Pill state={line.state} /></td><td><Given text={inWords(line.key)} first={120} /></td><td class="long">{line.outcome}{line.sent_at && ` at ${clock(line.sent_at)}`}{line.problem && <span class="warn"> {line.problem}</span>}</td><td class="number">{count(line.tries)}</td></tr>
      ))}</tbody>
    </table></div>
  );
}

function Silence({ of, only, close }: { of: GroupedAlert; only: Key; close: () => void }) {
  const [duration, choose] = useState("1 hour");
  const [refused, say] = useState<string | null>(null);
  const go = async (event: Event) => {
    event.preventDefault();
    const wish: SilenceWish = only ? { for: duration, key: only } : { for: duration };
    try {
      await send("POST", `${pathOf(of)}/silence`, wish);
      close();
    } catch (error) {
      say(errorText(error));
    }
  };
  return (
    <Modal title={`Silence ${of.alert}`} close={close}>
      <form onSubmit={go}>
        <p>Sends no notifications of <b>{of.alert}</b> of <b>{of.job}</b>{only && <> for <b><Given text={inWords(only)} first={120} /></b></>} during this time. The alert is still shown here; if it is still firing when the silence ends, the notification is sent then.</p>
        <label class="field">for<select value={duration} onChange={(event) => choose(event.currentTarget.value)}>{DURATIONS.map((one) => <option key={one}>{one}</option>)}</select></label>
        {refused && <Trouble text={refused} />}
        <div class="row"><button type="button" onClick={close}>Cancel</button><button type="submit" class="first">Silence for {duration}</button></div>
      </form>
    </Modal>
  );
}
