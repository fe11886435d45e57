// Times such as "24 s ago" grow old while nothing else changes.

import { useEffect, useState } from "preact/hooks";

/** Shows a view again every so many seconds. */
export function useTick(seconds: number): void {
  const [, next] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) next((n) => n + 1); }, seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
}
