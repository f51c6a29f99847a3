// SPDX-License-Identifier: Apache-2.0
// html.js - templates. A value that is put into one becomes text or an attribute, and never markup.
import {h} from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
