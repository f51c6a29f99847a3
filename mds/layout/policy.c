/* SPDX-License-Identifier: Apache-2.0 */
/* policy.c - layout policies as text, and as they are stored (see lo.h). */
#include "mds/layout/lo_int.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define UNIT_MAX      (1u << 31)
#define THRESHOLD_MAX (UINT64_C(1) << 40)
#define TRASH_MAX     (3650u * 86400)

struct policy_rec {
	uint8_t p_version, p_stripes, p_mirrors, p_unit_log2;
} __attribute__((packed));
_Static_assert(sizeof(struct policy_rec) == 4, "policy record, version 1");
/*
 * After the record comes:
 * - in version 2, for a policy with a domain or a group: a byte with the length of the domain, the
 *   domain, then the groups as in lp_groups;
 * - in version 3, for a policy with a threshold: the threshold, then the same as in version 2;
 * - in version 4, for a policy that says how long the trash keeps files: that, the threshold, then
 *   the same as in version 2.
 */
struct policy_threshold {
	uint64_t pt_bytes;
} __attribute__((packed));
struct policy_trash {
	uint32_t py_seconds;
	uint8_t py_has_threshold; /* 0: pt_bytes, which follows, is 0 and says nothing */
} __attribute__((packed));
_Static_assert(sizeof(struct policy_rec) + sizeof(struct policy_trash) +
			       sizeof(struct policy_threshold) + 1 + LABELS_KEY_MAX +
			       LO_GROUPS_LEN - 1 <=
		       LO_POLICY_MAX,
	       "a policy fits");
/* Without label keys and groups the text has 83 bytes:
 * "stripes=44,unit=1023M,mirrors=44,domain=,threshold=1099511627776,trash=315359999s,". */
_Static_assert(83 + LABELS_KEY_MAX + LO_GROUPS_LEN <= LO_POLICY_TEXT, "a policy's text fits");
_Static_assert(LO_MAX_OBJECTS <= UINT8_MAX, "counts fit a byte");

const struct lo_policy lo_policy_default = {
	.lp_unit = LO_UNIT_DEFAULT, .lp_stripes = 1, .lp_mirrors = 1};

enum { KEY_STRIPES, KEY_UNIT, KEY_MIRRORS, KEY_DOMAIN, KEY_THRESHOLD, KEY_TRASH, KEY_GROUP, KEYS };
static const char *const key_name[KEYS] = {"stripes",	"unit",	 "mirrors", "domain",
					   "threshold", "trash", "group"};
#define KEYS_TEXT "stripes, unit, mirrors, domain, threshold, trash, group or group0, group1..."

#define LO_POLICY_LONGEST 1024

/* State of the parser. */
struct reading {
	struct lo_policy rd_lp;
	unsigned rd_seen; /* a bit per key */
	/* Groups: [0] is group, [m + 1] is that of mirror m. The pointers are into the text. */
	const char *rd_group[LO_MAX_OBJECTS + 1];
	size_t rd_group_len[LO_MAX_OBJECTS + 1];
	char *rd_err;
	size_t rd_errlen;
};

static __attribute__((format(printf, 3, 4))) int policy_refuse(char *err, size_t errlen,
							       const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* Parses digits and stops at the first other byte. False: no digit, or more than THRESHOLD_MAX. */
static bool policy_number(const char **p, const char *end, uint64_t *v)
{
	const char *s = *p;

	for (*v = 0; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
		*v = *v * 10 + (uint64_t)(**p - '0');
		if (*v > THRESHOLD_MAX)
			return false;
	}
	return *p > s;
}

static int parse_count(const char *key, const char *v, const char *end, uint8_t *out, char *err,
		       size_t errlen)
{
	const char *p = v;
	uint64_t n;

	if (!policy_number(&p, end, &n) || p != end || n < 1 || n > LO_MAX_OBJECTS)
		return policy_refuse(err, errlen, "%s: expected a number from 1 to %d", key,
				     LO_MAX_OBJECTS);
	*out = (uint8_t)n;
	return 0;
}

static int parse_unit(const char *v, const char *end, uint32_t *out, char *err, size_t errlen)
{
	const char *p = v;
	unsigned shift = 0;
	uint64_t n;

	if (!policy_number(&p, end, &n) || n > UNIT_MAX)
		goto bad;
	if (p < end && (*p == 'K' || *p == 'M' || *p == 'G'))
		shift = *p++ == 'K' ? 10 : p[-1] == 'M' ? 20 : 30;
	n <<= shift;
	if (p != end || n < LO_UNIT_MIN || n > UNIT_MAX || (n & (n - 1)))
		goto bad;
	*out = (uint32_t)n;
	return 0;
bad:
	return policy_refuse(
		err, errlen,
		"unit: expected a power of two from 1M to 2G (K, M and G are powers of 1024)");
}

static int parse_threshold(struct reading *rd, const char *v, const char *end)
{
	static const char units[] = "KMGT";
	const char *p = v, *unit;
	unsigned shift = 0;
	uint64_t n;

	if (!policy_number(&p, end, &n))
		goto bad;
	if (p < end && *p && (unit = strchr(units, *p))) {
		shift = 10 * (unsigned)(unit - units + 1);
		p++;
	}
	if (p != end || n > THRESHOLD_MAX >> shift)
		goto bad;
	rd->rd_lp.lp_has_threshold = true;
	rd->rd_lp.lp_threshold = n << shift;
	return 0;
bad:
	return policy_refuse(
		rd->rd_err, rd->rd_errlen,
		"threshold: expected a size from 0 to 1T (K, M, G and T are powers of 1024)");
}

static const struct {
	char unit;
	uint32_t seconds;
} trash_units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
#define TRASH_UNITS (sizeof(trash_units) / sizeof(trash_units[0]))

static int parse_trash(struct reading *rd, const char *v, const char *end)
{
	uint32_t each = 0;
	const char *p = v;
	uint64_t n;

	if (!policy_number(&p, end, &n))
		goto bad;
	if (p == end && n == 0)
		each = 1;
	for (unsigned k = 0; k < TRASH_UNITS && p + 1 == end; k++)
		if (*p == trash_units[k].unit)
			each = trash_units[k].seconds;
	if (!each || n > TRASH_MAX / each)
		goto bad;
	rd->rd_lp.lp_has_trash = true;
	rd->rd_lp.lp_trash_s = (uint32_t)n * each;
	return 0;
bad:
	return policy_refuse(
		rd->rd_err, rd->rd_errlen,
		"trash: expected a duration such as 7d, 12h, 30m or 90s, at most 3650d; 0: "
		"files are not kept");
}

/* Returns KEY_..., or -1 for no key. *mirror: 3 for group3, and -1 for keys without a number. */
static int find_key(const char *p, size_t len, int *mirror)
{
	const char *at = p + strlen("group"), *end = p + len;
	uint64_t n;

	*mirror = -1;
	for (int k = 0; k < KEYS; k++)
		if (strlen(key_name[k]) == len && !memcmp(key_name[k], p, len))
			return k;
	if (len <= strlen("group") || memcmp(p, "group", strlen("group")) ||
	    (*at == '0' && at + 1 < end) || !policy_number(&at, end, &n) || at != end ||
	    n >= LO_MAX_OBJECTS)
		return -1;
	*mirror = (int)n;
	return KEY_GROUP;
}

/* Makes bytes from outside safe for a message: a byte that does not print becomes '?'. */
static const char *policy_printable(const char *p, size_t len, char out[33])
{
	size_t n = len < 32 ? len : 32;

	for (size_t i = 0; i < n; i++)
		out[i] = p[i] >= ' ' && p[i] <= '~' ? p[i] : '?';
	out[n] = 0;
	return out;
}

static int parse_domain(struct reading *rd, const char *v, const char *end)
{
	size_t n = (size_t)(end - v);

	if (!labels_key_ok(v, n))
		return policy_refuse(rd->rd_err, rd->rd_errlen,
				     "domain: expected the key of a label, such as rack");
	memcpy(rd->rd_lp.lp_domain, v, n);
	return 0;
}

static int parse_group(struct reading *rd, const char *key, size_t keylen, int mirror,
		       const char *v, const char *end)
{
	char shown[33];

	if (rd->rd_group[mirror + 1])
		return policy_refuse(rd->rd_err, rd->rd_errlen, "%s: given more than once",
				     policy_printable(key, keylen, shown));
	if (!lo_group_ok(v, (size_t)(end - v)))
		return policy_refuse(
			rd->rd_err, rd->rd_errlen,
			"%s: expected labels such as rack=r1 or rack=r1/r2+speed=nvme, each "
			"key once",
			policy_printable(key, keylen, shown));
	rd->rd_group[mirror + 1] = v;
	rd->rd_group_len[mirror + 1] = (size_t)(end - v);
	return 0;
}

static int parse_pair(struct reading *rd, const char *p, const char *end)
{
	const char *eq = memchr(p, '=', (size_t)(end - p));
	char shown[33], *err = rd->rd_err;
	size_t errlen = rd->rd_errlen;
	int k, mirror;

	if (!eq)
		return policy_refuse(err, errlen,
				     "\"%s\": expected KEY=VALUE, with keys " KEYS_TEXT,
				     policy_printable(p, (size_t)(end - p), shown));
	k = find_key(p, (size_t)(eq - p), &mirror);
	if (k < 0)
		return policy_refuse(err, errlen, "unknown key \"%s\": expected " KEYS_TEXT,
				     policy_printable(p, (size_t)(eq - p), shown));
	if (k == KEY_GROUP)
		return parse_group(rd, p, (size_t)(eq - p), mirror, eq + 1, end);
	if (rd->rd_seen & 1u << k)
		return policy_refuse(err, errlen, "%s: given more than once", key_name[k]);
	rd->rd_seen |= 1u << k;
	switch (k) {
	case KEY_STRIPES:
		return parse_count("stripes", eq + 1, end, &rd->rd_lp.lp_stripes, err, errlen);
	case KEY_MIRRORS:
		return parse_count("mirrors", eq + 1, end, &rd->rd_lp.lp_mirrors, err, errlen);
	case KEY_UNIT:
		return parse_unit(eq + 1, end, &rd->rd_lp.lp_unit, err, errlen);
	case KEY_THRESHOLD:
		return parse_threshold(rd, eq + 1, end);
	case KEY_TRASH:
		return parse_trash(rd, eq + 1, end);
	default:
		return parse_domain(rd, eq + 1, end);
	}
}

/* Writes the groups in their order. lp_mirrors is known. */
static int put_groups(struct reading *rd)
{
	char *out = rd->rd_lp.lp_groups, policy_number[12] = "";
	size_t at = 0;

	for (int m = -1; m < LO_MAX_OBJECTS; m++) {
		if (!rd->rd_group[m + 1])
			continue;
		if (m >= rd->rd_lp.lp_mirrors)
			return policy_refuse(rd->rd_err, rd->rd_errlen,
					     "group%d: mirrors=%u, counted from 0", m,
					     rd->rd_lp.lp_mirrors);
		if (m >= 0)
			snprintf(policy_number, sizeof(policy_number), "%d", m);
		at += (size_t)snprintf(out + at, LO_GROUPS_LEN - at, "%sgroup%s=%.*s",
				       at ? "," : "", policy_number, (int)rd->rd_group_len[m + 1],
				       rd->rd_group[m + 1]);
		if (at >= LO_GROUPS_LEN)
			return policy_refuse(rd->rd_err, rd->rd_errlen,
					     "groups: expected at most %d characters in all",
					     LO_GROUPS_LEN - 1);
	}
	return 0;
}

int lo_policy_parse(const char *text, size_t len, struct lo_policy *p, char *err, size_t errlen)
{
	struct reading rd = {.rd_lp = lo_policy_default, .rd_err = err, .rd_errlen = errlen};
	const char *end;
	int e;

	while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
		len--;
	if (!len)
		return policy_refuse(err, errlen,
				     "empty policy: expected KEY=VALUE, with keys " KEYS_TEXT);
	/* Every valid text is shorter. */
	if (len > LO_POLICY_LONGEST)
		return policy_refuse(err, errlen, "policy: expected at most %d characters",
				     LO_POLICY_LONGEST);
	end = text + len;
	for (const char *at = text; at <= end;) {
		const char *comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL;
		const char *stop = comma ? comma : end;

		e = parse_pair(&rd, at, stop);
		if (e)
			return e;
		at = stop + 1;
	}
	e = put_groups(&rd);
	if (!e)
		*p = rd.rd_lp;
	return e;
}

/* Writes ",threshold=64K", or nothing. */
static void format_threshold(const struct lo_policy *p, char out[32])
{
	unsigned k = 0;

	*out = 0;
	if (!p->lp_has_threshold)
		return;
	while (k < 4 && p->lp_threshold && !(p->lp_threshold & ((UINT64_C(1) << 10 * (k + 1)) - 1)))
		k++;
	snprintf(out, 32, ",threshold=%llu%.1s", (unsigned long long)(p->lp_threshold >> 10 * k),
		 k ? &"KMGT"[k - 1] : "");
}

/* Writes ",trash=7d", or nothing. */
static void format_trash(const struct lo_policy *p, char out[32])
{
	unsigned k = 0;

	*out = 0;
	if (!p->lp_has_trash)
		return;
	while (p->lp_trash_s % trash_units[k].seconds)
		k++;
	if (p->lp_trash_s)
		snprintf(out, 32, ",trash=%u%c", p->lp_trash_s / trash_units[k].seconds,
			 trash_units[k].unit);
	else
		strcpy(out, ",trash=0");
}

size_t lo_policy_format(const struct lo_policy *p, char out[LO_POLICY_TEXT])
{
	bool g = p->lp_unit >= 1u << 30;
	struct lo_policy without = *p;
	char threshold[32], trash[32], why[256];

	if (p->lp_pin && !lo_policy_mirrors(&without, p->lp_pin - 1, NULL, why, sizeof(why)))
		p = &without;
	format_threshold(p, threshold);
	format_trash(p, trash);
	return (size_t)snprintf(out, LO_POLICY_TEXT, "stripes=%u,unit=%u%c,mirrors=%u%s%s%s%s%s%s",
				p->lp_stripes, p->lp_unit >> (g ? 30 : 20), g ? 'G' : 'M',
				p->lp_mirrors, *p->lp_domain ? ",domain=" : "", p->lp_domain,
				threshold, trash, *p->lp_groups ? "," : "", p->lp_groups);
}

size_t lo_policy_encode(const struct lo_policy *p, uint8_t *out, size_t max)
{
	size_t domain = strlen(p->lp_domain), groups = strlen(p->lp_groups);
	struct policy_threshold th = {.pt_bytes = htole64(p->lp_threshold)};
	struct policy_trash ty = {.py_seconds = htole32(p->lp_trash_s),
				  .py_has_threshold = p->lp_has_threshold};
	struct policy_rec r = {
		.p_version = p->lp_has_trash	   ? 4
			     : p->lp_has_threshold ? 3
			     : domain || groups	   ? 2
						   : 1,
		.p_stripes = p->lp_stripes,
		.p_mirrors = p->lp_mirrors,
		.p_unit_log2 = (uint8_t)__builtin_ctz(p->lp_unit),
	};
	size_t len = sizeof(r) + (r.p_version == 4 ? sizeof(ty) : 0) +
		     (r.p_version >= 3 ? sizeof(th) : 0) +
		     (r.p_version > 1 ? 1 + domain + groups : 0);

	if (max < len)
		return 0;
	memcpy(out, &r, sizeof(r));
	out += sizeof(r);
	if (r.p_version == 4) {
		memcpy(out, &ty, sizeof(ty));
		out += sizeof(ty);
	}
	if (r.p_version >= 3) {
		memcpy(out, &th, sizeof(th));
		out += sizeof(th);
	}
	if (r.p_version > 1) {
		*out = (uint8_t)domain;
		memcpy(out + 1, p->lp_domain, domain);
		memcpy(out + 1 + domain, p->lp_groups, groups);
	}
	return len;
}

/* Decodes what follows the record in version 2, and the threshold in version 3. It must parse as a
 * policy's text, and give the same bytes. */
static int decode_terms(const uint8_t *b, size_t n, struct lo_policy *p)
{
	char text[LO_POLICY_TEXT], err[256];
	struct lo_policy lp;
	size_t domain = n ? b[0] : 0, groups;
	int len;

	if (!n || domain > LABELS_KEY_MAX || domain > n - 1 || n == 1)
		return -EIO;
	groups = n - 1 - domain;
	if (groups >= LO_GROUPS_LEN)
		return -EIO;
	len = snprintf(text, sizeof(text), "mirrors=%u%s%.*s%s%.*s", p->lp_mirrors,
		       domain ? ",domain=" : "", (int)domain, (const char *)b + 1,
		       groups ? "," : "", (int)groups, (const char *)b + 1 + domain);
	if (lo_policy_parse(text, (size_t)len, &lp, err, sizeof(err)) ||
	    strlen(lp.lp_domain) != domain || memcmp(lp.lp_domain, b + 1, domain) ||
	    strlen(lp.lp_groups) != groups || memcmp(lp.lp_groups, b + 1 + domain, groups))
		return -EIO;
	strcpy(p->lp_domain, lp.lp_domain);
	strcpy(p->lp_groups, lp.lp_groups);
	return 0;
}

static int decode_threshold(const uint8_t *b, size_t n, struct lo_policy *p)
{
	struct policy_threshold th;

	if (n < sizeof(th) + 1)
		return -EIO;
	memcpy(&th, b, sizeof(th));
	p->lp_has_threshold = true;
	p->lp_threshold = le64toh(th.pt_bytes);
	if (p->lp_threshold > THRESHOLD_MAX)
		return -EIO;
	if (n == sizeof(th) + 1) /* neither domain nor group */
		return b[sizeof(th)] ? -EIO : 0;
	return decode_terms(b + sizeof(th), n - sizeof(th), p);
}

static int decode_trash(const uint8_t *b, size_t n, struct lo_policy *p)
{
	struct policy_trash ty;
	int err;

	if (n < sizeof(ty))
		return -EIO;
	memcpy(&ty, b, sizeof(ty));
	p->lp_has_trash = true;
	p->lp_trash_s = le32toh(ty.py_seconds);
	if (p->lp_trash_s > TRASH_MAX || ty.py_has_threshold > 1)
		return -EIO;
	err = decode_threshold(b + sizeof(ty), n - sizeof(ty), p);
	p->lp_has_threshold = ty.py_has_threshold;
	return err || p->lp_has_threshold || !p->lp_threshold ? err : -EIO;
}

int lo_policy_decode(struct kv_slice s, struct lo_policy *p)
{
	struct policy_rec r;
	const uint8_t *rest;
	size_t left;

	if (!s.s_len) {
		*p = lo_policy_default;
		return 0;
	}
	if (s.s_len < sizeof(r))
		return -EIO;
	memcpy(&r, s.s_data, sizeof(r));
	rest = (const uint8_t *)s.s_data + sizeof(r);
	left = s.s_len - sizeof(r);
	if (!r.p_version || r.p_version > 4 || !r.p_stripes || r.p_stripes > LO_MAX_OBJECTS ||
	    !r.p_mirrors || r.p_mirrors > LO_MAX_OBJECTS || r.p_unit_log2 < 20 ||
	    r.p_unit_log2 > 31 || (r.p_version == 1 && left))
		return -EIO;
	*p = (struct lo_policy){.lp_unit = 1u << r.p_unit_log2,
				.lp_stripes = r.p_stripes,
				.lp_mirrors = r.p_mirrors};
	return r.p_version == 1	  ? 0
	       : r.p_version == 2 ? decode_terms(rest, left, p)
	       : r.p_version == 3 ? decode_threshold(rest, left, p)
				  : decode_trash(rest, left, p);
}

int lo_map_policy(const struct lo_map *m, struct lo_policy *p)
{
	uint8_t terms[1 + LABELS_KEY_MAX + LO_GROUPS_LEN];
	size_t domain = strlen(m->lm_domain), groups = strlen(m->lm_groups);

	*p = (struct lo_policy){.lp_unit = m->lm_unit,
				.lp_stripes = m->lm_stripes,
				.lp_mirrors = m->lm_mirrors - m->lm_pending_mirror,
				.lp_pin = m->lm_pin};
	strcpy(p->lp_pin_group, m->lm_pin_group);
	if (!domain && !groups)
		return 0;
	terms[0] = (uint8_t)domain;
	memcpy(terms + 1, m->lm_domain, domain);
	memcpy(terms + 1 + domain, m->lm_groups, groups);
	return decode_terms(terms, 1 + domain + groups, p);
}

int lo_policy_mirrors(struct lo_policy *p, int gone, const char *group, char *err, size_t errlen)
{
	struct reading rd = {.rd_lp = *p, .rd_err = err, .rd_errlen = errlen};
	struct lo_policy was = *p;
	const char *expr;
	size_t len;
	int mirror, e;

	for (const char *at = *was.lp_groups ? was.lp_groups : NULL; at;) {
		at = lo_group_item(at, &mirror, &expr, &len);
		if (mirror >= 0 && mirror == gone)
			continue;
		if (gone >= 0 && mirror > gone)
			mirror--;
		rd.rd_group[mirror + 1] = expr;
		rd.rd_group_len[mirror + 1] = len;
	}
	if (gone < 0 && group && *group) {
		e = parse_group(&rd, "group", strlen("group"), p->lp_mirrors, group,
				group + strlen(group));
		if (e)
			return e;
	}
	rd.rd_lp.lp_mirrors = (uint8_t)(p->lp_mirrors + (gone < 0 ? 1 : -1));
	memset(rd.rd_lp.lp_groups, 0, sizeof(rd.rd_lp.lp_groups));
	e = put_groups(&rd);
	if (!e)
		*p = rd.rd_lp;
	return e;
}

bool lo_shape_ok(unsigned stripes, unsigned mirrors)
{
	return stripes && mirrors && stripes * mirrors <= LO_MAX_OBJECTS &&
	       LO_HEAD_LEN + mirrors * LO_MIRROR_LEN + stripes * mirrors * LO_ENTRY_LEN <=
		       LO_LAYOUT_MAX;
}
