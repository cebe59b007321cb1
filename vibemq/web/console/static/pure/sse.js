// Server-sent events, cut out of text as it comes.

export class EventReader {
  #rest = "";
  #event = "message";
  #data = [];
  #id = "";

  /** The events [{event, data, id}] that this piece completes. */
  read(piece) {
    // A carriage return at the end may be half of a line end.
    const lines = (this.#rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    const made = [];
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length) made.push({ event: this.#event, data: this.#data.join("\n"), id: this.#id });
        this.#event = "message";
        this.#data = [];
        continue;
      }
      if (line.startsWith(":")) continue;
      const at = line.indexOf(":");
      const name = at < 0 ? line : line.slice(0, at);
      const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
      if (name === "event") this.#event = value;
      else if (name === "data") this.#data.push(value);
      else if (name === "id") this.#id = value;
    }
    return made;
  }
}
