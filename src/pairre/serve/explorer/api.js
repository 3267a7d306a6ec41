// Requests to the server that gave this page out, and to no other.

const ROOT = new URL("api/v1/", document.baseURI);
const TOKEN = "pairre-token";
const MOST_KEPT = 80; // answers, so that going back is instant
const MOST_WAITS = 3; // for a server that is busy
const LONGEST_WAIT = 5; // seconds
const MOST_WAITS_FOR_PARTS = 200; // while a server that has just started computes what was asked for

export class ApiError extends Error {
  // What the server says is wrong; `status` is 0 where it could not be reached.
  constructor(message, { status = 0, code = "", suggestions = [] } = {}) {
    super(message);
    Object.assign(this, { status, code, suggestions });
  }
}

const kept = new Map();
let token = readToken();

function readToken() {
  try {
    return sessionStorage.getItem(TOKEN) ?? "";
  } catch {
    return "";
  }
}
export function useToken(text) {
  token = text;
  try {
    sessionStorage.setItem(TOKEN, text);
  } catch {
    /* it then holds until the page is closed */
  }
}

function address(path, parameters = {}) {
  const url = new URL(path, ROOT);
  for (const [key, value] of Object.entries(parameters))
    if (value !== null && value !== undefined && value !== "" && value !== false) url.searchParams.set(key, value);
  return url;
}
export const runPath = (run, what = "") => `runs/${encodeURIComponent(run)}${what && `/${what}`}`;

export const pause = (seconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal?.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });

async function request(url, options, waits = 0) {
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(url, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached. Is `pairre serve` still running?");
  }
  if (response.ok) return response;
  const said = (await response.json().catch(() => ({})))?.error ?? {};
  const wait = Number(response.headers.get("Retry-After") ?? NaN);
  const patience = said.code === "preparing" ? MOST_WAITS_FOR_PARTS : MOST_WAITS;
  if ([429, 503].includes(response.status) && waits < patience && wait <= LONGEST_WAIT) {
    await pause(Math.max(wait, 0.3), options.signal);
    return request(url, options, waits + 1);
  }
  throw new ApiError(said.message ?? `The server answers ${response.status}.`, { status: response.status, ...said });
}

export async function get(path, parameters, { signal, keep = true } = {}) {
  const url = address(path, parameters);
  const key = String(url);
  if (keep && kept.has(key)) return kept.get(key);
  const found = await (await request(url, { signal })).json();
  if (keep) {
    kept.set(key, found);
    if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
  }
  return found;
}
export async function post(path, body, { signal } = {}) {
  const headers = { "Content-Type": "application/json" };
  return (await request(address(path), { method: "POST", headers, body: JSON.stringify(body), signal })).json();
}
export async function getText(path, parameters) {
  return (await request(address(path, parameters), {})).text();
}
