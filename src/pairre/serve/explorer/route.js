// Addresses of pages. They are in the fragment, so that a name may be anything, and no server log holds what was asked.

let defaultRun = "";
export const setDefaultRun = (name) => {
  defaultRun = name;
};

export function route() {
  // The page and its parameters that the address names.
  const [page, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parameters = new URLSearchParams(query);
  return { page, parameters, run: parameters.get("run") || defaultRun };
}
export function link(page, parameters = {}, run = route().run) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters))
    if (value !== null && value !== undefined && value !== "" && value !== false) query.set(key, value);
  if (run && run !== defaultRun) query.set("run", run);
  const text = query.toString();
  return `#/${page}${text && `?${text}`}`;
}
export const entityLink = (ref) => link("entity", { name: ref.name });
export const relationLink = (ref) => link("relation", { name: ref.name });
export const askLink = (query, more = {}) =>
  link("ask", { head: query.head?.name, relation: query.relation?.name, tail: query.tail?.name, ...more });
