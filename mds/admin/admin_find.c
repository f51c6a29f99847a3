/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin_find.c - finds files by where their data is, over the API: a walk through the tree in
 * pieces.
 *
 * A request walks for WALK_MS, or until it has found enough, and answers with a cursor. The next
 * request goes on from the cursor: nothing is kept here between requests. The cursor is the way to
 * where the walk is: for each directory the place of an entry in it (READDIR's cookie), and the
 * inode to which that entry led. A file that is renamed or removed during the walk may be found
 * twice, or not at all. Each snapshot is read for ENTRIES_OF_SNAPSHOT entries only.
 */
#include "base/clock.h"
#include "mds/admin/admin_holders.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define WALK_MS		    100
#define FOUND_MOST	    500
#define ENTRIES_OF_SNAPSHOT 1000
#define DEPTH_MOST	    128
#define PATH_MOST	    32768

struct level {
	uint64_t v_dir, v_cookie; /* cookie: of the last entry that was examined */
	size_t v_path;		  /* length of the path of v_dir, without a slash at its end */
};

struct walk {
	struct admin *wlk_a;
	struct ns *wlk_ns;
	struct kv_txn *wlk_txn;
	uint32_t wlk_ds; /* 0: any */
	bool wlk_stale, wlk_policy, wlk_lost, wlk_degraded, wlk_count;
	/* the terms of the policy that were asked for: ",stripes=2,mirrors=2," */
	char wlk_terms[LO_POLICY_TEXT];
	struct level wlk_level[DEPTH_MOST];
	unsigned wlk_depth;
	char wlk_path[PATH_MOST];
	uint64_t wlk_looked, wlk_deep, wlk_until_ns;
	uint64_t wlk_nfiles, wlk_nlost, wlk_ndegraded; /* wlk_count: numbers in place of the list */
	uint64_t wlk_into; /* the directory to which the last entry leads; 0: none */
	json_t *wlk_found;
};

/* ---- what is looked for ---- */

/* Whether this policy has each of the terms. */
static bool policy_fits(const struct walk *w, const struct lo_policy *p)
{
	char text[LO_POLICY_TEXT + 2], term[LO_POLICY_TEXT + 2];
	size_t n;

	text[0] = ',';
	n = lo_policy_format(p, text + 1);
	strcpy(text + 1 + n, ",");
	for (const char *t = w->wlk_terms; *t && t[1]; t += n) {
		n = 1 + strcspn(t + 1, ",");
		memcpy(term, t, n + 1);
		term[n + 1] = 0;
		if (!strstr(text, term))
			return false;
	}
	return true;
}

static json_t *states_json(const struct walk *w, const struct lo_map *m)
{
	static const char *const name[] = {
		[LO_IN_SYNC] = "in-sync", [LO_STALE] = "stale", [LO_REBUILDING] = "rebuilding"};
	json_t *list = json_array();

	for (unsigned k = 0; k < (unsigned)m->lm_stripes * m->lm_mirrors; k++) {
		struct ds_reg_server sv;

		if (!ds_reg_get(w->wlk_a->a_ops.ao_dsc, m->lm_obj[k].ob_ds, &sv))
			snprintf(sv.sv_name, sizeof(sv.sv_name), "unknown-%u", m->lm_obj[k].ob_ds);
		json_array_append_new(
			list,
			json_pack("{s:s, s:s}", "ds", sv.sv_name, "state",
				  m->lm_obj[k].ob_state < 3 ? name[m->lm_obj[k].ob_state] : "?"));
	}
	return list;
}

static void admin_find_found(struct walk *w, const struct ns_inode *i, const struct lo_policy *p,
			     const struct lo_map *m)
{
	char text[LO_POLICY_TEXT];

	lo_policy_format(p, text);
	json_array_append_new(w->wlk_found,
			      json_pack("{s:o, s:s, s:I, s:I, s:s, s:o}", "path",
					admin_text(w->wlk_path, strlen(w->wlk_path)), "type",
					m ? "file" : "directory", "inode", (json_int_t)i->i_ino,
					"size", (json_int_t)(m ? i->i_size : 0), "policy", text,
					"objects", m ? states_json(w, m) : json_array()));
}

static void admin_find_look_file(struct walk *w, const struct ns_inode *i)
{
	struct lo_policy p;
	bool on = !w->wlk_ds, stale = !w->wlk_stale, lost, degraded;
	enum lo_condition left;
	struct lo_map m;

	if (lo_map_decode(i->i_blob, &m) || lo_map_policy(&m, &p))
		return;
	for (unsigned k = 0; k < (unsigned)m.lm_stripes * m.lm_mirrors; k++) {
		on |= m.lm_obj[k].ob_ds == w->wlk_ds;
		stale |= m.lm_obj[k].ob_state != LO_IN_SYNC;
	}
	left = lo_map_condition(w->wlk_a->a_ops.ao_lo, &m);
	lost = left == LO_LOST;
	degraded = left == LO_DEGRADED;
	w->wlk_nfiles++;
	w->wlk_nlost += lost;
	w->wlk_ndegraded += degraded;
	if (w->wlk_count)
		return;
	if (w->wlk_lost || w->wlk_degraded)
		on &= (w->wlk_lost && lost) || (w->wlk_degraded && degraded);
	if (on && stale && (!w->wlk_policy || policy_fits(w, &p)))
		admin_find_found(w, i, &p, &m);
}

static void admin_find_look(struct walk *w, uint64_t ino)
{
	struct lo_policy p;
	struct ns_inode i;

	if (ns_get(w->wlk_ns, w->wlk_txn, ino, &i))
		return;
	if (i.i_type == NS_REG)
		admin_find_look_file(w, &i);
	else if (i.i_type == NS_DIR && w->wlk_policy && !w->wlk_ds && !w->wlk_stale &&
		 !w->wlk_lost && !w->wlk_degraded && i.i_has_policy &&
		 !lo_policy_decode(i.i_blob, &p) && policy_fits(w, &p))
		admin_find_found(w, &i, &p, NULL);
}

/* ---- the walk ---- */

static bool enough(const struct walk *w)
{
	return json_array_size(w->wlk_found) >= FOUND_MOST ||
	       (w->wlk_looked % 64 == 0 && clock_mono_ns() > w->wlk_until_ns);
}

/* Makes wlk_path the path of an entry of the level's directory. False: the path is too long. */
static bool path_to(struct walk *w, const struct level *v, const char *name, size_t len)
{
	if (v->v_path + len + 2 > PATH_MOST)
		return false;
	w->wlk_path[v->v_path] = '/';
	memcpy(w->wlk_path + v->v_path + 1, name, len);
	w->wlk_path[v->v_path + 1 + len] = 0;
	return true;
}

static int on_entry(void *arg, const struct ns_dirent *d)
{
	struct walk *w = arg;
	struct level *v = &w->wlk_level[w->wlk_depth - 1];

	v->v_cookie = d->d_cookie;
	w->wlk_looked++;
	if (!path_to(w, v, d->d_name, d->d_len)) {
		w->wlk_deep++;
		return 0;
	}
	if (d->d_type == NS_REG || d->d_type == NS_DIR)
		admin_find_look(w, d->d_ino);
	if (d->d_type == NS_DIR) {
		w->wlk_into = d->d_ino;
		return 1;
	}
	return w->wlk_looked % ENTRIES_OF_SNAPSHOT == 0 || enough(w);
}

static void descend(struct walk *w, uint64_t dir)
{
	if (w->wlk_depth == DEPTH_MOST) {
		w->wlk_deep++;
		return;
	}
	w->wlk_level[w->wlk_depth++] = (struct level){.v_dir = dir, .v_path = strlen(w->wlk_path)};
}

/* Returns 0 or a negative errno. The walk is over when wlk_depth is 0. */
static int admin_find_walk(struct walk *w)
{
	uint64_t snapshot = w->wlk_looked;

	while (w->wlk_depth && !enough(w)) {
		struct level *v = &w->wlk_level[w->wlk_depth - 1];
		bool eof = false;
		int err;

		if (w->wlk_looked - snapshot >= ENTRIES_OF_SNAPSHOT) {
			snapshot = w->wlk_looked;
			err = kv_read_renew(w->wlk_txn);
			if (err)
				return err;
		}
		w->wlk_into = 0;
		err = ns_readdir(w->wlk_ns, w->wlk_txn, v->v_dir, v->v_cookie, on_entry, w, &eof);
		if (err == -ESTALE || err == -ENOTDIR)
			eof = true; /* the directory was removed */
		else if (err)
			return err;
		if (w->wlk_into)
			descend(w, w->wlk_into);
		else if (eof)
			w->wlk_depth--;
	}
	return 0;
}

/* ---- cursors ---- */

static char *cursor_make(const struct walk *w)
{
	char *out = malloc(DEPTH_MOST * 40 + 1), *p = out;

	if (!out)
		return NULL;
	*p = 0;
	for (unsigned k = 0; k < w->wlk_depth; k++)
		p += sprintf(p, "%s%" PRIx64 "_%" PRIx64, k ? "." : "", w->wlk_level[k].v_cookie,
			     k + 1 < w->wlk_depth ? w->wlk_level[k + 1].v_dir : 0);
	return out;
}

static int stop_here(void *arg, const struct ns_dirent *d)
{
	struct walk *w = arg;

	w->wlk_into = d->d_cookie == w->wlk_level[w->wlk_depth - 1].v_cookie && d->d_type == NS_DIR
			      ? d->d_ino
			      : 0;
	if (w->wlk_into && !path_to(w, &w->wlk_level[w->wlk_depth - 1], d->d_name, d->d_len))
		w->wlk_into = 0;
	return 1;
}

static bool cursor_ok(const char *text)
{
	unsigned levels = 0;
	int n;

	for (;; text += n + 1) {
		uint64_t cookie, ino;

		n = 0;
		if (!isxdigit((unsigned char)*text) ||
		    sscanf(text, "%16" SCNx64 "_%16" SCNx64 "%n", &cookie, &ino, &n) != 2 || !n ||
		    levels++ == DEPTH_MOST)
			return false;
		if (!text[n])
			return true;
		if (text[n] != '.' || !cookie)
			return false;
	}
}

/* Goes to where the cursor points. -EINVAL: the text is no cursor. If the way has changed, the walk
 * goes on in the last directory that is still on it. */
static int cursor_take(struct walk *w, const char *text)
{
	uint64_t cookie, ino;
	int n, err;
	bool eof;

	if (!cursor_ok(text))
		return -EINVAL;
	for (;; text++) {
		struct level *v = &w->wlk_level[w->wlk_depth - 1];

		sscanf(text, "%" SCNx64 "_%" SCNx64 "%n", &cookie, &ino, &n);
		text += n;
		v->v_cookie = cookie;
		if (!*text)
			return 0;
		w->wlk_into = 0;
		err = ns_readdir(w->wlk_ns, w->wlk_txn, v->v_dir, cookie - 1, stop_here, w, &eof);
		if (err && err != -ESTALE && err != -ENOTDIR)
			return err;
		if (w->wlk_into != ino || !ino)
			return 0;
		descend(w, ino);
	}
}

/* ---- the request ---- */

/* Keeps the terms of the policy's normal form whose keys the text has. False: refused. */
static bool policy_arg(struct walk *w, const char *text, struct http_reply *rp)
{
	char normal[LO_POLICY_TEXT], given[LO_POLICY_TEXT + 2], err[256], *term, *save,
		key[LABELS_KEY_MAX + 3];
	struct lo_policy p;

	if (lo_policy_parse(text, strlen(text), &p, err, sizeof(err)) ||
	    strlen(text) >= LO_POLICY_TEXT || !*text) {
		admin_reply_error(rp, 400, "policy: %s",
				  *text ? err : "expected KEY=VALUE, separated by commas");
		return false;
	}
	snprintf(given, sizeof(given), ",%s", text);
	lo_policy_format(&p, normal);
	strcpy(w->wlk_terms, ",");
	for (term = strtok_r(normal, ",", &save); term; term = strtok_r(NULL, ",", &save)) {
		snprintf(key, sizeof(key), ",%.*s=", (int)strcspn(term, "="), term);
		if (strstr(given, key))
			strcat(strcat(w->wlk_terms, term), ",");
	}
	w->wlk_policy = true;
	return true;
}

/* The path as it is shown: one slash between names, none at the end. */
static void path_begin(struct walk *w, const char *path)
{
	size_t n = 0;

	for (; *path && n < PATH_MOST - 2; path++)
		if (*path != '/' || (path[1] && path[1] != '/'))
			w->wlk_path[n++] = *path;
	w->wlk_path[n] = 0;
}

static void admin_find_answer(struct walk *w, int err, struct http_reply *rp)
{
	char *cursor = !err && w->wlk_depth ? cursor_make(w) : NULL;

	if (err == -EINVAL)
		admin_reply_error(rp, 400, "cursor: expected the cursor of an answer");
	else if (err || (w->wlk_depth && !cursor))
		admin_reply_error(rp, 500, "%s", strerror(err ? -err : ENOMEM));
	else if (w->wlk_count)
		admin_reply_json(
			rp, 200,
			json_pack("{s:I, s:I, s:I, s:I, s:o}", "files", (json_int_t)w->wlk_nfiles,
				  "lost", (json_int_t)w->wlk_nlost, "degraded",
				  (json_int_t)w->wlk_ndegraded, "too_deep", (json_int_t)w->wlk_deep,
				  "cursor", cursor ? json_string(cursor) : json_null()));
	else
		admin_reply_json(rp, 200,
				 json_pack("{s:O, s:I, s:I, s:o}", "found", w->wlk_found, "looked",
					   (json_int_t)w->wlk_looked, "too_deep",
					   (json_int_t)w->wlk_deep, "cursor",
					   cursor ? json_string(cursor) : json_null()));
	free(cursor);
}

static void admin_find_begin(struct walk *w, const struct http_req *rq, const struct ns_inode *i,
			     struct http_reply *rp)
{
	const char *cursor = http_arg(rq, "cursor");
	int err = kv_read_begin(ns_kv(w->wlk_ns), &w->wlk_txn);

	if (!err) {
		path_begin(w, http_arg(rq, "path"));
		if (!cursor) {
			char *slash = w->wlk_path + strlen(w->wlk_path);

			if (slash == w->wlk_path)
				strcpy(w->wlk_path, "/");
			admin_find_look(w, i->i_ino);
			*slash = 0;
		}
		if (i->i_type == NS_DIR)
			descend(w, i->i_ino);
		if (cursor && i->i_type == NS_DIR)
			err = cursor_take(w, cursor);
		w->wlk_until_ns = clock_mono_ns() + WALK_MS * 1000000ull;
		if (!err)
			err = admin_find_walk(w);
		kv_read_end(w->wlk_txn);
	}
	admin_find_answer(w, err, rp);
}

void admin_get_find(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *policy = http_arg(rq, "policy"), *stale = http_arg(rq, "stale");
	struct walk *w = calloc(1, sizeof(*w));
	struct ns_inode i;

	if (!w || !(w->wlk_found = json_array())) {
		free(w);
		admin_reply_error(rp, 500, "out of memory");
		return;
	}
	w->wlk_a = arg;
	w->wlk_ns = w->wlk_a->a_ops.ao_ns;
	w->wlk_stale = stale && *stale == '1';
	w->wlk_lost = http_arg(rq, "lost");
	w->wlk_degraded = http_arg(rq, "degraded");
	w->wlk_count = http_arg(rq, "count");
	if (!policy && !stale && !http_arg(rq, "ds") && !w->wlk_lost && !w->wlk_degraded &&
	    !w->wlk_count && !http_arg(rq, "files"))
		admin_reply_error(rp, 400,
				  "no condition: expected ds, stale=1, lost=1, degraded=1, policy, "
				  "files=1, or count=1 to count lost and degraded files");
	else if ((!http_arg(rq, "ds") || (w->wlk_ds = admin_ds_arg(arg, rq, rp))) &&
		 (!policy || policy_arg(w, policy, rp)) && admin_inode_arg(arg, rq, rp, &i))
		admin_find_begin(w, rq, &i, rp);
	json_decref(w->wlk_found);
	free(w);
}
