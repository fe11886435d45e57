// In every text, label and tooltip of the page, invisible characters and those that change the text direction
// are escaped, as `millstream tail` does.

import { options, type ComponentChildren, type VNode } from "preact";

const STRANGE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff\u{e0000}-\u{e007f}]/u;
const EVERY = new RegExp(STRANGE.source, "gu");
const LABELS = ["title", "aria-label", "aria-description", "aria-valuetext", "alt", "label", "placeholder"];

export const isStrange = (letter: string): boolean => STRANGE.test(letter);

/** The text with such characters escaped, as `\u202e`. */
export const visible = (text: string): string =>
  STRANGE.test(text) ? text.replace(EVERY, (letter) => {
    const code = letter.codePointAt(0)!.toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
  }) : text;

const escaped = (children: ComponentChildren): ComponentChildren =>
  typeof children === "string" ? visible(children) : Array.isArray(children) ? children.map(escaped) : children;

/** Applies `visible` to every element; the content of form fields is unchanged. */
export function keepVisible(): void {
  const previous = options.vnode;
  options.vnode = (node: VNode) => {
    if (typeof node.type === "string" && node.type !== "textarea") {
      const props = node.props as Record<string, unknown>;
      if (node.type === "option" && typeof props.children === "string") props.value ??= props.children;
      props.children = escaped(props.children as ComponentChildren);
      for (const name of LABELS) {
        const text = props[name];
        if (typeof text === "string") props[name] = visible(text);
      }
    }
    previous?.(node);
  };
}
