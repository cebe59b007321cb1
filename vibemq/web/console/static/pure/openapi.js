// What the page of the API shows of an OpenAPI description.

const METHODS = ["get", "post", "put", "patch", "delete"];

/** Operations in the order of the description: {method, path, tag, summary, text, parameters, body}. */
export function operationsOf(description) {
  return Object.entries(description.paths ?? {}).flatMap(([path, methods]) =>
    METHODS.filter((method) => method in methods).map((method) => {
      const operation = methods[method];
      const schema = bodySchema(operation, description);
      return {
        method: method.toUpperCase(),
        path,
        tag: operation.tags?.[0] ?? path.split("/")[1] ?? "",
        summary: operation.summary ?? "",
        text: operation.description ?? "",
        parameters: [...parametersOf(operation, methods, description), ...fieldsOf(schema)],
        schema,
        content: Object.keys(operation.requestBody?.content ?? {})[0],
      };
    }),
  );
}

function parametersOf(operation, methods, description) {
  return [...(methods.parameters ?? []), ...(operation.parameters ?? [])]
    .map((one) => resolved(one, description))
    .map(({ name, in: where, required = false, description: meaning = "", schema = {} }) => ({ name, where, required, meaning, schema }));
}

function bodySchema(operation, description) {
  const content = Object.entries(operation.requestBody?.content ?? {}).find(([type]) => /json$/.test(type));
  return content ? resolved(content[1].schema ?? {}, description) : null;
}

function fieldsOf(schema) {
  const required = new Set(schema?.required ?? []);
  return Object.entries(schema?.properties ?? {}).map(([name, about]) => ({ name, where: "body", required: required.has(name), meaning: about.description ?? "", schema: about }));
}

/** References go one step at a time, and a circle of them ends. */
function resolved(value, description) {
  let found = value;
  for (let step = 0; step < 10 && found?.$ref; step += 1) {
    found = found.$ref.slice(2).split("/").reduce((part, name) => part?.[name], description);
  }
  return found ?? {};
}

/** [[tag, operations]], in the order in which tags first appear. */
export function byTag(operations) {
  const tags = new Map();
  for (const operation of operations) {
    if (!tags.has(operation.tag)) tags.set(operation.tag, []);
    tags.get(operation.tag).push(operation);
  }
  return [...tags];
}

const SAMPLES = { queue: "orders", group: "billing", user: "ann", dead_id: "17", sequence: "17", job: "17", app: "nightly", password: "…", name: "orders" };

const GUARDS = { filter: { queue: "orders" }, at_most: 0 };

/** A request with what is required, and with its guards: names in the path filled in, required parameters and fields with a sample. */
export function exampleOf(operation, description) {
  // Such a line is copied as it is: what keeps it from concerning more than was meant is in it.
  const isBounded = operation.parameters.some(({ name }) => name === "at_most");
  const isGuard = (name) => isBounded && name in GUARDS;
  const sample = (one) => (isGuard(one.name) ? GUARDS[one.name] : sampleOf(one, description));
  const needed = operation.parameters.filter(({ name, required, where }) => (required || isGuard(name)) && where !== "header");
  const query = Object.fromEntries(needed.filter(({ where }) => where === "query").map((one) => [one.name, sample(one)]));
  const path = operation.path.replace(/^\//, "").replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(SAMPLES[name] ?? name.toUpperCase()));
  if (operation.schema === null) return { path, query };
  const body = Object.fromEntries(needed.filter(({ where }) => where === "body").map((one) => [one.name, sample(one)]));
  return { path, query, body, headers: operation.method === "PATCH" && operation.content ? { "content-type": operation.content } : {} };
}

function sampleOf({ name, schema }, description) {
  const about = resolved(schema, description);
  const choices = about.anyOf ?? about.oneOf;
  if (choices) return sampleOf({ name, schema: choices.find((one) => one.type !== "null") ?? {} }, description);
  if (about.enum) return about.enum[0];
  if (about.const !== undefined) return about.const;
  const type = Array.isArray(about.type) ? about.type.find((one) => one !== "null") : about.type;
  if (type === "integer" || type === "number") return about.minimum ?? 1;
  if (type === "boolean") return true;
  if (type === "array") return about.items ? [sampleOf({ name, schema: about.items }, description)] : [];
  if (type === "object") return {};
  return SAMPLES[name] ?? name;
}
