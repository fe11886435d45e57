// Consumer groups: their members, positions and lag.

import { compact, count, counted, NONE } from "./format";
import { useAsked } from "./live";
import { Empty, Meter, Pill, Tile, Tiles, Trouble, Wait } from "./parts/facts";
import { address } from "./route";
import type { GroupDetail, GroupFacts, GroupPartition } from "./types";

const EVERY = 3;

export function Groups() {
  const { answer, error } = useAsked<GroupFacts[]>("/api/groups", EVERY);
  return (
    <>
      <header class="head"><div><h1>Groups</h1><p class="quiet">consumer groups of the cluster, with their members and lag</p></div></header>
      {error && <Trouble text={error} />}
      {!answer ? (!error && <Wait />) : answer.length ? (
        <section class="card"><div class="scroll" tabIndex={0} role="region" aria-label="groups"><table>
          <thead><tr><th scope="col">group</th><th scope="col" class="number">lag</th><th scope="col">state</th><th scope="col" class="number">members</th><th scope="col">topics</th></tr></thead>
          <tbody>{answer.map((group) => (
            <tr key={group.group} data-group={group.group}>
              <th scope="row"><a href={address("groups", group.group)}>{group.group}</a></th><td class="number" data-fact="lag">{count(group.lag)}</td><td><Pill state={group.state} /></td>
              <td class="number">{count(group.members)}</td><td class="long">{group.topics === null ? NONE : group.topics.join(", ")}</td>
            </tr>
          ))}</tbody>
        </table></div></section>
      ) : <Empty title="No groups yet"><p>A job commits its offsets to the group <code>millstream.JOB</code>.</p></Empty>}
    </>
  );
}

export function Group({ name }: { name: string }) {
  const { answer, error } = useAsked<GroupDetail>(`/api/groups/${encodeURIComponent(name)}`, EVERY);
  return (
    <>
      <header class="head"><div><a class="crumb" href={address("groups")}>Groups /</a><h1>{name}{answer && <Pill state={answer.state} />}</h1></div></header>
      {error && <Trouble text={error} />}
      {!answer ? (!error && <Wait />) : <Shown group={answer} />}
    </>
  );
}

function Shown({ group }: { group: GroupDetail }) {
  const most = Math.max(1, ...group.partitions.map((part) => part.lag));
  return (
    <>
      <Tiles label="summary of the group">
        <Tile label="lag" value={compact(group.lag)} fact="lag" note="unread records" />
        <Tile label="members" value={count(group.members.length)} />
        <Tile label="partitions" value={count(group.partitions.length)} />
      </Tiles>
      <section class="card"><h2>Lag per partition</h2><div class="scroll" tabIndex={0} role="region" aria-label="lag per partition"><table>
        <thead><tr><th scope="col">topic</th><th scope="col" class="number">partition</th><th scope="col" class="number">committed</th><th scope="col" class="number">end</th><th scope="col" class="number">lag</th><th scope="col"><span class="hidden-words">share of the largest</span></th><th scope="col">member</th></tr></thead>
        <tbody>{group.partitions.map((part) => <Row key={`${part.topic}/${part.partition}`} part={part} most={most} />)}</tbody>
      </table></div></section>
      {group.members.length > 0 && (
        <section class="card"><h2>Members</h2><div class="scroll" tabIndex={0} role="region" aria-label="members"><table>
          <thead><tr><th scope="col">member</th><th scope="col">client</th><th scope="col">host</th><th scope="col">partitions</th></tr></thead>
          <tbody>{group.members.map((member) => <tr key={member.member}><th scope="row" class="mono">{member.member}</th><td>{member.client}</td><td>{member.host}</td><td class="long">{member.idle ? <span class="quiet">none</span> : member.partitions.join(", ")}</td></tr>)}</tbody>
        </table></div></section>
      )}
    </>
  );
}

function Row({ part, most }: { part: GroupPartition; most: number }) {
  return (
    <tr>
      <th scope="row"><a href={address("topics", part.topic)}>{part.topic}</a></th><td class="number">{part.partition}</td>
      <td class="number">{part.committed === null ? <span class="quiet">nothing yet</span> : count(part.committed)}</td><td class="number">{count(part.end)}</td>
      <td class="number">{count(part.lag)}{part.gone > 0 && <span class="bad"> {counted(part.gone, "record")} deleted unread</span>}</td>
      <td class="bar"><Meter label={`${count(part.lag)} records`} parts={[["fill", part.lag / most]]} /></td><td class="mono">{part.member ?? NONE}</td>
    </tr>
  );
}
