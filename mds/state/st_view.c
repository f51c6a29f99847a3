/* SPDX-License-Identifier: Apache-2.0 */
/* st_view.c - copies of clients and layouts for the administrator; see st_view.h. */
#include "base/clock.h"
#include "mds/state/st_view.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#define SHARDS_AT_A_TIME 1024 /* in one hold of the lock */

static int by_id(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

int st_client_ids(struct st *st, uint64_t **ids, size_t *n)
{
	size_t max;

	*n = 0;
	st_all_lock(st);
	max = st->st_clients.h_count;
	*ids = malloc((max ? max : 1) * sizeof(**ids));
	if (*ids) {
		hash_each(&st->st_clients, i, l, next)(*ids)[(*n)++] =
			hash_entry(l, struct st_client, cl_link)->cl_id;
	}
	st_all_unlock(st);
	if (!*ids)
		return -ENOMEM;
	qsort(*ids, *n, sizeof(**ids), by_id);
	return 0;
}

static void add_addr(struct st_client_view *v, const uint8_t addr[16])
{
	for (unsigned i = 0; i < v->cv_naddrs; i++)
		if (!memcmp(v->cv_addr[i], addr, 16))
			return;
	if (v->cv_naddrs < ST_VIEW_ADDRS)
		memcpy(v->cv_addr[v->cv_naddrs++], addr, 16);
}

void st_addr_text(const uint8_t addr[16], char text[ST_ADDR_TEXT])
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};

	if (!memcmp(addr, v4, sizeof(v4)))
		inet_ntop(AF_INET, addr + 12, text, ST_ADDR_TEXT);
	else
		inet_ntop(AF_INET6, addr, text, ST_ADDR_TEXT);
}

/* Linux calls itself "Linux NFSv4.2 node" or "Linux NFSv4.2 uniquifier/node": the name is the
 * node. */
const uint8_t *st_owner_name(const uint8_t *owner, uint32_t len, uint32_t *name_len)
{
	const uint8_t *end = owner + len, *p = NULL;

	if (len > 12 && !memcmp(owner, "Linux NFSv4.", 12))
		p = memchr(owner + 12, ' ', len - 12);
	for (const uint8_t *s = p; s && (s = memchr(s, '/', (size_t)(end - s))) && s + 1 < end; s++)
		p = s;
	if (!p || p + 1 >= end) {
		*name_len = len;
		return owner;
	}
	*name_len = (uint32_t)(end - p - 1);
	return p + 1;
}

static void view_sessions(const struct st_client *c, struct st_client_view *v)
{
	for (const struct st_session *s = c->cl_sessions; s; s = s->se_next) {
		if (!v->cv_sessions++) {
			v->cv_sec = s->se_sec;
			v->cv_tls = s->se_tls;
		}
		if (s->se_minor > v->cv_minor)
			v->cv_minor = s->se_minor;
		v->cv_backchannels += atomic_load(&s->se_cb_conn) != NULL;
		add_addr(v, s->se_addr);
	}
}

void st_client_names(const struct st_client *c, struct st_client_view *v)
{
	memset(v, 0, sizeof(*v));
	v->cv_owner_len = c->cl_owner_len;
	if (c->cl_owner_len)
		memcpy(v->cv_owner, c->cl_owner, c->cl_owner_len);
	view_sessions(c, v);
	if (!v->cv_naddrs && c->cl_place)
		add_addr(v, c->cl_place->pl_addr);
}

bool st_client_view(struct st *st, uint64_t id, struct st_client_view *v)
{
	struct st_client *c;

	memset(v, 0, sizeof(*v));
	st_all_lock(st);
	c = st_client_get(st, id);
	if (c) {
		st_client_names(c, v);
		v->cv_id = c->cl_id;
		v->cv_number = c->cl_number;
		v->cv_flavor = c->cl_flavor;
		v->cv_uid = c->cl_uid;
		if (c->cl_principal)
			snprintf(v->cv_principal, sizeof(v->cv_principal), "%s", c->cl_principal);
		v->cv_opens = st_client_number(c, ST_N_OPENS);
		v->cv_locks = st_client_number(c, ST_N_RANGES);
		v->cv_delegs = st_client_number(c, ST_N_DELEGS);
		v->cv_layouts = st_client_number(c, ST_N_LAYOUTS);
		v->cv_silent_ms = st_silent_ns(c, st_now_ns(st)) / 1000000;
		v->cv_confirmed = c->cl_confirmed;
		v->cv_evicting = atomic_load(&c->cl_evicting);
		v->cv_expired = st_lease_expired(st, c);
		v->cv_reclaims = st_reclaim_check(st, c) == NFS4_OK;
	}
	st_all_unlock(st);
	return c != NULL;
}

unsigned st_courteous(struct st *st)
{
	unsigned n = 0;

	st_all_lock(st);
	hash_each(&st->st_clients, i, l, next)
	{
		struct st_client *c = hash_entry(l, struct st_client, cl_link);

		n += c->cl_confirmed && !atomic_load(&c->cl_evicting) && st_lease_expired(st, c);
	}
	st_all_unlock(st);
	return n;
}

/* ---- layouts ---- */

struct list {
	struct st_layout_view *v;
	size_t n, room;
	bool failed;
};

/* locked */
static void st_view_list_add(struct list *k, const struct st_layout *l)
{
	if (k->n == k->room) {
		size_t room = k->room ? 2 * k->room : 64;
		struct st_layout_view *v = realloc(k->v, room * sizeof(*v));

		if (!v) {
			k->failed = true;
			return;
		}
		k->v = v;
		k->room = room;
	}
	k->v[k->n++] = (struct st_layout_view){l->l_file->f_ino, l->l_client->cl_id,
					       l->l_client->cl_number, l->l_iomode, l->l_recalled};
}

static void list_file(struct st *st, uint64_t ino, uint64_t client, struct list *k)
{
	const struct st_file *f;

	st_all_lock(st);
	f = st_file_get(st, ino, false);
	for (const struct st_layout *l = f ? f->f_layouts : NULL; l; l = l->l_fnext)
		if (!client || l->l_client->cl_id == client)
			st_view_list_add(k, l);
	st_all_unlock(st);
}

/* Lists layouts from shard `from` on. Returns the shard to continue with. */
static size_t list_some(struct st *st, uint64_t client, size_t from, struct list *k)
{
	size_t to = from + SHARDS_AT_A_TIME;

	st_all_lock(st);
	for (; from < to; from++) {
		hash_each(&st->st_shards[from].sh_table, i, l, next)
		{
			const struct st_layout *lo = hash_entry(l, struct st_layout, l_link);

			if (l->hl_hash >> 62 == ST_LAYOUT &&
			    (!client || lo->l_client->cl_id == client))
				st_view_list_add(k, lo);
		}
	}
	st_all_unlock(st);
	return from;
}

static int by_file(const void *a, const void *b)
{
	const struct st_layout_view *x = a, *y = b;

	if (x->lv_ino != y->lv_ino)
		return x->lv_ino < y->lv_ino ? -1 : 1;
	return x->lv_client < y->lv_client ? -1 : x->lv_client > y->lv_client;
}

int st_layouts_view(struct st *st, uint64_t ino, uint64_t client,
		    void (*fn)(void *arg, const struct st_layout_view *v), void *arg)
{
	struct list k = {0};

	if (ino) {
		list_file(st, ino, client, &k);
	} else {
		for (size_t at = 0; at < ST_SHARDS && !k.failed;)
			at = list_some(st, client, at, &k);
	}
	if (!k.failed && k.n)
		qsort(k.v, k.n, sizeof(*k.v), by_file);
	for (size_t i = 0; i < k.n && !k.failed; i++)
		fn(arg, &k.v[i]);
	free(k.v);
	return k.failed ? -ENOMEM : 0;
}
