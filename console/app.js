// SPDX-License-Identifier: Apache-2.0
// app.js - the frame: login, the pages by the hash of the address, and a look at the server each
// two seconds while the page can be seen.
import {render} from "./vendor/preact.js";
import {html} from "./html.js";
import * as api from "./api.js";
import {History} from "./charts.js";
import {Question, Safe} from "./parts.js";
import {time} from "./text.js";
import {pages} from "./views.js";

const EACH_MS = 2000;
const s = {session: null, page: "health", arg: "", data: {}, health: null, servers: null,
	history: new History(), error: null, refused: null, since: null, ask: null, live: "",
	theme: kept_theme(), kind: ""};
let timer = null, asking = 0;

// ---- colours

function kept_theme() {
	try {
		return localStorage.getItem("weft-theme") || "system";
	} catch {
		return "system";
	}
}

function set_theme(theme) {
	if (theme === "system")
		delete document.documentElement.dataset.theme;
	else
		document.documentElement.dataset.theme = theme;
	try {
		localStorage.setItem("weft-theme", theme);
	} catch {
		// It holds until the page is closed.
	}
	set({theme});
}

// ---- state

function set(change) {
	Object.assign(s, change);
	draw();
}

// For screen readers.
function say(live) {
	if (live !== s.live)
		set({live});
}

function route() {
	const [, page, arg] = /^#\/([a-z]+)(\/.*)?$/.exec(location.hash) || [];
	return {page: Object.hasOwn(pages, page || "") ? page : "health", arg: arg || ""};
}

function on_route() {
	const to = route();
	if (to.page === s.page && to.arg === s.arg)
		return;
	set({...to, data: {}, refused: null});
	look();
	document.querySelector("h1")?.focus();
	scrollTo(0, 0);
}

// ---- looking

function said_health(h) {
	return `Health: ${h.health}, ${h.reasons.length} ${
		h.reasons.length === 1 ? "reason" : "reasons"}`;
}

// The server's answer when the session is over: back to the login.
async function lost(e) {
	if (e.status !== 401 && e.status !== 403)
		return false;
	const session = await api.session();
	if (api.may(session, "read"))
		return false;
	set({session});
	return true;
}

async function look_once(mine) {
	const page = pages[s.page], arg = s.arg;
	const [health, ds] = await Promise.all([api.get("/v1/health"), api.get("/v1/ds")]);
	if (mine !== asking)
		return;
	if (s.since !== null || !s.health || said_health(health) !== said_health(s.health))
		say(said_health(health));
	s.history.add(ds.ds);
	set({health, servers: ds.ds, error: null, since: null});
	try {
		const data = await page.load(arg, s.data);
		if (mine === asking)
			set({data, refused: null});
	} catch (e) {
		// 4xx: the server answers, but not this.
		if (!(e instanceof api.ApiError) || e.status >= 500 || e.status === 401 ||
			e.status === 403)
			throw e;
		if (mine === asking)
			set({refused: e.message, data: {}});
	}
}

async function look() {
	const mine = ++asking;
	clearTimeout(timer);
	if (document.hidden || !api.may(s.session, "read"))
		return;
	try {
		await look_once(mine);
	} catch (e) {
		try {
			if (await lost(e))
				return;
		} catch {
			// The first error says more.
		}
		if (mine === asking) {
			say("The server does not answer");
			set({error: e.message, since: s.since ?? Date.now() / 1000});
		}
	}
	if (mine === asking)
		timer = setTimeout(look, EACH_MS);
}

// ---- changes

function act(ask) {
	set({ask});
}

async function acted(yes) {
	const ask = s.ask;
	set({ask: null});
	if (!yes)
		return;
	try {
		const [method, path, args] = ask.request;
		await api.ask(method, api.query(path, args));
		set({done: ask.said, done_bad: false});
	} catch (e) {
		set({done: e.message, done_bad: true});
	}
	look();
}

async function login(e) {
	e.preventDefault();
	const field = e.target.elements.token, token = field.value.trim();
	if (!token) {
		set({wrong: "Paste a token."});
		return;
	}
	try {
		set({session: await api.login(token), wrong: null, done: null});
		field.value = "";
		look();
	} catch (why) {
		set({wrong: why.message});
		field.focus();
	}
}

async function logout() {
	try {
		await api.logout();
	} catch {
		// It was over already.
	}
	asking++;
	clearTimeout(timer);
	set({session: await api.session().catch(() => ({role: "none"})), data: {}, servers: null,
		health: null, done: null, history: new History()});
	look();
}

// ---- the frame

function Login() {
	return html`<main id="main" tabindex="-1" class="login">
		<h1 tabindex="-1">weft</h1>
		<form onSubmit=${login}>
			<label for="token">Token</label>
			<input id="token" name="token" type="password" autocomplete="off"
				spellcheck=${false} autofocus aria-describedby="token-help"
				aria-invalid=${s.wrong ? "true" : null}/>
			<p role="alert" class="wrong">${s.wrong}</p>
			<button type="submit" class="do">Log in</button>
		</form>
		<p id="token-help" class="quiet">An administrator makes one with
			${" "}<code>weft token create --role read</code>. A browser with a client
			certificate needs none.</p>
		${s.session.who && html`<p>${s.session.who} has no role here.</p>`}
	</main>`;
}

function Theme() {
	return html`<label class="theme">Colours${" "}
		<select onChange=${e => set_theme(e.target.value)}>
			${["system", "light", "dark"].map(t => html`<option key=${t} value=${t}
				selected=${t === s.theme}>${t}</option>`)}
		</select></label>`;
}

function Head() {
	return html`<header>
		<a class="skip" href="#main" onClick=${e => {
			e.preventDefault();
			document.getElementById("main").focus();
		}}>Skip to the content</a>
		<span class="brand">weft</span>
		<nav aria-label="Pages"><ul>${Object.entries(pages).map(([name, p]) => html`
			<li key=${name}><a href=${`#/${name}`}
				aria-current=${name === s.page ? "page" : null}>${p.title}</a></li>`)}
		</ul></nav>
		<div class="who">
			<${Theme}/>
			<span>${s.session.who} (${s.session.role})</span>
			${s.session.session && html`<button type="button" onClick=${logout}>Log out</button>`}
		</div>
	</header>`;
}

function Page() {
	const page = pages[s.page];
	return html`<${Head}/>
		<main id="main" tabindex="-1" class=${s.error ? "old" : ""}>
			<h1 tabindex="-1">${page.title}</h1>
			${s.error && html`<p class="banner bad">The server does not answer since ${" "}
				${time(s.since)}: ${s.error}. What is shown is old.</p>`}
			${s.done && html`<p class=${`banner ${s.done_bad ? "bad" : "good"}`} role="status">
				${s.done}${" "}<button type="button"
				onClick=${() => set({done: null})}>Close</button></p>`}
			${s.refused && html`<p class="banner warn" role="status">${s.refused}</p>`}
			<${Safe} key=${s.page + s.arg}>${page.view({s, act, set, go: to => { location.hash = to; }, more: () => {
				s.data.limit = Math.min(2 * (s.data.limit || 200), 1000);
				look();
			}})}<//>
		</main>
		<${Question} ask=${s.ask} done=${acted}/>`;
}

function draw() {
	const inside = api.may(s.session, "read");
	document.title = inside ? `${pages[s.page].title} - weft` : "weft";
	render(html`${s.session && (inside ? html`<${Page}/>` : html`<${Login}/>`)}
		${s.session_error && html`<main><h1>weft</h1><p role="alert">${s.session_error}</p></main>`}
		<div class="hidden" role="status" aria-live="polite">${s.live}</div>`,
	document.getElementById("app"));
}

async function start() {
	Object.assign(s, route());
	set_theme(s.theme);
	addEventListener("hashchange", on_route);
	document.addEventListener("visibilitychange", look);
	try {
		set({session: await api.session(), session_error: null});
		look();
	} catch (e) {
		set({session_error: `The server does not answer: ${e.message}`});
		setTimeout(start_again, EACH_MS);
	}
}

async function start_again() {
	try {
		set({session: await api.session(), session_error: null});
		look();
	} catch {
		setTimeout(start_again, EACH_MS);
	}
}

start();
