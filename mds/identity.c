/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.c - which file system of which cluster this metadata server has.
 *
 * A cluster has one uuid, and each of its metadata servers a file system with a number of its own
 * there. A store gets both when it is made and keeps them. A client that sees the same server owner
 * at two addresses takes them for one server and may use either (RFC 8881 section 2.10.5), so the
 * major id of the owner is never that of two file systems. The server scope is the cluster's.
 */
#include "mds/identity.h"
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

int mds_identity_conf(const struct conf *c, struct ns_identity *id, char *err, size_t errlen)
{
	const char *uuid = conf_str(c, "mds.cluster");
	size_t len = 0;

	*id = (struct ns_identity){.id_fs = (uint16_t)conf_int(c, "mds.fs"), .id_cluster = *uuid};
	if (!*uuid)
		return 0;
	/* A second file system 1 of a cluster would act on the first one's objects. */
	if (!id->id_fs) {
		snprintf(err, errlen,
			 "mds.cluster: mds.fs must say the number of the file system too");
		return -EINVAL;
	}
	if (!sodium_hex2bin(id->id_uuid, sizeof(id->id_uuid), uuid, strlen(uuid), "-", &len,
			    NULL) &&
	    len == sizeof(id->id_uuid))
		return 0;
	snprintf(
		err, errlen,
		"mds.cluster: \"%s\": expected a uuid: 32 hexadecimal digits, as weft status shows "
		"them",
		uuid);
	return -EINVAL;
}

int mds_instances_conf(const struct conf *c, struct ctl_instances *ci, char *err, size_t errlen)
{
	return ctl_instances_parse("mds.instances", conf_str(c, "mds.instances"), 2049, ci, err,
				   errlen);
}

void mds_identity_names(struct mds *m)
{
	const struct ns_super *su = ns_super(m->m_ns);
	char hex[17];

	sodium_bin2hex(hex, sizeof(hex), su->su_uuid, 8);
	snprintf(m->m_scope, sizeof(m->m_scope), "weft-%s", hex);
	/* The first file system has the owner that servers had before there were several: another
	 * one would cost clients their locks at an upgrade. */
	if (su->su_fs == 1)
		strcpy(m->m_owner, m->m_scope);
	else
		snprintf(m->m_owner, sizeof(m->m_owner), "weft-%s-%u", hex, su->su_fs);
}
