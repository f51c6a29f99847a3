// SPDX-License-Identifier: Apache-2.0
// api.js - requests to /v1, and the session. The cookie of the session is out of reach for scripts;
// the second half of the proof, the value of X-Weft-CSRF, is kept here for all tabs of this origin.
const KEY = "weft-csrf";

export class ApiError extends Error {
	constructor(status, text) {
		super(text);
		this.status = status;
	}
}

function csrf() {
	try {
		return localStorage.getItem(KEY) || "";
	} catch {
		return ""; // storage is switched off
	}
}

function keep(value) {
	try {
		if (value)
			localStorage.setItem(KEY, value);
		else
			localStorage.removeItem(KEY);
	} catch {
		throw new Error("this browser keeps nothing for this page: allow it to store data");
	}
}

export async function ask(method, target, body) {
	const headers = {Accept: "application/json"};
	if (csrf())
		headers["X-Weft-CSRF"] = csrf();
	const reply = await fetch(target, {method, headers, body, credentials: "same-origin",
		cache: "no-store", redirect: "error", signal: AbortSignal.timeout(20000)});
	let json = null;
	try {
		json = await reply.json();
	} catch {
		throw new ApiError(reply.status, `the answer to ${target} is no JSON`);
	}
	// 503 of health is an answer: the server says why it does not serve.
	if (!reply.ok && !(target.startsWith("/v1/health") && json.status))
		throw new ApiError(reply.status, json.error || `status ${reply.status}`);
	return json;
}

// args: {name: value}; a value that is encoded already is an array of one text.
export function query(path, args) {
	const list = Object.entries(args || {}).map(([k, v]) =>
		`${k}=${Array.isArray(v) ? v[0] : encodeURIComponent(v)}`);
	return list.length ? `${path}?${list.join("&")}` : path;
}

export function get(path, args) {
	return ask("GET", query(path, args));
}

export function session() {
	return get("/v1/session");
}

export async function login(token) {
	const s = await ask("POST", "/v1/session", token);
	keep(s.csrf);
	return s;
}

export async function logout() {
	try {
		await ask("DELETE", "/v1/session");
	} finally {
		keep(null);
	}
}

const ROLES = ["none", "read", "operate", "admin"];

export function may(s, role) {
	return ROLES.indexOf(s?.role) >= ROLES.indexOf(role);
}
