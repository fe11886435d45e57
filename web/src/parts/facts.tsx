// Small parts: tiles, pills, sparklines, meters, tabs and messages.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Pill({ state }: { state: string }) {
  return <span class={`pill is-${state.replaceAll(" ", "-")}`} data-fact="state">{state}</span>;
}

export function Tile({ label, value, fact, note, tone = "" }: { label: string; value: string; fact?: string; note?: string | undefined; tone?: string }) {
  return (
    <div class={`tile ${tone}`} data-fact={fact}>
      <dt class="label">{label}</dt>
      <dd class="value" title={value}>{value}</dd>
      {note && <dd class="note" title={note}>{note}</dd>}
    </div>
  );
}

export function Tiles({ label, children }: { label: string; children: ComponentChildren }) {
  return <section aria-label={label}><dl class="tiles">{children}</dl></section>;
}

/** A line without axes; `label` describes it for screen readers. */
export function Spark({ values: given, label }: { values: number[]; label: string }) {
  const values = given.length === 1 ? [...given, ...given] : given;
  const width = 120, height = 28, most = Math.max(1e-9, ...values);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((v, i) => `${(i * step).toFixed(1)},${(height - 2 - (v / most) * (height - 4)).toFixed(1)}`);
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label} preserveAspectRatio="none">
      {values.length > 1 && (
        <>
          <polygon points={`0,${height} ${points.join(" ")} ${width},${height}`} />
          <polyline points={points.join(" ")} />
        </>
      )}
    </svg>
  );
}

/** A bar divided into shares; the rest keeps the background colour. */
export function Meter({ parts, label }: { parts: [name: string, share: number][]; label: string }) {
  let x = 0;
  return (
    <svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label={label}>
      {parts.map(([name, share]) => {
        const at = x;
        x += share * 100;
        return <rect key={name} class={name} x={at} y="0" width={Math.max(0, share * 100)} height="6" />;
      })}
    </svg>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <section class="card empty"><h2>{title}</h2>{children}</section>;
}

export const Wait = () => <p class="wait">loading …</p>;

export function Trouble({ text, warn }: { text: string; warn?: boolean }) {
  return <p class={`trouble ${warn ? "warn" : ""}`}>{text}</p>;
}

export interface Tab { tab: string; words: string; href: string; tally?: string | null }

/** Tabs; where they do not fit, the selected one is scrolled into view. */
export function Tabs({ tabs, here, label }: { tabs: Tab[]; here: string; label: string }) {
  const row = useRef<HTMLElement>(null);
  useEffect(() => {
    const chosen = row.current?.querySelector<HTMLElement>("[aria-current]");
    if (chosen) row.current!.scrollLeft = chosen.offsetLeft - row.current!.offsetLeft - (row.current!.clientWidth - chosen.offsetWidth) / 2;
  }, [here]);
  return (
    <nav class="tabs" ref={row} aria-label={label}>
      {tabs.map(({ tab, words, href, tally }) => (
        <a key={tab} href={href} aria-current={tab === here ? "page" : undefined}>{words}{tally && <span class="tally">{tally}</span>}</a>
      ))}
    </nav>
  );
}
