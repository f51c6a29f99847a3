/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mds_log.h - where the log of weft-mds's store is (mds.log): in files in the store's folder, or in
 * PostgreSQL. With PostgreSQL the store is a copy of the log, and this process serves once it holds
 * the instance. Until then it is a standby: it follows the log.
 */
#ifndef MDS_MDS_LOG_H
#define MDS_MDS_LOG_H
#include "mds/mds.h"

struct conf;

/* Is the log elsewhere, not in files? */
bool mds_log_elsewhere(const struct conf *conf);
/* The instance whose log it is; 0: the log is in files. */
uint16_t mds_log_instance(const struct conf *conf);
/* 0; or -EINVAL and a line in err. Connects to nothing. */
int mds_log_check(const struct conf *conf, char *err, size_t errlen);
/* What the HTTP server will have: while this process waits for the instance, it answers /v1/health
 * there. The caller's memory. Before mds_log_open. */
struct http_opts;
void mds_log_web(const struct http_opts *web);
/* Called again and again while this process waits for the instance, on the thread of mds_log_open.
 * Before that one. */
void mds_log_waiting(void (*fn)(void));
/* Opens m_kv, whose log is elsewhere, and returns when this process holds the instance: that may
 * take for ever. From then on m_store_lease is extended. SIGTERM and SIGINT, which are blocked, end
 * the process while it waits. What this process could not serve, it does not take: a copy that
 * holds more than the log, or that belongs to another file system (id). restoring: the log was put
 * back to an earlier time, and becomes another one. 0; or -errno and a line in err. */
int mds_log_open(struct mds *m, const struct conf *conf, const struct ns_identity *id,
		 bool restoring, struct kv_opts *opts, char *err, size_t errlen);
/* --restored has made the store whole: the log says so. 0 too where the log is in files; or -errno
 * and a line in err. */
int mds_log_whole(char *err, size_t errlen);
/* From now on the caller takes SIGTERM and SIGINT, and calls mds_log_ending when one has come.
 * Until then they end this process, at once if the log does not answer. */
void mds_log_heard(void);
/* This process cannot serve: closes m_kv, which nothing uses any more, and gives the instance up if
 * this process has it, so that another one need not wait for its lease. It waits for a log that
 * does not answer as mds_log_ending does. Does nothing where no log elsewhere is open. */
void mds_log_give_up(struct mds *m);
/* Questions about the lease to etcd, and those without an answer, since the start; 0 if the lease
 * is not there. Any thread. */
void mds_log_etcd(uint64_t *asked, uint64_t *unanswered);
/* The process is to end. Returns when mds_log_close has begun, or when the end would wait for a
 * log that does not answer: then no batch is waited for any more. Any thread. */
void mds_log_ending(struct mds *m);
/* The process ends without a signal: mds_log_ending on a thread of its own. On the main thread. */
void mds_log_ends(struct mds *m);
/* After kv_close: gives the instance up. */
void mds_log_close(void);
#endif
