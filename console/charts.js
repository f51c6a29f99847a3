// SPDX-License-Identifier: Apache-2.0
// charts.js - throughput over the time that this page is open.
import {Component} from "./vendor/preact.js";
import uPlot from "./vendor/uplot.js";
import {html} from "./html.js";
import {rate, UNKNOWN} from "./text.js";

const KEPT = 300; // points

// A point each time the data servers are asked; null where no server says what it does.
export class History {
	constructor() {
		this.at = [];
		this.read = [];
		this.written = [];
	}

	add(servers) {
		const sum = name => {
			const all = servers.map(s => s[name]).filter(v => v !== null);
			return all.length ? all.reduce((a, b) => a + b, 0) : null;
		};
		this.at.push(Date.now() / 1000);
		this.read.push(sum("read_bytes_s"));
		this.written.push(sum("written_bytes_s"));
		if (this.at.length > KEPT)
			for (const list of [this.at, this.read, this.written])
				list.shift();
	}

	last() {
		return {read: this.read.at(-1) ?? null, written: this.written.at(-1) ?? null};
	}
}

function colour(name) {
	return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const HEIGHT = 180;
const POWERS = Array.from({length: 50}, (_, n) => 2 ** n);

export class Throughput extends Component {
	componentDidMount() {
		this.watch = new ResizeObserver(() => this.size());
		this.watch.observe(this.box);
		this.make();
	}

	componentDidUpdate(old) {
		if (old.theme !== this.props.theme)
			this.make();
		else
			this.plot.setData(this.data());
	}

	componentWillUnmount() {
		this.watch.disconnect();
		this.plot?.destroy();
	}

	data() {
		const h = this.props.history;
		return [h.at, h.read, h.written];
	}

	size() {
		if (this.plot && this.box.clientWidth)
			this.plot.setSize({width: this.box.clientWidth, height: HEIGHT});
	}

	make() {
		const line = colour("--line"), text = colour("--quiet"), font = "12px system-ui";
		const axis = {stroke: text, font, grid: {stroke: line, width: 1},
			ticks: {stroke: line, width: 1}};
		this.plot?.destroy();
		this.plot = new uPlot({
			width: this.box.clientWidth || 600, height: HEIGHT,
			legend: {show: false}, cursor: {show: false},
			scales: {y: {range: (u, min, max) => [0, Math.max(max || 0, 1024)]}},
			axes: [
				{...axis, values: (u, at) => at.map(t => {
					const d = new Date(t * 1000);
					return d.toTimeString().slice(0, 8);
				}), space: 80, incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600]},
				{...axis, size: 90, incrs: POWERS, values: (u, at) => at.map(v => rate(v))},
			],
			series: [{}, {stroke: colour("--read"), width: 2, points: {size: 4}},
				{stroke: colour("--written"), width: 2, dash: [6, 3],
					points: {size: 4}}],
		}, this.data(), this.box);
	}

	render({history}) {
		const now = history.last();
		const text = now.read === null ? UNKNOWN
			: `read ${rate(now.read)}, written ${rate(now.written)}`;
		return html`<figure class="chart">
			<figcaption>Throughput of all data servers since this page was opened. Now: ${" "}
				<span class="key read">read</span> ${rate(now.read)}, ${" "}
				<span class="key written">written</span> ${rate(now.written)}.
			</figcaption>
			<div role="img" aria-label=${`Throughput now: ${text}`}
				ref=${e => { this.box = e; }}></div>
		</figure>`;
	}
}
