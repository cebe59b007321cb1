// Words of the console's JSDoc, and what its source relies on. Only `make console-check` reads this file.

/** What a row of a list of the API is. */
type Row<Path extends keyof Api> = Api[Path] extends { items: (infer One)[] } ? One : never;

/** A column of a table: see parts/table.js. */
type Columns<One> = Column<One>[];

interface Column<One> {
  key: string;
  label: string;
  cell: (row: One) => any;
  title?: string;
  sort?: string;
  className?: string;
  isNum?: boolean;
  isTight?: boolean;
  isHead?: boolean;
}

/** What useData answers: see parts/data.js. A path that is put together from names may answer anything. */
type Found<Path> = {
  data: Path extends keyof Api ? Api[Path] : any;
  problem: any;
  at: number;
  isOld: boolean;
  refresh: () => Promise<void>;
};

type UseData = <Path extends string | null>(
  path: Path,
  options?: {
    query?: object;
    every?: number;
    topic?: string | null;
    merge?: (frame: any, data: any) => any;
    onAnswer?: (response: Response) => void;
  },
) => Found<Path>;

// Elements that take the focus are HTML's and SVG's, which are all that the pages have.
interface Element {
  focus(options?: FocusOptions): void;
  select?(): void;
}

/** What `filter(Boolean)` leaves. */
interface Array<T> {
  filter(is: BooleanConstructor): Exclude<T, false | null | undefined | 0 | "">[];
}
