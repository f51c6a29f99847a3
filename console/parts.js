// SPDX-License-Identifier: Apache-2.0
// parts.js - what the pages are made of: tables, figures, bars, questions.
import {Component} from "./vendor/preact.js";
import {html} from "./html.js";
import {percent, UNKNOWN} from "./text.js";

export function Loading() {
	return html`<p class="quiet">Loading…</p>`;
}

// cols: {name, cell: row => content, right: figures}. rows: null while they are not known.
export function Table({caption, cols, rows, id, empty = "None."}) {
	if (!rows)
		return html`<${Loading}/>`;
	return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
		<table>
			<caption>${caption}</caption>
			<thead><tr>${cols.map(c => html`<th key=${c.name} scope="col"
				class=${c.right ? "right" : ""}>${c.name}</th>`)}</tr></thead>
			<tbody>
				${rows.map((r, n) => html`<tr key=${id ? id(r) : n}>
					${cols.map((c, k) => k
						? html`<td key=${c.name} class=${c.right ? "right" : ""}>
							${c.cell(r)}</td>`
						: html`<th key=${c.name} scope="row">${c.cell(r)}</th>`)}
				</tr>`)}
				${!rows.length && html`<tr><td colspan=${cols.length} class="quiet">${empty}</td>
				</tr>`}
			</tbody>
		</table>
	</div>`;
}

export function Facts({list}) {
	return html`<dl class="facts">${list.map(([name, value, note]) => html`<div key=${name}>
		<dt>${name}</dt><dd>${value}${note && html`<span class="note">${note}</span>`}</dd>
	</div>`)}</dl>`;
}

// A state in words; the colour only repeats it.
export function Badge({state, level}) {
	return html`<span class=${`badge ${level || "plain"}`}>${state}</span>`;
}

export function Bar({part, whole, level}) {
	const share = whole > 0 && part !== null ? Math.min(1, Math.max(0, part / whole)) : null;
	return html`<span class="bar">
		<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
			<rect class="bar-back" width="100" height="10"/>
			${share !== null && html`<rect class=${`bar-fill ${level || ""}`}
				width=${100 * share} height="10"/>`}
		</svg>
		<span class="bar-text">${share === null ? UNKNOWN : percent(part, whole)}</span>
	</span>`;
}

// A page that cannot be drawn says so, and leaves the frame as it is.
export class Safe extends Component {
	static getDerivedStateFromError(e) {
		return {why: e.message};
	}

	render({children}, {why}) {
		return why ? html`<p class="banner bad" role="status">This cannot be shown: ${why}.</p>`
			: children;
	}
}

// A question before a change. ask: {text, button, run}, or null.
export class Question extends Component {
	componentDidUpdate(old) {
		if (this.props.ask && !old.ask) {
			this.from = document.activeElement;
			this.dialog.showModal();
		}
		if (!this.props.ask && old.ask) {
			this.dialog.close();
			this.from?.focus();
		}
	}

	render({ask, done}) {
		return html`<dialog ref=${e => { this.dialog = e; }} aria-labelledby="question"
			onCancel=${e => { e.preventDefault(); done(false); }}>
			<h2 id="question">${ask?.text}</h2>
			<p>${ask?.note}</p>
			<div class="buttons">
				<button type="button" onClick=${() => done(false)}>Leave it</button>
				<button type="button" class="do" onClick=${() => done(true)}>
					${ask?.button}</button>
			</div>
		</dialog>`;
	}
}
