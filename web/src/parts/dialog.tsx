// A dialog of the browser's own: it keeps the focus inside, Escape closes it, and the focus goes back.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Modal({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current!.showModal();
    return () => { if (before instanceof HTMLElement) before.focus(); };
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby="dialog-title" onCancel={(event) => { event.preventDefault(); close(); }}>
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}
