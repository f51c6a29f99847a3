// SPDX-License-Identifier: Apache-2.0
// text.js - figures as text. What is not known is "unknown", never 0.
export const UNKNOWN = "unknown";

function known(v) {
	return v !== null && v !== undefined;
}

export function count(v) {
	return known(v) ? v.toLocaleString("en") : UNKNOWN;
}

export function bytes(v) {
	if (!known(v))
		return UNKNOWN;
	const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
	let i = 0;
	while (v >= 1024 && i + 1 < units.length) {
		v /= 1024;
		i++;
	}
	return `${i && v < 100 ? v.toFixed(1) : Math.round(v)} ${units[i]}`;
}

export function rate(v) {
	return known(v) ? `${bytes(v)}/s` : UNKNOWN;
}

export function number(v, digits = 1) {
	return known(v) ? v.toFixed(digits) : UNKNOWN;
}

export function percent(part, whole) {
	return known(part) && whole > 0 ? `${Math.round(100 * part / whole)} %` : UNKNOWN;
}

// Microseconds; 0 stands for unknown where the API says so.
export function micros(us) {
	if (!us)
		return UNKNOWN;
	return us < 1000 ? `${us} µs` : us < 1e6 ? `${(us / 1000).toFixed(1)} ms`
		: `${(us / 1e6).toFixed(1)} s`;
}

export function seconds(s) {
	if (!known(s))
		return UNKNOWN;
	s = Math.round(s);
	if (s < 60)
		return `${s} s`;
	if (s < 3600)
		return `${Math.floor(s / 60)} min ${s % 60} s`;
	return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
}

// Seconds since 1970, as local time.
export function time(s) {
	if (!known(s))
		return UNKNOWN;
	const d = new Date(s * 1000), two = n => String(n).padStart(2, "0");
	return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ` +
		`${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

// A path of a hash route, or of an "encoded" name, for people. Bytes that are not UTF-8 are shown
// as \xNN, as the API shows them.
export function decoded(text) {
	try {
		return decodeURIComponent(text);
	} catch {
		return text.replace(/%([0-9A-Fa-f]{2})/g, (_, x) => {
			const c = parseInt(x, 16);
			return c >= 0x20 && c < 0x7f ? String.fromCharCode(c)
				: `\\x${x.toLowerCase()}`;
		});
	}
}

// A path that a person typed, or that the API gave as text, for a URL.
export function encoded(path) {
	return path.split("/").map(encodeURIComponent).join("/");
}
