/* SPDX-License-Identifier: Apache-2.0 */
/* mds_log.c - see mds_log.h. */
#include "mds/mds_log.h"
#include "base/clock.h"
#include "base/conf.h"
#include "base/log.h"
#include "mds/admin/admin_standby.h"
#include "mds/lease_key.h"
#include "mds/member.h"
#include "mds/pg_redo.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define LOG_SCHEME   "postgresql:"
#define LEASE_SCHEME "etcd:"
/* An end waits so long for a log that does not answer; and before anything was served. */
#define ENDING_MS   5000
#define UNSERVED_MS 500

static struct {
	pthread_mutex_t l_lock;
	struct pg_redo *l_redo;	 /* NULL: none is open */
	struct lease_key *l_key; /* NULL: the lease is in PostgreSQL */
	char l_node[64], l_owner[96], l_copy[128];
	int l_told; /* readable while a signal to stop is pending; open until the process ends */
	_Atomic bool l_heard; /* mds_log_heard(): another thread takes that signal */
	char l_said[512];     /* why this process waits, as it was logged last */
	void (*l_waiting)(void);
	const struct http_opts *l_web;
	struct admin_standby *l_standby;
} the_log = {.l_lock = PTHREAD_MUTEX_INITIALIZER};

bool mds_log_elsewhere(const struct conf *conf)
{
	return *conf_str(conf, "mds.log") != 0;
}

uint16_t mds_log_instance(const struct conf *conf)
{
	int64_t fs = conf_int(conf, "mds.fs");

	return mds_log_elsewhere(conf) ? (uint16_t)(fs ? fs : 1) : 0;
}

/* libpq's part: a URI is one as a whole. NULL: it is another kind of log. */
static const char *conninfo(const struct conf *conf)
{
	const char *s = conf_str(conf, "mds.log");
	size_t n = strlen(LOG_SCHEME);

	if (strncmp(s, LOG_SCHEME, n))
		return NULL;
	return s[n] == '/' ? s : s + n;
}

/* NULL: the lease is in PostgreSQL. "": it is to be nowhere that is known. */
static const char *etcd_opts(const struct conf *conf, struct etcd_opts *o)
{
	const char *s = conf_str(conf, "mds.log_lease_in");
	size_t n = strlen(LEASE_SCHEME);

	*o = (struct etcd_opts){.eo_endpoints = strncmp(s, LEASE_SCHEME, n) ? "" : s + n,
				.eo_ca = conf_str(conf, "mds.etcd_ca"),
				.eo_cert = conf_str(conf, "mds.etcd_cert"),
				.eo_key = conf_str(conf, "mds.etcd_key"),
				.eo_user = conf_str(conf, "mds.etcd_user"),
				.eo_password = conf_str(conf, "mds.etcd_password")};
	return *s ? o->eo_endpoints : NULL;
}

static int check_lease(const struct conf *conf, char *err, size_t errlen)
{
	struct etcd_opts o;
	const char *endpoints = etcd_opts(conf, &o);
	char why[200];

	if (!endpoints)
		return 0;
	if (!*endpoints)
		snprintf(err, errlen, "mds.log_lease_in: expected etcd: and endpoints");
	else if (!mds_log_elsewhere(conf))
		snprintf(err, errlen, "mds.log_lease_in: a lease in etcd needs mds.log");
	else if (etcd_check(&o, why, sizeof(why)))
		snprintf(err, errlen, "mds.log_lease_in: %s", why);
	else
		return 0;
	return -EINVAL;
}

int mds_log_check(const struct conf *conf, char *err, size_t errlen)
{
	const char *info = conninfo(conf);
	char why[300] = "";

	if (!mds_log_elsewhere(conf))
		return check_lease(conf, err, errlen);
	if (!info) {
		snprintf(err, errlen, "mds.log: expected postgresql: and a connection string");
		return -EINVAL;
	}
	if (pg_redo_check(info, why, sizeof(why))) {
		snprintf(err, errlen, "mds.log: %s", why);
		return -EINVAL;
	}
	if (!conf_bool(conf, "mds.sync")) {
		snprintf(err, errlen, "mds.log: a log in PostgreSQL needs mds.sync");
		return -EINVAL;
	}
	return check_lease(conf, err, errlen);
}

/* ---- the wait ---- */

static void log_waits_no_more(void)
{
	admin_standby_stop(the_log.l_standby);
	the_log.l_standby = NULL;
	the_log.l_web = NULL;
}

static void sigset_stop(sigset_t *stop)
{
	sigemptyset(stop);
	sigaddset(stop, SIGTERM);
	sigaddset(stop, SIGINT);
}

/* Sleeps. A signal to stop ends the process: it holds nothing. */
static void log_wait(struct kv *kv, uint32_t ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
	sigset_t stop;
	int sig;

	if (the_log.l_waiting)
		the_log.l_waiting();
	sigset_stop(&stop);
	sig = sigtimedwait(&stop, NULL, &t);
	if (sig < 0)
		return;
	log_info("signal %d: stopping", sig);
	sd_notify(0, "STOPPING=1");
	log_waits_no_more();
	/* The signal is pending no more, so what waits for the log has to hear it in this way: a
	 * claim may have been made, and the archive be read while the store is closed. */
	pg_redo_stop(the_log.l_redo);
	if (kv)
		kv_close(kv);
	mds_log_close();
	log_info("stopped");
	exit(0);
}

void mds_log_web(const struct http_opts *web)
{
	the_log.l_web = web;
}

void mds_log_waiting(void (*fn)(void))
{
	the_log.l_waiting = fn;
}

/* Each reason once. systemd takes a standby for one that has started. */
static void log_waits_for(const char *why)
{
	char err[256];

	if (!strcmp(the_log.l_said, why))
		return;
	if (!the_log.l_standby && the_log.l_web && *the_log.l_web->ho_addrs &&
	    admin_standby_start(&the_log.l_standby, the_log.l_web, err, sizeof(err))) {
		log_error("%s", err);
		the_log.l_web = NULL; /* once */
	}
	if (the_log.l_standby)
		admin_standby_why(the_log.l_standby, why);
	snprintf(the_log.l_said, sizeof(the_log.l_said), "%s", why);
	log_info("%s", why);
	sd_notifyf(0, "READY=1\nSTATUS=%s", why);
}

/* -ECANCELED: a signal to stop has come, and the next wait ends the process. */
static bool passes(int rc)
{
	return rc == -EAGAIN || rc == -EBUSY || rc == -ECANCELED;
}

/* Of a process that holds the instance and does not serve yet. It waits for PostgreSQL in many
 * places, so this ends the process. No client was answered: nothing is lost. Once another thread
 * takes the signal, that one ends the process in order: a second signal must not break that off. */
static void *mds_log_hear(void *arg)
{
	struct mds *m = arg;
	struct pollfd p = {.fd = the_log.l_told, .events = POLLIN};

	for (unsigned away = 0;;) {
		struct kv_redo_state st = {0};

		poll(&p, 1, away ? 0 : -1);
		if (atomic_load(&the_log.l_heard))
			return NULL;
		if (!(p.revents & POLLIN)) {
			away = 0;
			continue;
		}
		usleep(50000);
		pthread_mutex_lock(&the_log.l_lock);
		if (the_log.l_redo)
			pg_redo_kv(the_log.l_redo)->r_ops->ro_state(the_log.l_redo, &st);
		pthread_mutex_unlock(&the_log.l_lock);
		away = st.rs_up && store_lease_live(&m->m_store_lease) ? 1 : away + 50;
		if (away >= UNSERVED_MS && !atomic_load(&the_log.l_heard)) {
			log_warn("a signal to stop, and the log in PostgreSQL does not answer: "
				 "stopping without it, before anything was served");
			_exit(1);
		}
	}
	return NULL;
}

static int hear_begin(struct mds *m)
{
	pthread_t t;
	int rc = -pthread_create(&t, NULL, mds_log_hear, m);

	return rc ? rc : -pthread_detach(t);
}

void mds_log_heard(void)
{
	atomic_store(&the_log.l_heard, true);
}

/* Takes the log, or follows it: one step. A claim by a process that cannot serve would keep out one
 * that can, so this one looks at its copy first; and once before it stands by (then fitted is set),
 * so that somebody hears of it. took: what it took, where *due. */
static int take_or_follow(struct kv *kv, const struct ns_identity *id, bool *due, bool *fitted,
			  struct member_took *took, char *err, size_t errlen)
{
	struct pg_redo *pr = the_log.l_redo;
	struct kv_redo_state st;
	uint64_t from;
	int rc = pg_redo_look(pr, due, err, errlen);

	if (rc)
		return rc;
	pg_redo_seen(pr, &took->mt_free, &took->mt_detection_ms);
	*due = *due && !(took->mt_free && member_yields());
	kv_redo_state(kv, &st);
	from = clock_mono_ms();
	rc = kv_follow(kv, err, errlen);
	if (!rc && (*due || !*fitted))
		rc = ns_identity_check(kv, id, err, errlen);
	if (!rc && !*due && !*fitted)
		rc = kv_fits(kv, err, errlen);
	*fitted = *fitted || !rc;
	if (!rc && *due)
		rc = kv_promote(kv, err, errlen);
	if (!rc && *due) {
		took->mt_claim_ms = pg_redo_claim_ms(pr);
		took->mt_filling_ms = clock_mono_ms() - from;
		took->mt_filling_ms -= took->mt_filling_ms > took->mt_claim_ms
					       ? took->mt_claim_ms
					       : took->mt_filling_ms;
	} else if (!rc) {
		/* What the look saw, which came before it. */
		member_follows(st.rs_last);
	}
	return rc;
}

/* Follows the log until it is this process's. */
static int become_holder(struct kv *kv, const struct pg_redo_opts *o, const struct ns_identity *id,
			 char *err, size_t errlen)
{
	struct member_took took = {0};
	bool due = false, fitted = false;
	char line[128];
	int rc;

	for (;;) {
		rc = take_or_follow(kv, id, &due, &fitted, &took, err, errlen);
		if (!rc && due) {
			member_holds(&took);
			return 0;
		}
		if (!rc) {
			snprintf(line, sizeof(line),
				 "standby: another process holds instance %u, or did until now",
				 o->po_inst);
			log_waits_for(line);
		} else if (passes(rc)) {
			if (rc != -ECANCELED)
				log_waits_for(err);
		} else {
			return rc;
		}
		log_wait(kv, member_pause_ms(o->po_lease_ms / 20 + 1));
	}
}

/* A copy's identity is made once and is in its folder: two machines may have the same name. */
static int copy_id(const char *store, char id[17], char *err, size_t errlen)
{
	char path[4096], temp[4096];
	uint64_t v = 0;
	FILE *f;
	int rc = 0;

	snprintf(path, sizeof(path), "%s/copy-id", store);
	snprintf(temp, sizeof(temp), "%s/copy-id.new", store);
	f = fopen(path, "re");
	if (f) {
		rc = fscanf(f, "%16[0-9a-f]", id) == 1 && strlen(id) == 16 ? 0 : -EPROTO;
		fclose(f);
		if (!rc)
			return 0;
	}
	if ((!f && errno != ENOENT) || (mkdir(store, 0700) && errno != EEXIST))
		goto failed;
	randombytes_buf(&v, sizeof(v));
	snprintf(id, 17, "%016" PRIx64, v);
	f = fopen(temp, "we");
	if (!f)
		goto failed;
	rc = fprintf(f, "%s\n", id) < 0 || fflush(f) || fsync(fileno(f));
	if (!fclose(f) && !rc && !rename(temp, path))
		return 0;
failed:
	rc = errno ? -errno : -EIO;
	snprintf(err, errlen, "%s: %s", path, strerror(-rc));
	return rc;
}

/* PostgreSQL takes only UTF-8: a byte that is none, as of a character that was cut, becomes '?'. */
static void only_utf8(char *s)
{
	unsigned char *p = (unsigned char *)s;

	while (*p) {
		unsigned n = *p < 0x80		       ? 1
			     : *p >= 0xc2 && *p < 0xe0 ? 2
			     : *p >> 4 == 0xe	       ? 3
			     : *p >= 0xf0 && *p < 0xf5 ? 4
						       : 0;
		bool ok = n;

		/* Too long a form, a surrogate, above U+10FFFF. */
		if (n > 2)
			ok = !(*p == 0xe0 && p[1] < 0xa0) && !(*p == 0xed && p[1] > 0x9f) &&
			     !(*p == 0xf0 && p[1] < 0x90) && !(*p == 0xf4 && p[1] > 0x8f);
		for (unsigned i = 1; ok && i < n; i++)
			ok = p[i] >> 6 == 2;
		if (!ok)
			*p = '?';
		p += ok ? n : 1;
	}
}

/* The end of the path says more than its beginning. */
static const char *path_end(const char *path, size_t max)
{
	size_t n = strlen(path);

	return path + (n > max ? n - max : 0);
}

/* The identity is in both names: those of two machines may begin alike, and their paths be one. */
static int make_owner(const char *node, const char *store, char *err, size_t errlen)
{
	char id[17] = "";
	int rc = copy_id(store, id, err, errlen);

	if (*node)
		snprintf(the_log.l_node, sizeof(the_log.l_node), "%s", node);
	else
		gethostname(the_log.l_node, sizeof(the_log.l_node) - 1);
	only_utf8(the_log.l_node);
	snprintf(the_log.l_owner, sizeof(the_log.l_owner), "%.40s:%s %s", the_log.l_node,
		 path_end(store, 37), id);
	only_utf8(the_log.l_owner);
	snprintf(the_log.l_copy, sizeof(the_log.l_copy), "%.40s:%s %s", the_log.l_node,
		 path_end(store, 45), id);
	only_utf8(the_log.l_copy);
	return rc;
}

static uint64_t last_batch(void *pr)
{
	struct kv_redo_state st;

	pg_redo_kv(pr)->r_ops->ro_state(pr, &st);
	return st.rs_last;
}

/* Says in PostgreSQL what this process is. The server works without it. */
static void begin_member(const struct pg_redo_opts *o)
{
	const struct member_opts mo = {.mo_conninfo = o->po_conninfo,
				       .mo_node = the_log.l_node,
				       .mo_name = the_log.l_owner,
				       .mo_inst = o->po_inst,
				       .mo_lease_ms = o->po_lease_ms};
	int rc = member_start(&mo);

	if (rc)
		log_warn("instance %u: cannot tell in PostgreSQL what this process is: %s",
			 o->po_inst, strerror(-rc));
}

/* Makes the log that was put back another one. */
static int mds_log_put_back(const char *store, const struct pg_redo_opts *o, char *err,
			    size_t errlen)
{
	char data[4096];
	int rc;

	snprintf(data, sizeof(data), "%s/data.mdb", store);
	while (passes(rc = pg_redo_restore(the_log.l_redo, !access(data, F_OK), err, errlen))) {
		if (rc != -ECANCELED)
			log_waits_for(err);
		log_wait(NULL, o->po_lease_ms / 20 + 1);
	}
	return rc;
}

int mds_log_whole(char *err, size_t errlen)
{
	return the_log.l_redo ? pg_redo_whole(the_log.l_redo, err, errlen) : 0;
}

static void key_held(void *arg, uint64_t end_ns)
{
	store_lease_extend(arg, end_ns);
}

static void key_lost(void *arg, const char *why)
{
	(void)arg;
	store_lease_lost(why);
}

static int open_key(struct mds *m, const struct conf *conf, char *err, size_t errlen)
{
	struct lease_key_opts o = {
		.lk_owner = the_log.l_owner,
		.lk_lease_ms = (uint32_t)conf_msec(conf, "mds.log_lease"),
		.lk_rank_ms = (uint32_t)conf_msec(conf, "mds.log_rank"),
		.lk_held = key_held,
		.lk_lost = key_lost,
		.lk_arg = &m->m_store_lease,
	};

	if (!etcd_opts(conf, &o.lk_etcd))
		return 0;
	return lease_key_open(&the_log.l_key, &o, err, errlen);
}

int mds_log_open(struct mds *m, const struct conf *conf, const struct ns_identity *id,
		 bool restoring, struct kv_opts *opts, char *err, size_t errlen)
{
	const char *store = conf_str(conf, "mds.store");
	sigset_t stop;
	struct pg_redo_opts o = {
		.po_conninfo = conninfo(conf),
		.po_owner = the_log.l_owner,
		.po_copy = the_log.l_copy,
		.po_restoring = restoring,
		.po_inst = mds_log_instance(conf),
		.po_lease_ms = (uint32_t)conf_msec(conf, "mds.log_lease"),
		.po_rank_ms = (uint32_t)conf_msec(conf, "mds.log_rank"),
		.po_replicas = (uint32_t)conf_int(conf, "mds.log_copies"),
		.po_lease = &m->m_store_lease,
	};
	uint64_t from = clock_mono_ms();
	struct kv_redo_state st;
	int rc;

	rc = make_owner(conf_str(conf, "mds.node"), store, err, errlen);
	if (rc)
		return rc;
	sigset_stop(&stop);
	the_log.l_told = o.po_wake = signalfd(-1, &stop, SFD_CLOEXEC);
	if (o.po_wake < 0) {
		rc = -errno;
		snprintf(err, errlen, "signalfd: %s", strerror(-rc));
		return rc;
	}
	rc = open_key(m, conf, err, errlen);
	o.po_key = the_log.l_key;
	if (!rc)
		rc = pg_redo_open(&the_log.l_redo, &o, err, errlen);
	if (rc)
		return rc;
	rc = restoring ? mds_log_put_back(store, &o, err, errlen) : 0;
	if (rc)
		return rc;
	begin_member(&o);
	opts->ko_redo = pg_redo_kv(the_log.l_redo);
	opts->ko_create = true;
	opts->ko_follow = true;
	/* An empty store is filled first: that may take longer than systemd waits for a start. */
	log_waits_for("standby: reads the log in PostgreSQL");
	for (;;) {
		rc = kv_open(&m->m_kv, store, opts, err, errlen);
		if (rc != -EAGAIN && rc != -ECANCELED)
			break;
		if (rc == -EAGAIN)
			log_waits_for(err);
		log_wait(NULL, 200);
	}
	if (rc)
		return rc;
	rc = become_holder(m->m_kv, &o, id, err, errlen);
	log_waits_no_more();
	rc = rc ? rc : hear_begin(m);
	if (!rc)
		member_log(last_batch, the_log.l_redo);
	if (!rc)
		rc = pg_redo_fold(the_log.l_redo);
	if (rc)
		return rc;
	kv_redo_state(m->m_kv, &st);
	log_info("this process holds instance %u: batch %lu of its log in PostgreSQL, after %lu ms",
		 o.po_inst, (unsigned long)st.rs_last, (unsigned long)(clock_mono_ms() - from));
	return 0;
}

void mds_log_give_up(struct mds *m)
{
	if (!the_log.l_redo)
		return;
	mds_log_ends(m);
	if (m->m_kv)
		kv_close(m->m_kv);
	m->m_kv = NULL;
	mds_log_close();
}

void mds_log_etcd(uint64_t *asked, uint64_t *unanswered)
{
	struct lease_key_state st = {0};

	pthread_mutex_lock(&the_log.l_lock);
	if (the_log.l_redo && the_log.l_key)
		lease_key_state(the_log.l_key, &st);
	pthread_mutex_unlock(&the_log.l_lock);
	*asked = st.ls_asked;
	*unanswered = st.ls_unasked;
}

/* ---- the end ---- */

void mds_log_ending(struct mds *m)
{
	for (unsigned away = 0; away < ENDING_MS;) {
		struct kv_redo_state st = {0};
		bool open;

		usleep(50000);
		pthread_mutex_lock(&the_log.l_lock);
		open = the_log.l_redo;
		if (open)
			pg_redo_kv(the_log.l_redo)->r_ops->ro_state(the_log.l_redo, &st);
		/* Where it refuses an append, it answers beats: the lease lives. */
		away = st.rs_up && store_lease_live(&m->m_store_lease) ? 0 : away + 50;
		if (open && away >= ENDING_MS) {
			log_warn("the log in PostgreSQL does not answer: stopping without it");
			pg_redo_stop(the_log.l_redo);
		}
		pthread_mutex_unlock(&the_log.l_lock);
		if (!open)
			return;
	}
}

static void *ending(void *m)
{
	mds_log_ending(m);
	return NULL;
}

void mds_log_ends(struct mds *m)
{
	pthread_t t;

	if (!the_log.l_redo)
		return;
	if (pthread_create(&t, NULL, ending, m))
		log_error("cannot start a thread: the end waits until PostgreSQL answers");
	else
		pthread_detach(t);
}

void mds_log_close(void)
{
	struct pg_redo *pr;

	pthread_mutex_lock(&the_log.l_lock);
	pr = the_log.l_redo;
	the_log.l_redo = NULL;
	pthread_mutex_unlock(&the_log.l_lock);
	if (pr) {
		member_let_go(last_batch(pr));
		member_log(NULL, NULL);
	}
	if (pr && pg_redo_close(pr))
		log_warn("PostgreSQL did not hear that the instance is free: another process takes "
			 "it when the lease is over");
	member_stop();
	if (pr && the_log.l_key)
		lease_key_close(the_log.l_key);
}
