// Stands beside the vendored bundle (tools/console/ui.js), with the types of the packages that it is made of.
export { h, render, Fragment, createContext, createRef } from "preact";
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useId } from "preact/hooks";
export { signal, computed, effect, batch, untracked, useSignal, useComputed, useSignalEffect } from "@preact/signals";
export function html(parts: TemplateStringsArray, ...values: any[]): any;
