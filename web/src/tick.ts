// Keeps relative times such as "24 s ago" up to date.

import { useEffect, useState } from "preact/hooks";

/** Renders a view again every `seconds`. */
export function useTick(seconds: number): void {
  const [, next] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) next((n) => n + 1); }, seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
}
