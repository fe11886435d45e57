// Numbers, sizes and times as text.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const NONE = "–";

export const count = (n: number | null | undefined): string => (n === null || n === undefined ? NONE : whole.format(n));

export function compact(n: number | null | undefined): string {
  if (n === null || n === undefined) return NONE;
  return Math.abs(n) < 10_000 ? (Number.isInteger(n) ? whole.format(n) : n.toFixed(1)) : short.format(n);
}

export const counted = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`;

export const share = (part: number): string => `${part > 0 && part < 0.01 ? "< 1" : Math.round(part * 100)} %`;

export function bytes(n: number): string {
  let value = n;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (value < 1000) return unit === "B" ? `${value} B` : `${value.toFixed(1)} ${unit}`;
    value /= 1000;
  }
  return `${value.toFixed(1)} TB`;
}

export function seconds(s: number): string {
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 100) return `${s.toFixed(1)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 172_800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86_400)} d`;
}

export function since(iso: string): string {
  const past = Math.max(0, (Date.now() - Date.parse(iso)) / 1000);
  return past < 100 ? `${Math.round(past)} s` : seconds(past);
}

/** The time of day in UTC, with the date unless it is today. */
export function clock(iso: string): string {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return iso;
  if (at.getUTCFullYear() > 9000) return "the end";
  const text = at.toISOString();
  return text.slice(0, 10) === new Date().toISOString().slice(0, 10) ? text.slice(11, 19) : `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}

/** A value of a result: ISO times are shortened, everything else is unchanged. */
export function moment(text: string): string {
  const match = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.0+)?(\.\d+)?Z$/.exec(text);
  if (!match) return text;
  const today = new Date().toISOString().slice(0, 10);
  return match[1] === today ? `${match[2]}` : `${match[1]} ${match[2]}`;
}
