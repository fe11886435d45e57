// The frame around every view: navigation, connection state, and the view without a token.

import { useEffect, useRef } from "preact/hooks";
import { ALERTS, Alerts } from "./alerts";
import { takeToken, useConnection } from "./connection";
import { count } from "./format";
import { Group, Groups } from "./groups";
import { Job } from "./jobs/job";
import { Jobs } from "./jobs/jobs";
import { useAsked } from "./live";
import mark from "./mark.svg";
import { Empty } from "./parts/facts";
import { Icon } from "./parts/icon";
import { address, useRoute, type Route } from "./route";
import { Themes } from "./theme";
import { Topic } from "./topics/topic";
import { Topics } from "./topics/topics";
import type { AlertFacts } from "./types";
import { visible } from "./parts/visible";

const SECTIONS = [["jobs", "Jobs"], ["topics", "Topics"], ["groups", "Groups"], ["alerts", "Alerts"]] as const;
const EVERY = 10;

export function App() {
  const route = useRoute(takeToken);
  const { link, sentence, refused } = useConnection();
  const main = useRef<HTMLElement>(null);
  const place = `${route.section}/${route.name ?? ""}`;
  const previous = useRef(place);
  useEffect(() => {
    document.title = visible([route.name ?? SECTIONS.find(([section]) => section === route.section)?.[1], "Millstream"].filter(Boolean).join(" · "));
    if (previous.current === place) return;
    previous.current = place;
    scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
  }, [place]);
  const lost = link === "lost" && !refused;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>Skip to the content</a>
      <div class="frame">
        <header class="side"><div class="stick">
          <a href={address("jobs")} class="brand"><img src={mark} alt="" width="28" height="28" /><span class="words">Millstream</span></a>
          {!refused && <Sections here={route.section} />}
          <div class="foot">
            {!refused && <span class={`link ${link}`}><i /><span class="words">{link === "live" ? "live" : link === "lost" ? "connection lost" : "connecting …"}</span></span>}
            <Themes />
          </div>
        </div></header>
        <div class="page">
          <div role="status">{lost && <p class="banner">{sentence ?? "Connection lost, reconnecting …"}</p>}</div>
          <main ref={main} id="main" tabIndex={-1} class={lost ? "stale" : ""}>{refused ? <NoToken /> : <View route={route} />}</main>
        </div>
      </div>
    </>
  );
}

function Sections({ here }: { here: string }) {
  const { answer } = useAsked<AlertFacts[]>(ALERTS, EVERY);
  const firing = answer?.filter((alert) => alert.state === "firing").length ?? 0;
  return (
    <nav aria-label="sections"><ul>
      {SECTIONS.map(([section, words]) => (
        <li key={section}><a href={address(section)} aria-current={section === here ? "page" : undefined}>
          <Icon name={section} /><span class="words">{words}</span>
          {section === "alerts" && firing > 0 && <span class="tally">{count(firing)}<span class="hidden-words"> firing</span></span>}
        </a></li>
      ))}
    </ul></nav>
  );
}

function View({ route: { section, name, tab, query } }: { route: Route }) {
  switch (section) {
    case "jobs": return name === null ? <Jobs /> : <Job key={name} name={name} tab={tab} query={query} />;
    case "topics": return name === null ? <Topics /> : <Topic key={name} name={name} tab={tab} query={query} />;
    case "groups": return name === null ? <Groups /> : <Group key={name} name={name} />;
    case "alerts": return <Alerts />;
    default: return <Empty title="Page not found"><a class="button" href={address("jobs")}>All jobs</a></Empty>;
  }
}

const NoToken = () => (
  <section class="card empty lonely">
    <h1>This page needs its token</h1>
    <p>Jobs and records are shown only with the token of this stack. Print the link that contains it, and open it:</p>
    <pre>millstream status</pre>
    <p class="quiet"><code>millstream up</code> prints the same link.</p>
  </section>
);
