/* SPDX-License-Identifier: Apache-2.0 */
/* admin_events.c - the journal over the API. */
#include "mds/admin/admin_holders.h"
#include "mds/journal/event_journal.h"
#include <errno.h>
#include <stdlib.h>

#define EVENTS_MOST  1000   /* events in one answer */
#define ENTRIES_MOST 200000 /* directory entries that are read to find paths */

struct page {
	struct admin *p_a;
	struct kv_txn *p_txn;
	int64_t p_since;
	enum ev_kind p_kind; /* 0: any */
	/* at: index in p_e, which is a ring when the newest events are wanted */
	size_t p_most, p_n, p_at;
	bool p_newest, p_more;
	uint64_t p_next;
	struct ev_event *p_e;
};

static int admin_events_gather(void *arg, const struct ev_event *e)
{
	struct page *p = arg;

	if (e->e_sec < p->p_since || (p->p_kind && e->e_kind != p->p_kind)) {
		p->p_next = e->e_seq;
		return 0;
	}
	if (p->p_n == p->p_most && !p->p_newest) {
		p->p_more = true;
		return 1;
	}
	p->p_e[p->p_at] = *e;
	p->p_at = (p->p_at + 1) % p->p_most;
	p->p_n += p->p_n < p->p_most;
	p->p_next = e->e_seq;
	return 0;
}

static json_t *event_json(struct page *p, const struct ev_event *e, unsigned *budget)
{
	json_t *path = NULL;
	char text[4096];

	if (e->e_ino && *budget &&
	    !ns_path_of(p->p_a->a_ops.ao_ns, p->p_txn, e->e_ino, budget, text, sizeof(text)))
		path = admin_text(text, strlen(text));
	return json_pack(
		"{s:I, s:f, s:s, s:o, s:o, s:o, s:o}", "seq", (json_int_t)e->e_seq, "happened_at",
		(double)e->e_sec + e->e_nsec / 1000000 / 1000.0, "kind", ev_kind_name(e->e_kind),
		"subject",
		*e->e_subject ? admin_text(e->e_subject, strlen(e->e_subject)) : json_null(),
		"inode", e->e_ino ? json_integer((json_int_t)e->e_ino) : json_null(), "path",
		path ? path : json_null(), "text", admin_text(e->e_text, strlen(e->e_text)));
}

void admin_get_events(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *kind = http_arg(rq, "kind");
	int64_t after = admin_number_arg(rq, rp, "after", 0, INT64_MAX, 0),
		since = after < 0 ? -1 : admin_number_arg(rq, rp, "since", 0, INT64_MAX, 0),
		last = since < 0 ? -1 : admin_number_arg(rq, rp, "last", 1, EVENTS_MOST, 0);
	struct page p = {.p_a = arg,
			 .p_since = since,
			 .p_newest = last,
			 .p_most = last ? (size_t)last : EVENTS_MOST,
			 .p_next = (uint64_t)after};
	unsigned budget = ENTRIES_MOST;
	json_t *list;
	int err;

	if (last < 0)
		return;
	if (kind && !(p.p_kind = ev_kind_of(kind))) {
		admin_reply_error(rp, 400, "%s: no such kind of event", kind);
		return;
	}
	p.p_e = calloc(p.p_most, sizeof(*p.p_e));
	err = p.p_e ? kv_read_begin(ns_kv(p.p_a->a_ops.ao_ns), &p.p_txn) : -ENOMEM;
	if (!err)
		err = journal_read(p.p_txn, (uint64_t)after, admin_events_gather, &p);
	list = json_array();
	for (size_t i = 0; !err && i < p.p_n; i++)
		json_array_append_new(
			list, event_json(&p, &p.p_e[p.p_n < p.p_most ? i : (p.p_at + i) % p.p_most],
					 &budget));
	if (p.p_txn)
		kv_read_end(p.p_txn);
	free(p.p_e);
	if (err) {
		json_decref(list);
		admin_reply_error(rp, 500, "cannot read the journal: %s", strerror(-err));
		return;
	}
	admin_reply_json(rp, 200,
			 json_pack("{s:o, s:I, s:b}", "events", list, "next", (json_int_t)p.p_next,
				   "more", p.p_more));
}
