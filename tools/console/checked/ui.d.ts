// Stands beside the vendored bundle (tools/console/ui.js), with the types of the packages that it is made of.
import * as signals from "@preact/signals";

export { h, render, Fragment, createContext, createRef } from "preact";
export { useEffect, useLayoutEffect, useMemo, useCallback, useContext, useId } from "preact/hooks";
export { computed, effect, batch, untracked, useComputed, useSignalEffect } from "@preact/signals";
export function html(parts: TemplateStringsArray, ...values: any[]): any;

// What begins as null, undefined or [] has no type of its own: it may become anything.
type Begun<Value> = [Value] extends [null | undefined]
  ? any
  : [Value] extends [never[]]
    ? any[]
    : Value extends Function | Set<any> | Map<any, any>
      ? Value
      : Value extends object
        ? { [Key in keyof Value]: Begun<Value[Key]> }
        : Value;
export function useState<Value>(begin: Value | (() => Value)): [Begun<Value>, (next: Begun<Value> | ((before: Begun<Value>) => Begun<Value>)) => void];
export function useRef<Value>(begin?: Value): { current: Begun<Value> };
export function signal<Value>(begin: Value): signals.Signal<Begun<Value>>;
export function useSignal<Value>(begin: Value): signals.Signal<Begun<Value>>;
