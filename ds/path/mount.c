/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount.c - MOUNT version 3 (RFC 1813 appendix I), on the port of NFS.
 *
 * A peer sees only the exports that it may use. The list of mounts holds what clients said: it is
 * bounded, in memory, and only for people.
 */
#include "base/log.h"
#include "ds/path/path_int.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>
#include <urcu/compiler.h>

#define MOUNTS_MAX 1024u
#define GROUPS_MAX 256u /* listed for one export */

struct mounted {
	uint8_t m_addr[16];
	uint16_t m_export;
	char *m_path; /* NULL: free */
};
struct path_mounts {
	pthread_mutex_t ms_lock;
	unsigned ms_next;
	struct mounted ms_list[MOUNTS_MAX];
};

int path_mounts_open(struct path_mounts **out)
{
	struct path_mounts *ms = calloc(1, sizeof(*ms));

	if (!ms)
		return -ENOMEM;
	pthread_mutex_init(&ms->ms_lock, NULL);
	*out = ms;
	return 0;
}

static const char *mount_addr_text(const uint8_t addr[16], char buf[INET6_ADDRSTRLEN])
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(addr, v4, sizeof(v4)) == 0
		       ? inet_ntop(AF_INET, addr + 12, buf, INET6_ADDRSTRLEN)
		       : inet_ntop(AF_INET6, addr, buf, INET6_ADDRSTRLEN);
}

/* path NULL: forgets all mounts of this address. */
static void mounts_forget(struct path_call *c, const char *path)
{
	struct path_mounts *ms = c->pcl_path->p_mounts;

	pthread_mutex_lock(&ms->ms_lock);
	for (unsigned i = 0; i < MOUNTS_MAX; i++) {
		struct mounted *m = &ms->ms_list[i];

		if (m->m_path && memcmp(m->m_addr, c->pcl_addr, 16) == 0 &&
		    (!path || strcmp(m->m_path, path) == 0)) {
			free(m->m_path);
			m->m_path = NULL;
		}
	}
	pthread_mutex_unlock(&ms->ms_lock);
}

/* A new mount takes the place of the oldest. */
static void mounts_note(struct path_call *c, uint16_t export, const char *path)
{
	struct path_mounts *ms = c->pcl_path->p_mounts;
	struct mounted *m;

	mounts_forget(c, path);
	pthread_mutex_lock(&ms->ms_lock);
	m = &ms->ms_list[ms->ms_next++ % MOUNTS_MAX];
	free(m->m_path);
	m->m_path = strdup(path);
	m->m_export = export;
	memcpy(m->m_addr, c->pcl_addr, 16);
	pthread_mutex_unlock(&ms->ms_lock);
}

/* ---- MNT ---- */

/* The next component of a path: returns its start, and its length in *len. NULL: there is none.
 * Skips "." and repeated slashes. */
static const char *mount_part(const char *path, size_t *len)
{
	for (;;) {
		path += strspn(path, "/");
		*len = strcspn(path, "/");
		if (!*len)
			return NULL;
		if (*len != 1 || *path != '.')
			return path;
		path++;
	}
}

/* The rest of path below dir. NULL: path is not in dir. */
static const char *mount_below(const char *dir, const char *path)
{
	size_t dlen, plen;
	const char *d, *p;

	while ((d = mount_part(dir, &dlen))) {
		p = mount_part(path, &plen);
		if (!p || plen != dlen || memcmp(d, p, dlen) != 0)
			return NULL;
		dir = d + dlen;
		path = p + plen;
	}
	return path;
}

static enum mountstat3 mount_status(int err)
{
	switch (-err) {
	case ENOENT:
		return MNT3ERR_NOENT;
	case EACCES:
	case EPERM:
	case EXDEV: /* another file system is mounted there: it is not exported */
		return MNT3ERR_ACCES;
	case ENOTDIR:
		return MNT3ERR_NOTDIR;
	case ENAMETOOLONG:
		return MNT3ERR_NAMETOOLONG;
	case EOPNOTSUPP:
		return MNT3ERR_NOTSUPP;
	case EIO:
		return MNT3ERR_IO;
	default:
		return MNT3ERR_SERVERFAULT;
	}
}

/* Walks through directories only, and never up. 0 or a negative errno. */
static int mount_walk(const struct path_export *x, const char *rest, struct path_fh *fh)
{
	int fd = path_open_at(x->x_fd, "."), err;
	size_t len;

	while (fd >= 0 && (rest = mount_part(rest, &len))) {
		char name[NAME_MAX + 1];
		int next;

		if (len > NAME_MAX) {
			next = -ENAMETOOLONG;
		} else {
			memcpy(name, rest, len);
			name[len] = 0;
			next = strcmp(name, "..") == 0 ? -EACCES : path_open_at(fd, name);
		}
		close(fd);
		fd = next;
		rest += len;
	}
	if (fd < 0)
		return fd;
	struct stat st;

	err = fstat(fd, &st)	     ? -errno
	      : !S_ISDIR(st.st_mode) ? -ENOTDIR
				     : path_fh_of(fd, "", x->x_exp->e_id, fh);
	close(fd);
	return err;
}

static const struct path_export *export_of_path(struct path_call *c, const char *path,
						const struct exp_rule **rule, const char **rest)
{
	for (unsigned i = 0; i < c->pcl_table->t_exports->xt_n; i++) {
		const struct path_export *x = &c->pcl_table->t_x[i];

		if (x->x_fd >= 0 && (*rest = mount_below(x->x_exp->e_path, path)))
			return path_export_of(c, x->x_exp->e_id, rule);
	}
	return NULL;
}

static void put_flavors(struct xdr_out *out, const struct exp_rule *r)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < r->r_nsec; i++)
		n += r->r_sec[i] <= EXP_SYS;
	xdr_put_u32(out, n);
	for (unsigned i = 0; i < r->r_nsec; i++)
		if (r->r_sec[i] <= EXP_SYS)
			xdr_put_u32(out, r->r_sec[i] == EXP_SYS ? RPC_AUTH_SYS : RPC_AUTH_NONE);
}

/* Reads a path argument, and ends it with a NUL. False: not valid XDR. */
static bool get_path(struct path_call *c, char path[MOUNT3_PATHLEN + 1])
{
	uint32_t len;
	const uint8_t *p = xdr_get_opaque(c->pcl_in, MOUNT3_PATHLEN, &len);

	if (!p || memchr(p, 0, len)) {
		c->pcl_in->bad = true;
		return false;
	}
	memcpy(path, p, len);
	path[len] = 0;
	return true;
}

static void mnt(struct path_call *c)
{
	static _Atomic uint64_t last;
	char path[MOUNT3_PATHLEN + 1], who[INET6_ADDRSTRLEN] = "";
	const struct exp_rule *r = NULL;
	const struct path_export *x;
	const char *rest;
	struct path_fh fh;
	uint8_t wire[NFS3_FHSIZE];
	enum mountstat3 st;
	int err;

	if (!get_path(c, path))
		return;
	x = export_of_path(c, path, &r, &rest);
	if (!x && c->pcl_unknown) {
		st = MNT3ERR_SERVERFAULT;
	} else if (!x || path_auth(c, r) != RPC_AUTH_OK) {
		st = MNT3ERR_ACCES;
	} else {
		err = mount_walk(x, rest, &fh);
		st = err ? mount_status(err) : MNT3_OK;
	}
	xdr_put_u32(c->pcl_out, st);
	mount_addr_text(c->pcl_addr, who);
	if (st != MNT3_OK) {
		if (log_due(&last))
			log_info("refused %s to mount \"%s\" (MOUNT status %u)", who, path,
				 (unsigned)st);
		return;
	}
	xdr_put_opaque(c->pcl_out, wire, path_fh_write(c->pcl_path, &fh, wire));
	put_flavors(c->pcl_out, r);
	mounts_note(c, x->x_exp->e_id, path);
}

/* ---- the other procedures ---- */

static void dump(struct path_call *c)
{
	struct path_mounts *ms = c->pcl_path->p_mounts;
	const struct exp_rule *r;

	pthread_mutex_lock(&ms->ms_lock);
	for (unsigned i = 0; i < MOUNTS_MAX; i++) {
		const struct mounted *m = &ms->ms_list[i];
		char who[INET6_ADDRSTRLEN] = "";

		if (!m->m_path || !path_export_of(c, m->m_export, &r))
			continue;
		mount_addr_text(m->m_addr, who);
		xdr_put_bool(c->pcl_out, true);
		xdr_put_opaque(c->pcl_out, who, (uint32_t)strlen(who));
		xdr_put_opaque(c->pcl_out, m->m_path, (uint32_t)strlen(m->m_path));
	}
	pthread_mutex_unlock(&ms->ms_lock);
	xdr_put_bool(c->pcl_out, false);
}

static void exports(struct path_call *c)
{
	for (unsigned i = 0; i < c->pcl_table->t_exports->xt_n; i++) {
		const struct exp *e = &c->pcl_table->t_exports->xt_exp[i];
		const struct exp_rule *r;

		if (!path_export_of(c, e->e_id, &r))
			continue;
		xdr_put_bool(c->pcl_out, true);
		xdr_put_opaque(c->pcl_out, e->e_path, (uint32_t)strlen(e->e_path));
		for (unsigned k = 0; k < e->e_nwho && k < GROUPS_MAX; k++) {
			char name[MOUNT3_NAMLEN + 1];
			int n = snprintf(name, sizeof(name), "%s%s",
					 e->e_who[k].w_kind == EXP_GROUP ? "@" : "",
					 e->e_who[k].w_text);

			xdr_put_bool(c->pcl_out, true);
			xdr_put_opaque(c->pcl_out, name,
				       n > MOUNT3_NAMLEN ? MOUNT3_NAMLEN : (uint32_t)n);
		}
		xdr_put_bool(c->pcl_out, false);
	}
	xdr_put_bool(c->pcl_out, false);
}

void path_mount_run(struct path_job *j)
{
	struct path_call *c = caa_container_of(j, struct path_call, pcl_job);
	char path[MOUNT3_PATHLEN + 1];

	path_as_server(c);
	switch (c->pcl_rpc->c_proc) {
	case MOUNT3_MNT:
		mnt(c);
		break;
	case MOUNT3_DUMP:
		dump(c);
		break;
	case MOUNT3_UMNT:
		if (get_path(c, path))
			mounts_forget(c, path);
		break;
	case MOUNT3_UMNTALL:
		mounts_forget(c, NULL);
		break;
	default:
		exports(c);
	}
	c->pcl_garbage = c->pcl_in->bad;
	path_call_done(c);
}
