// SPDX-License-Identifier: Apache-2.0
// layout.js - a file's stripes and mirrors, drawn over the data servers.
import {html} from "./html.js";
import {bytes, count, UNKNOWN} from "./text.js";

const BOX = 92, HIGH = 34, GAP = 10, LEFT = 84, TOP = 84, SHOWN = 16;

// Which servers there are, in the order in which they come, and in which row of its mirror each
// object stands: objects of one mirror on one server stand below each other.
function places(file) {
	const servers = [], bands = [];
	let y = TOP + 30;
	for (const mirror of file.mirrors) {
		const taken = new Map(), objects = [];
		mirror.objects.forEach((o, stripe) => {
			const ds = o.ds ?? UNKNOWN;
			let x = servers.indexOf(ds);
			if (x < 0)
				x = servers.push(ds) - 1;
			const row = taken.get(x) || 0;
			taken.set(x, row + 1);
			objects.push({...o, ds, stripe, x, row});
		});
		const rows = Math.max(1, ...taken.values());
		bands.push({state: mirror.state, objects, y, rows});
		y += rows * (HIGH + 6) + GAP + 6;
	}
	return {servers, bands, height: y};
}

function units(file, stripes, width) {
	const all = Math.ceil(file.size / file.unit) || 0, shown = Math.min(all, SHOWN);
	const w = Math.min(BOX / 2, (width - LEFT) / Math.max(shown, 1));
	return html`<g>
		<text class="name" x="0" y="34">File</text>
		${Array.from({length: shown}, (_, k) => html`<g key=${k}>
			<rect class=${`unit s${k % stripes % 8}`} x=${LEFT + k * w} y="16"
				width=${w - 2} height="26" rx="3"/>
			<text class="in" x=${LEFT + k * w + (w - 2) / 2} y="34">${k % stripes}</text>
		</g>`)}
		<text class="quiet" x=${LEFT} y="60">${!all ? "no data yet"
		: all > shown
			? `the first ${shown} of ${count(all)} units of ${bytes(file.unit)}, each with its stripe`
			: `${count(all)} ${all === 1 ? "unit" : "units"} of ${bytes(file.unit)}, ` +
				`each with its stripe`}</text>
	</g>`;
}

export function Layout({file, name}) {
	const {servers, bands, height} = places(file);
	const stripes = file.mirrors[0]?.objects.length || 1;
	const width = Math.max(LEFT + servers.length * (BOX + GAP), 480);
	const said = bands.map((b, m) => `Mirror ${m}: ${b.objects.map(o =>
		`stripe ${o.stripe} on ${o.ds}, ${o.state}`).join("; ")}.`).join(" ");
	return html`<div class="scroll" tabindex="0" role="region" aria-label="Drawing of the layout">
		<svg class="layout" role="img" width=${width} height=${height}
			viewBox=${`0 0 ${width} ${height}`} aria-labelledby="layout-t layout-d">
			<title id="layout-t">${`Layout of ${name}`}</title>
			<desc id="layout-d">${said}</desc>
			<defs>
				<pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse"
					patternTransform="rotate(45)">
					<rect class="hatch-back" width="8" height="8"/>
					<rect class="hatch" width="3" height="8"/>
				</pattern>
			</defs>
			${units(file, stripes, width)}
			${servers.map((s, x) => html`<g key=${s}>
				<rect class="server" x=${LEFT + x * (BOX + GAP)} y=${TOP} width=${BOX}
					height=${height - TOP - 6} rx="6"/>
				<text class="in name" x=${LEFT + x * (BOX + GAP) + BOX / 2}
					y=${TOP + 19}>${s.length > 12 ? `${s.slice(0, 11)}…` : s}</text>
			</g>`)}
			${bands.map((b, m) => html`<g key=${m}>
				<text class="name" x="0" y=${b.y + 22}>Mirror ${m}</text>
				${b.objects.map(o => {
					const x = LEFT + o.x * (BOX + GAP) + 6, y = b.y + o.row * (HIGH + 6);
					const good = o.state === "in-sync";
					return html`<g key=${o.stripe}>
						<rect class=${good ? `unit s${o.stripe % 8}` : "unit bad"}
							x=${x} y=${y} width=${BOX - 12} height=${HIGH} rx="3"/>
						${!good && html`<rect class="plate" x=${x + 4} y=${y + 4}
							width=${BOX - 20} height=${HIGH - 8} rx="2"/>`}
						<text class=${good ? "in" : "in plain"} x=${x + (BOX - 12) / 2}
							y=${y + (good ? 22 : 16)}>${o.stripe}</text>
						${!good && html`<text class="in small" x=${x + (BOX - 12) / 2}
							y=${y + 27}>${o.state}</text>`}
					</g>`;
				})}
			</g>`)}
		</svg>
	</div>`;
}
