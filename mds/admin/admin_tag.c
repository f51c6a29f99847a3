/* SPDX-License-Identifier: Apache-2.0 */
/* admin_tag.c - tags over the API: clients that work on one compute job, and what they did
 * (docs/tags.md). */
#include "mds/admin/admin_tag.h"
#include "base/metrics.h"
#include "mds/admin/admin_holders.h"
#include "mds/journal/event_journal.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

/* ---- clients and their tags ---- */

unsigned admin_tag_of(struct admin *a, const struct st_client_view *v)
{
	struct mds *m = a->a_ops.ao_mds;
	struct job_tag_texts t;
	unsigned slot = 0;

	job_tag_texts(v, &t);
	for (unsigned i = 0; i < t.jt_n && !slot; i++)
		slot = job_tag_with(m, t.jt_text[i]);
	return slot;
}

json_t *admin_tag_json(struct admin *a, const struct st_client_view *v)
{
	char name[TAG_NAME_MAX + 1];

	return job_tag_name(a->a_ops.ao_mds, admin_tag_of(a, v), name) ? json_string(name)
								       : json_null();
}

/* Calls fn for each client until it returns true. False: it never did. */
static bool any_client(struct admin *a, bool (*fn)(void *arg, const struct st_client_view *v),
		       void *arg)
{
	struct st *st = a->a_ops.ao_mds->m_st;
	struct st_client_view v;
	uint64_t *ids = NULL;
	bool found = false;
	size_t n = 0;

	if (st_client_ids(st, &ids, &n))
		return false;
	for (size_t i = 0; i < n && !found; i++)
		found = st_client_view(st, ids[i], &v) && fn(arg, &v);
	free(ids);
	return found;
}

/* ---- the list ---- */

/* A text of a tag, and how many clients it names. */
struct tag_match {
	char *ma_text;
	unsigned ma_n;
};

struct tag_list {
	struct admin *tl_a;
	const char *tl_only; /* this tag; NULL: all */
	struct tag_match *tl_match;
	size_t tl_n, tl_room;
	unsigned tl_known[MDS_TAG_SLOTS];
	json_t *tl_json;
	bool tl_failed;
};

static int by_match(const void *a, const void *b)
{
	return strcmp(((const struct tag_match *)a)->ma_text,
		      ((const struct tag_match *)b)->ma_text);
}

static struct tag_match *match_of(const struct tag_list *tl, const char *text)
{
	struct tag_match key = {.ma_text = (char *)text};

	return tl->tl_n ? bsearch(&key, tl->tl_match, tl->tl_n, sizeof(key), by_match) : NULL;
}

static void match_add(void *arg, const struct job_tag_view *v)
{
	struct tag_list *tl = arg;
	struct tag_match *more;

	if (tl->tl_only && strcmp(tl->tl_only, v->jv_name))
		return;
	more = realloc(tl->tl_match, (tl->tl_n + v->jv_n + 1) * sizeof(*more));
	tl->tl_failed |= !more;
	if (!more)
		return;
	tl->tl_match = more;
	for (size_t i = 0; i < v->jv_n; i++) {
		more[tl->tl_n] = (struct tag_match){.ma_text = strdup(v->jv_client[i])};
		tl->tl_failed |= !more[tl->tl_n].ma_text;
		tl->tl_n += more[tl->tl_n].ma_text != NULL;
	}
}

static bool match_client(void *arg, const struct st_client_view *v)
{
	struct tag_list *tl = arg;
	struct tag_match *last = NULL;
	struct job_tag_texts t;

	job_tag_texts(v, &t);
	for (unsigned i = 0; i < t.jt_n; i++) {
		struct tag_match *ma = match_of(tl, t.jt_text[i]);

		/* Owner and name may be the same. */
		if (ma && ma != last)
			ma->ma_n++;
		last = ma ? ma : last;
	}
	if (last)
		tl->tl_known[admin_tag_of(tl->tl_a, v)]++;
	return false;
}

static void tag_json(void *arg, const struct job_tag_view *v)
{
	struct tag_list *tl = arg;
	json_t *clients = json_array();

	if (tl->tl_only && strcmp(tl->tl_only, v->jv_name)) {
		json_decref(clients);
		return;
	}
	for (size_t i = 0; i < v->jv_n; i++) {
		const struct tag_match *ma = match_of(tl, v->jv_client[i]);

		json_array_append_new(
			clients, json_pack("{s:o, s:i}", "client",
					   admin_text(v->jv_client[i], strlen(v->jv_client[i])),
					   "known", ma ? (int)ma->ma_n : 0));
	}
	json_array_append_new(
		tl->tl_json,
		json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:i, s:o}", "name", v->jv_name, "made_at",
			  (json_int_t)v->jv_made_s, "since_at", (json_int_t)v->jv_since_s,
			  "operations", (json_int_t)v->jv_sum[0], "read_bytes",
			  (json_int_t)v->jv_sum[1], "written_bytes", (json_int_t)v->jv_sum[2],
			  "known", (int)tl->tl_known[v->jv_slot], "clients", clients));
}

/* there: this tag must be there. */
static void reply_tags(struct admin *a, const char *only, bool there, struct http_reply *rp)
{
	struct tag_list tl = {.tl_a = a, .tl_only = only, .tl_json = json_array()};

	job_tags_each(a->a_ops.ao_mds, match_add, &tl);
	if (tl.tl_n)
		qsort(tl.tl_match, tl.tl_n, sizeof(*tl.tl_match), by_match);
	if (tl.tl_n)
		any_client(a, match_client, &tl);
	job_tags_each(a->a_ops.ao_mds, tag_json, &tl);
	for (size_t i = 0; i < tl.tl_n; i++)
		free(tl.tl_match[i].ma_text);
	free(tl.tl_match);
	if (!tl.tl_failed && (!there || json_array_size(tl.tl_json))) {
		admin_reply_json(rp, 200, json_pack("{s:o}", "tags", tl.tl_json));
		return;
	}
	json_decref(tl.tl_json);
	if (tl.tl_failed)
		admin_reply_error(rp, 500, "out of memory");
	else
		admin_reply_error(rp, 404, "%s: no compute job has this name", only);
}

/* The tag's name; NULL: an error was put into rp. */
static const char *admin_tag_name_arg(const struct http_req *rq, struct http_reply *rp)
{
	const char *name = http_arg(rq, "name");

	if (name && job_tag_name_ok(name))
		return name;
	admin_reply_error(rp, 400, "name: expected 1 to %u letters, digits and ._@-", TAG_NAME_MAX);
	return NULL;
}

void admin_get_tags(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *name = http_arg(rq, "name");

	if (!name || admin_tag_name_arg(rq, rp))
		reply_tags(arg, name, name != NULL, rp);
}

/* ---- what a client is called ---- */

struct called {
	const char *ca_given;
	bool ca_number; /* a number or a clientid: it names a client only as long as it is there */
	uint64_t ca_value;
	char ca_text[TAG_CLIENT_MAX + 1]; /* what names it from now on; "": its owner cannot */
};

/* The whole owner, if it can be a text. */
static void take_text(struct called *ca, const uint8_t *text, uint32_t len)
{
	bool fits = len && len <= TAG_CLIENT_MAX && !memchr(text, 0, len);

	if (fits)
		memcpy(ca->ca_text, text, len);
	ca->ca_text[fits ? len : 0] = 0;
}

static bool shown_as(const uint8_t *text, uint32_t len, const char *given)
{
	json_t *shown = admin_text(text, len);
	bool is = shown && !strcmp(json_string_value(shown), given);

	json_decref(shown);
	return is;
}

static bool called_so(void *arg, const struct st_client_view *v)
{
	struct called *ca = arg;
	uint32_t len = v->cv_owner_len;
	const uint8_t *text = v->cv_owner;

	if (ca->ca_number) {
		if (ca->ca_value != v->cv_number && ca->ca_value != v->cv_id)
			return false;
	} else if (!shown_as(text, len, ca->ca_given)) {
		text = st_owner_name(v->cv_owner, v->cv_owner_len, &len);
		if (!shown_as(text, len, ca->ca_given))
			return false;
	}
	take_text(ca, text, len);
	return true;
}

/* An address in the form in which clients' addresses are compared. */
static bool address_of(const char *given, char text[ST_ADDR_TEXT])
{
	uint8_t addr[16] = {[10] = 0xff, [11] = 0xff};

	if (inet_pton(AF_INET, given, addr + 12) != 1 && inet_pton(AF_INET6, given, addr) != 1)
		return false;
	st_addr_text(addr, text);
	return true;
}

/* Finds the text that names a client from now on: the same, but for a number, which does not
 * outlive the client, and for what is shown with \x. False: an error was put into rp. */
static bool client_text(struct admin *a, struct called *ca, struct http_reply *rp)
{
	const char *given = ca->ca_given;
	char *end, address[ST_ADDR_TEXT];
	bool found;

	ca->ca_value = strtoull(given, &end, 0);
	ca->ca_number = *given >= '0' && *given <= '9' && !*end;
	if (address_of(given, address)) {
		snprintf(ca->ca_text, sizeof(ca->ca_text), "%s", address);
		return true;
	}
	if (!ca->ca_number && !strstr(given, "\\x")) {
		if (*given && strlen(given) <= TAG_CLIENT_MAX &&
		    shown_as((const uint8_t *)given, (uint32_t)strlen(given), given)) {
			snprintf(ca->ca_text, sizeof(ca->ca_text), "%s", given);
			return true;
		}
		admin_reply_error(rp, 400,
				  "%.40s: expected a client's name, address, owner or number",
				  given);
		return false;
	}
	found = any_client(a, called_so, ca);
	if (!found)
		admin_reply_error(rp, 404,
				  "%.300s: no such client now, and a client that is not "
				  "here is named by its host name, address or owner",
				  given);
	else if (!*ca->ca_text)
		admin_reply_error(rp, 409, "%.300s: name it by its address", given);
	return found && *ca->ca_text;
}

/* ---- changes ---- */

struct naming {
	struct admin *na_a;
	const char *na_name;
	char **na_text; /* sorted */
	size_t na_n;
	/* a client that another tag names, too */
	char na_other[TAG_NAME_MAX + 1], na_mine[TAG_CLIENT_MAX + 1], na_theirs[TAG_CLIENT_MAX + 1];
};

/* A text as people may see it: clients choose their owners. */
static const char *shown_text(const char *text, char out[4 * TAG_CLIENT_MAX + 1])
{
	json_t *s = admin_text(text, strlen(text));

	snprintf(out, 4 * TAG_CLIENT_MAX + 1, "%s", s ? json_string_value(s) : "?");
	json_decref(s);
	return out;
}
#define shown(text) shown_text(text, (char[4 * TAG_CLIENT_MAX + 1]){0})

static int by_string(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool named_elsewhere(void *arg, const struct st_client_view *v)
{
	struct naming *na = arg;
	struct mds *m = na->na_a->a_ops.ao_mds;
	const char *mine = NULL;
	struct job_tag_texts t;

	job_tag_texts(v, &t);
	for (unsigned i = 0; i < t.jt_n && !mine; i++)
		if (bsearch(&t.jt_text[i], na->na_text, na->na_n, sizeof(char *), by_string))
			mine = t.jt_text[i];
	for (unsigned i = 0; mine && i < t.jt_n; i++) {
		if (!job_tag_name(m, job_tag_with(m, t.jt_text[i]), na->na_other) ||
		    !strcmp(na->na_other, na->na_name))
			continue;
		snprintf(na->na_mine, sizeof(na->na_mine), "%s", mine);
		snprintf(na->na_theirs, sizeof(na->na_theirs), "%s", t.jt_text[i]);
		return true;
	}
	return false;
}

/* Takes the texts of the body, one a line. False: an error was put into rp. */
static bool naming_read(struct naming *na, const char *body, struct http_reply *rp)
{
	char *copy = strdup(body), *save = NULL;
	size_t room = 1;
	bool fine = copy;

	for (const char *p = body; *p; p++)
		room += *p == '\n' || *p == '\r';
	na->na_text = copy ? calloc(room, sizeof(char *)) : NULL;
	fine = na->na_text;
	for (char *line = fine ? strtok_r(copy, "\r\n", &save) : NULL; line && fine;
	     line = strtok_r(NULL, "\r\n", &save)) {
		struct called ca = {.ca_given = line};

		if (!client_text(na->na_a, &ca, rp)) {
			fine = false;
			break;
		}
		na->na_text[na->na_n] = strdup(ca.ca_text);
		fine = na->na_text[na->na_n++];
	}
	free(copy);
	if (!fine && !rp->rp_body)
		admin_reply_error(rp, 500, "out of memory");
	else if (fine && !na->na_n)
		admin_reply_error(rp, 400, "the body: expected clients, one a line");
	return fine && na->na_n;
}

/* Says in the journal which clients were named: the audit of the request does not have the body. */
static void naming_audit(const struct naming *na, const struct http_req *rq)
{
	char who[128], what[400];
	size_t at = (size_t)snprintf(what, sizeof(what), "tag %s:", na->na_name), i;

	for (i = 0; i < na->na_n; i++) {
		int n = snprintf(what + at, sizeof(what) - at, "%s %s", i ? "," : "",
				 shown(na->na_text[i]));

		if (n < 0 || at + (size_t)n + 32 > sizeof(what)) {
			snprintf(what + at, sizeof(what) - at, " and %zu more", na->na_n - i);
			break;
		}
		at += (size_t)n;
	}
	http_who_text(rq->rq_who, who, sizeof(who));
	journal_add(EV_AUDIT, who, 0, "%s", what);
}

/* Puts what job_tag_add said of the text number bad. */
static void naming_error(const struct naming *na, int err, size_t bad, struct http_reply *rp)
{
	struct mds *m = na->na_a->a_ops.ao_mds;
	const char *text = na->na_text[bad < na->na_n ? bad : 0];
	char other[TAG_NAME_MAX + 1] = "";

	if (err == -EEXIST) {
		job_tag_name(m, job_tag_with(m, text), other);
		admin_reply_error(rp, 409,
				  "%s: the compute job %s names it already; a client is in "
				  "one compute job",
				  shown(text), other);
	} else if (err == -ENOSPC) {
		admin_reply_error(rp, 409, "there are %u compute jobs, and no more can be named",
				  TAGS_MOST);
	} else if (err == -E2BIG) {
		admin_reply_error(rp, 409, "compute jobs name at most %u clients together",
				  TAG_CLIENTS_MOST);
	} else {
		admin_reply_error(rp, 500, "cannot store the tag: %s", strerror(-err));
	}
}

void admin_put_tag(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct naming na = {.na_a = arg, .na_name = admin_tag_name_arg(rq, rp)};
	size_t bad = 0;
	int err;

	if (!na.na_name)
		return;
	if (naming_read(&na, rq->rq_body, rp)) {
		qsort(na.na_text, na.na_n, sizeof(char *), by_string);
		err = any_client(arg, named_elsewhere, &na) ? -EBUSY : 0;
		if (!err)
			err = job_tag_add(na.na_a->a_ops.ao_mds, na.na_name,
					  (const char *const *)na.na_text, na.na_n, &bad);
		if (err == -EBUSY && strcmp(na.na_mine, na.na_theirs)) {
			admin_reply_error(rp, 409,
					  "%s: the compute job %s names this client already, as "
					  "%s; a client is in one compute job",
					  shown(na.na_mine), na.na_other, shown(na.na_theirs));
		} else if (err == -EBUSY) {
			admin_reply_error(rp, 409,
					  "%s: the compute job %s names it already; a client is in "
					  "one compute job",
					  shown(na.na_mine), na.na_other);
		} else if (err) {
			naming_error(&na, err, bad, rp);
		} else {
			naming_audit(&na, rq);
			reply_tags(arg, na.na_name, false, rp);
		}
	}
	for (size_t i = 0; i < na.na_n; i++)
		free(na.na_text[i]);
	free(na.na_text);
}

void admin_delete_tag(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *name = admin_tag_name_arg(rq, rp), *client = http_arg(rq, "client");
	struct mds *m = ((struct admin *)arg)->a_ops.ao_mds;
	struct called ca = {.ca_given = client};
	int err;

	if (!name || (client && !client_text(arg, &ca, rp)))
		return;
	err = job_tag_del(m, name, client ? ca.ca_text : NULL);
	if (err == -ENOENT && client)
		admin_reply_error(rp, 404, "%s: the compute job %s does not name it so", client,
				  name);
	else if (err == -ENOENT)
		admin_reply_error(rp, 404, "%s: no compute job has this name", name);
	else if (err)
		admin_reply_error(rp, 500, "cannot store the tag: %s", strerror(-err));
	else
		reply_tags(arg, name, false, rp);
}

/* ---- metrics ---- */

struct tag_metric {
	struct metric_out *tm_out;
	bool tm_bytes;
};

static void tag_put(void *arg, const struct job_tag_view *v)
{
	static const char *const dirs[] = {"", "read", "write"};
	char name[TAG_NAME_MAX + 16], label[TAG_NAME_MAX + 40];
	const struct tag_metric *tm = arg;

	/* Prometheus itself gives each series a label "job". */
	metric_label(name, sizeof(name), "tag", v->jv_name);
	if (!tm->tm_bytes)
		metric_put(tm->tm_out, name, (double)v->jv_sum[0]);
	for (unsigned i = 1; tm->tm_bytes && i < 3; i++) {
		snprintf(label, sizeof(label), "%s,dir=\"%s\"", name, dirs[i]);
		metric_put(tm->tm_out, label, (double)v->jv_sum[i]);
	}
}

static void tag_operations(struct metric_out *o, void *arg)
{
	struct tag_metric tm = {o, false};

	job_tags_each(((struct admin *)arg)->a_ops.ao_mds, tag_put, &tm);
}

static void tag_bytes(struct metric_out *o, void *arg)
{
	struct tag_metric tm = {o, true};

	job_tags_each(((struct admin *)arg)->a_ops.ao_mds, tag_put, &tm);
}

void admin_tag_metrics_init(struct admin *a)
{
	metric_family("weft_mds_tag_operations_total",
		      "NFSv4 operations of the clients of a compute job (weft job tag).",
		      tag_operations, a);
	metric_family("weft_mds_tag_bytes_total",
		      "Bytes that clients of a compute job read and wrote, through this server or, "
		      "as they report, at data servers.",
		      tag_bytes, a);
}
