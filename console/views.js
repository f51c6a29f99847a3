// SPDX-License-Identifier: Apache-2.0
// views.js - the pages. Each has load(), which asks the API, and view(), which shows the answer; a
// view gets {s: the state, act: what changes something}.
import {html} from "./html.js";
import {get, may} from "./api.js";
import {Badge, Bar, Facts, Loading, Table} from "./parts.js";
import {Layout} from "./layout.js";
import {Throughput} from "./charts.js";
import {bytes, count, decoded, encoded, micros, number, rate, seconds, time, UNKNOWN}
	from "./text.js";

const LEVEL = {ok: "good", warn: "warn", error: "bad", info: "plain"};
const SPACE = {ok: "", "near-full": "warn", full: "bad"};

// Whether the server has not answered yet: neither this, nor that it does not do so.
function waits(s, answer) {
	return !answer && !s.refused && !s.error;
}

function file_link(path) {
	return path ? html`<a href=${`#/files${encoded(path)}`}>${path}</a>` : UNKNOWN;
}

// ---- health

function Reasons({health}) {
	if (!health.reasons.length)
		return html`<p>Nothing is wrong.</p>`;
	return html`<ul class="reasons">${health.reasons.map(r => html`<li key=${r.code + r.text}>
		<${Badge} state=${r.severity} level=${LEVEL[r.severity]}/>
		<div><strong>${r.text}</strong><span class="hint">${r.hint}</span></div>
	</li>`)}</ul>`;
}

const health = {
	title: "Health",
	load: async () => ({status: await get("/v1/status")}),
	view({s}) {
		const {status} = s.data, h = s.health, now = s.history.last();
		return html`
			<section aria-labelledby="state">
				<h2 id="state">State${" "}
					<${Badge} state=${h ? h.health : UNKNOWN}
						level=${LEVEL[h?.health]}/></h2>
				${h && h.status !== "ok" && html`<p>The server is ${h.status}.
					${" "}${h.why}</p>`}
				${h && html`<${Reasons} health=${h}/>`}
			</section>
			<section aria-labelledby="now">
				<h2 id="now">Now</h2>
				${waits(s, status) && html`<${Loading}/>`}
				${status && html`<${Facts} list=${[
					["Data servers", `${status.ds.alive} of ${status.ds.known}`, "alive"],
					["Free", bytes(status.ds.known ? status.ds.available : null),
						`of ${bytes(status.ds.capacity)}, on those that are alive`],
					["Read", rate(now.read)], ["Written", rate(now.written)],
					["Clients", count(status.clients.known),
						`${count(status.clients.opens)} opens, ` +
						`${count(status.clients.layouts)} layouts`],
					["Inodes", count(status.store.inodes)],
					["Orders", count(status.orders), "to data servers, not done"],
					["Grace", status.grace ? "yes" : "no"],
				]}/>`}
				<${Throughput} history=${s.history} theme=${s.theme}/>
			</section>`;
	},
};

// ---- servers

function drain_cell(s, d, act) {
	if (!d.drain)
		return may(s.session, "operate") ? html`<button type="button" onClick=${() => act({
			text: `Drain ${d.name}?`, button: "Drain",
			note: "Its objects move to other servers. It gets no new ones.",
			request: ["PUT", "/v1/ds/drain", {ds: d.id}],
			said: `${d.name} is being drained`})}
			aria-label=${`Drain ${d.name}`}>Drain</button>` : "no";
	return html`${d.drain === "drained" ? "drained"
		: `${d.left === null ? UNKNOWN : count(d.left)} objects left`}${" "}
		${may(s.session, "operate") && html`<button type="button" onClick=${() => act({
			text: `End the drain of ${d.name}?`, button: "End it",
			note: "It gets new objects again.",
			request: ["PUT", "/v1/ds/undrain", {ds: d.id}],
			said: `${d.name} is drained no more`})}
			aria-label=${`End the drain of ${d.name}`}>End</button>`}`;
}

const servers = {
	title: "Servers",
	load: async () => ({}),
	view({s, act}) {
		const sized = d => d.capacity > 0;
		return html`<${Table} caption="Data servers" rows=${s.servers} id=${d => d.id}
			empty="No data server has joined yet." cols=${[
				{name: "Server", cell: d => d.name},
				{name: "State", cell: d => html`<${Badge} state=${d.state}
					level=${d.alive ? "good" : "bad"}/>${d.why && html`<span
					class="note">${d.why}</span>`}`},
				{name: "Used", cell: d => html`<${Bar} level=${SPACE[d.space]}
					part=${sized(d) ? d.capacity - d.available : null}
					whole=${d.capacity}/>${d.space !== "ok" && html`<span
					class="note">${d.space}</span>`}`},
				{name: "Free", right: true,
					cell: d => bytes(sized(d) ? d.available : null)},
				{name: "Load", right: true, cell: d => number(d.alive ? d.load : null)},
				{name: "Latency", right: true, cell: d => micros(d.latency_us)},
				{name: "Read", right: true, cell: d => rate(d.read_bytes_s)},
				{name: "Written", right: true, cell: d => rate(d.written_bytes_s)},
				{name: "Requests", right: true, cell: d => d.operations_s === null
					? UNKNOWN : `${number(d.operations_s)}/s`},
				{name: "Drain", cell: d => drain_cell(s, d, act)},
			]}/>
			<${Throughput} history=${s.history} theme=${s.theme}/>`;
	},
};

// ---- files

function Crumbs({path}) {
	const parts = path.split("/").filter(x => x);
	return html`<nav aria-label="Path"><ol class="crumbs">
		<li><a href="#/files/">/</a></li>
		${parts.map((p, k) => html`<li key=${k}>
			<a href=${`#/files/${parts.slice(0, k + 1).join("/")}`}
				aria-current=${k + 1 === parts.length ? "page" : null}>${decoded(p)}</a>
		</li>`)}
	</ol></nav>`;
}

const NAMES_MOST = 1000; // of /v1/dir

function Directory({dir, policy, path, more}) {
	const base = path.replace(/\/+$/, "");
	return html`
		${policy && html`<p>Policy: <code>${policy.policy}</code>
			${policy.inherited ? ", inherited" : ""}</p>`}
		<${Table} caption=${`Names in ${decoded(path)}`} rows=${dir.entries}
			id=${e => e.encoded} empty="The directory is empty." cols=${[
				{name: "Name", cell: e => e.type === "directory" || e.type === "file"
					? html`<a href=${`#/files${base}/${e.encoded}`}>${e.name}${
						e.type === "directory" ? "/" : ""}</a>` : e.name},
				{name: "Type", cell: e => e.type},
				{name: "Size", right: true, cell: e => e.type === "file"
					? bytes(e.size_bytes) : ""},
			]}/>
		${dir.next && (dir.entries.length < NAMES_MOST
		? html`<p><button type="button" onClick=${more}>More names</button></p>`
		: html`<p>There are more than these ${count(NAMES_MOST)}.</p>`)}`;
}

function File({file, path}) {
	const name = decoded(path);
	const rows = file.mirrors.flatMap((m, k) => m.objects.map((o, n) =>
		({...o, mirror: k, stripe: n})));
	return html`
		<${Facts} list=${[["Size", bytes(file.size), `${count(file.size)} bytes`],
			["Stripes", count(file.mirrors[0]?.objects.length ?? null)],
			["Stripe unit", bytes(file.unit)], ["Mirrors", count(file.mirrors.length)],
			["Policy", html`<code>${file.policy.split(",").map((t, k, all) => html`${t}${
				k + 1 < all.length ? "," : ""}<wbr/>`)}</code>`]]}/>
		<section aria-labelledby="where"><h2 id="where">Where it is</h2>
			<${Layout} file=${file} name=${name}/>
			<${Table} caption="Objects" rows=${rows} id=${o => `${o.mirror}.${o.stripe}`}
				cols=${[
					{name: "Mirror", cell: o => o.mirror},
					{name: "Stripe", cell: o => o.stripe},
					{name: "Server", cell: o => o.ds ?? UNKNOWN},
					{name: "State", cell: o => html`<${Badge} state=${o.state}
						level=${o.state === "in-sync" ? "good" : "warn"}/>`},
				]}/>
		</section>`;
}

const files = {
	title: "Files",
	async load(path, old) {
		const args = {path: [path || "/"]};
		const limit = old.path === path && old.limit || 200;
		const dir = await get("/v1/dir", {...args, limit});
		if (dir.type === "directory")
			return {path, dir, limit, policy: await get("/v1/policy", args)};
		if (dir.type === "file")
			return {path, file: await get("/v1/file", args)};
		return {path, other: dir.type};
	},
	view({s, go, more}) {
		const path = s.arg || "/", {file, dir, policy, other} = s.data;
		const here = s.data.path === s.arg;
		return html`
			<form class="line" onSubmit=${e => {
				e.preventDefault();
				const typed = e.target.elements.path.value.trim();
				go(`#/files${encoded(typed.startsWith("/") ? typed : `/${typed}`)}`);
			}}>
				<label for="path">Path</label>
				<input id="path" name="path" key=${path} defaultValue=${decoded(path)}
					autocomplete="off" spellcheck=${false}/>
				<button type="submit">Show</button>
			</form>
			<${Crumbs} path=${path}/>
			${waits(s, here) && html`<${Loading}/>`}
			${here && dir && html`<${Directory} dir=${dir} policy=${policy} path=${path}
				more=${more}/>`}
			${here && file && html`<${File} file=${file} path=${path}/>`}
			${here && other && html`<p>This is neither a file nor a directory: ${other}.</p>`}`;
	},
};

// ---- jobs

function progress(j) {
	for (const what of ["bytes", "objects", "files"]) {
		const done = j[`done_${what}`], all = j[`total_${what}`];
		if (done !== null)
			return html`<${Bar} part=${done} whole=${all ?? 0}/>
				<span class="note">${what === "bytes" ? bytes(done) : count(done)} of
				${" "}${what === "bytes" ? bytes(all) : count(all)}
				${what === "bytes" ? "" : ` ${what}`}</span>`;
	}
	return UNKNOWN;
}

function about(j) {
	return j.path ? file_link(j.path) : j.ds ? j.ds : j.inode ? `inode ${j.inode}` : "all";
}

const JOB = {done: "good", failed: "bad", cancelled: "warn", running: "good"};

const jobs = {
	title: "Jobs",
	load: () => get("/v1/jobs", {limit: 200}),
	view({s, act}) {
		const {jobs: now, finished, more} = s.data, operate = may(s.session, "operate");
		const cancel = j => !j.cancellable ? "" : operate ? html`<button type="button"
			aria-label=${`Cancel ${j.kind}, job ${j.id}`} onClick=${() => act({
				text: `Cancel job ${j.id} (${j.kind})?`, button: "Cancel the job",
				note: "What it did so far stays, or is taken back, as its kind says.",
				request: ["DELETE", "/v1/jobs", {id: j.id}],
				said: `job ${j.id} was asked to end`})}>Cancel</button>`
			: "needs operate";
		return html`
			<${Table} caption="Jobs that run or wait" rows=${now} id=${j => j.id}
				empty="Nothing runs or waits." cols=${[
					{name: "Job", cell: j => j.id}, {name: "Kind", cell: j => j.kind},
					{name: "About", cell: about},
					{name: "State", cell: j => html`<${Badge} state=${j.state}
						level=${JOB[j.state]}/><span class="note">${
						j.waits_for || j.phase || j.error}</span>`},
					{name: "Progress", cell: progress},
					{name: "Rate", right: true, cell: j => rate(j.rate_bytes_s)},
					{name: "Left", right: true, cell: j => seconds(j.eta_s)},
					{name: "Cancel", cell: cancel}]}/>
			${more && html`<p>There are more than these.</p>`}
			<${Table} caption="Jobs that are over, the last first" rows=${finished}
				id=${j => j.id} empty="None is remembered." cols=${[
					{name: "Job", cell: j => j.id}, {name: "Kind", cell: j => j.kind},
					{name: "About", cell: about},
					{name: "State", cell: j => html`<${Badge} state=${j.state}
						level=${JOB[j.state]}/>`},
					{name: "Ended", cell: j => time(j.ended_at)},
					{name: "Result", cell: j => j.error || j.result || ""}]}/>`;
	},
};

// ---- events

const events = {
	title: "Events",
	load: () => get("/v1/events", {last: 200}),
	view({s, set}) {
		const all = s.data.events?.toReversed();
		const kinds = [...new Set(all?.map(e => e.kind))].sort();
		if (s.kind && !kinds.includes(s.kind))
			kinds.unshift(s.kind);
		return html`
			<form class="line" onSubmit=${e => e.preventDefault()}>
				<label for="kind">Kind</label>
				<select id="kind" onChange=${e => set({kind: e.target.value})}>
					<option value="" selected=${!s.kind}>all</option>
					${kinds.map(k => html`<option key=${k} value=${k}
						selected=${k === s.kind}>${k}</option>`)}
				</select>
			</form>
			<${Table} caption="The last 200 events, the newest first" id=${e => e.seq}
				rows=${all?.filter(e => !s.kind || e.kind === s.kind)} cols=${[
					{name: "Time", cell: e => time(e.happened_at)},
					{name: "Kind", cell: e => e.kind},
					{name: "About", cell: e => e.path ? file_link(e.path)
						: e.subject || (e.inode ? `inode ${e.inode}` : "")},
					{name: "What", cell: e => e.text}]}/>`;
	},
};

// ---- clients

const clients = {
	title: "Clients",
	load: () => get("/v1/clients"),
	view({s}) {
		return html`<${Table} caption="Clients" rows=${s.data.clients} id=${c => c.clientid}
			empty="No client is known." cols=${[
				{name: "Client", cell: c => html`${c.name}<span class="note">${
					c.addr.join(", ")}</span>`},
				{name: "State", cell: c => html`<${Badge} state=${c.state}
					level=${c.state === "active" ? "good" : "plain"}/>`},
				{name: "Version", cell: c => `4.${c.minor}`},
				{name: "Protection", cell: c => html`${c.flavour}<span class="note">${
					c.tls}</span>`},
				{name: "Silent", right: true, cell: c => seconds(c.silent_s)},
				{name: "Lease left", right: true, cell: c => seconds(c.lease_left_s)},
				{name: "Opens", right: true, cell: c => count(c.opens)},
				{name: "Locks", right: true, cell: c => count(c.locks)},
				{name: "Delegations", right: true, cell: c => count(c.delegations)},
				{name: "Layouts", right: true, cell: c => count(c.layouts)}]}/>`;
	},
};

// ---- what is hot

function hot_cols(first) {
	return [first,
		{name: "Operations", right: true, cell: r => `${number(r.ops)}/s`},
		{name: "Read", right: true, cell: r => rate(r.read)},
		{name: "Written", right: true, cell: r => rate(r.written)},
		{name: "Mean", right: true, cell: r => micros(r.mean_us)},
		{name: "99 %", right: true, cell: r => micros(r.p99_us)}];
}

const hot = {
	title: "Hot",
	async load() {
		const [heat, top] = await Promise.all([get("/v1/heat", {rows: 20}),
			get("/v1/top", {rows: 20})]);
		return {heat, top};
	},
	view({s}) {
		const {heat, top} = s.data;
		const path = {name: "Path", cell: r => r.path ? file_link(r.path)
			: `inode ${r.inode}`};
		return html`
			<${Table} caption="Directories that were used most lately"
				rows=${heat?.directories} id=${r => r.inode} cols=${hot_cols(path)}
				empty="None was used lately."/>
			<${Table} caption="Files that were used most lately" rows=${heat?.files}
				id=${r => r.inode} cols=${hot_cols(path)} empty="None was used lately."/>
			<${Table} caption="Clients that do most now" rows=${top?.clients}
				id=${r => r.number} cols=${hot_cols({name: "Client", cell: r => r.name})}
				empty="No client does anything that counts."/>
			${heat && html`<p class="quiet">Figures are means over about
				${" "}${seconds(heat.half_life)} (directories and files) and
				${" "}${seconds(top.half_life)} (clients).</p>`}`;
	},
};

export const pages = {health, servers, files, jobs, events, clients, hot};
