/* policy.c - layout policies as text and as stored (see lo.h). */
#include "mds/lo/lo_int.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define POLICY_VERSION 1
#define UNIT_MAX       (1u << 31)

struct policy_rec {
	uint8_t p_version, p_stripes, p_mirrors, p_unit_log2;
} __attribute__((packed));
_Static_assert(sizeof(struct policy_rec) == 4, "policy record, version 1");
_Static_assert(LO_MAX_OBJECTS <= UINT8_MAX, "counts fit a byte");

const struct lo_policy lo_policy_default = {
	.lp_unit = LO_UNIT_DEFAULT, .lp_stripes = 1, .lp_mirrors = 1};

enum { KEY_STRIPES, KEY_UNIT, KEY_MIRRORS, KEYS };
static const char *const key_name[KEYS] = {"stripes", "unit", "mirrors"};

static __attribute__((format(printf, 3, 4))) int refuse(char *err, size_t errlen, const char *fmt,
							...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* Digits only; stops at the first other byte. False: none, or more than 32 bits. */
static bool number(const char **p, const char *end, uint64_t *v)
{
	const char *s = *p;

	for (*v = 0; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
		*v = *v * 10 + (uint64_t)(**p - '0');
		if (*v > UINT32_MAX)
			return false;
	}
	return *p > s;
}

static int parse_count(const char *key, const char *v, const char *end, uint8_t *out, char *err,
		       size_t errlen)
{
	const char *p = v;
	uint64_t n;

	if (!number(&p, end, &n) || p != end || n < 1 || n > LO_MAX_OBJECTS)
		return refuse(err, errlen, "%s: expected a number from 1 to %d", key,
			      LO_MAX_OBJECTS);
	*out = (uint8_t)n;
	return 0;
}

static int parse_unit(const char *v, const char *end, uint32_t *out, char *err, size_t errlen)
{
	const char *p = v;
	unsigned shift = 0;
	uint64_t n;

	if (!number(&p, end, &n))
		goto bad;
	if (p < end && (*p == 'K' || *p == 'M' || *p == 'G'))
		shift = *p++ == 'K' ? 10 : p[-1] == 'M' ? 20 : 30;
	n <<= shift;
	if (p != end || n < LO_UNIT_MIN || n > UNIT_MAX || (n & (n - 1)))
		goto bad;
	*out = (uint32_t)n;
	return 0;
bad:
	return refuse(
		err, errlen,
		"unit: expected a power of two from 1M to 2G (K, M and G are powers of 1024)");
}

static int find_key(const char *p, size_t len)
{
	for (int k = 0; k < KEYS; k++)
		if (strlen(key_name[k]) == len && !memcmp(key_name[k], p, len))
			return k;
	return -1;
}

/* Bytes from outside in a message: what does not print is shown as '?'. */
static const char *printable(const char *p, size_t len, char out[33])
{
	size_t n = len < 32 ? len : 32;

	for (size_t i = 0; i < n; i++)
		out[i] = p[i] >= ' ' && p[i] <= '~' ? p[i] : '?';
	out[n] = 0;
	return out;
}

static int parse_pair(const char *p, const char *end, struct lo_policy *lp, unsigned *seen,
		      char *err, size_t errlen)
{
	const char *eq = memchr(p, '=', (size_t)(end - p));
	char shown[33];
	int k;

	if (!eq)
		return refuse(err, errlen,
			      "\"%s\": expected KEY=VALUE, with keys stripes, unit and mirrors",
			      printable(p, (size_t)(end - p), shown));
	k = find_key(p, (size_t)(eq - p));
	if (k < 0)
		return refuse(err, errlen, "unknown key \"%s\": expected stripes, unit or mirrors",
			      printable(p, (size_t)(eq - p), shown));
	if (*seen & 1u << k)
		return refuse(err, errlen, "%s: expected once", key_name[k]);
	*seen |= 1u << k;
	switch (k) {
	case KEY_STRIPES:
		return parse_count("stripes", eq + 1, end, &lp->lp_stripes, err, errlen);
	case KEY_MIRRORS:
		return parse_count("mirrors", eq + 1, end, &lp->lp_mirrors, err, errlen);
	default:
		return parse_unit(eq + 1, end, &lp->lp_unit, err, errlen);
	}
}

int lo_policy_parse(const char *text, size_t len, struct lo_policy *p, char *err, size_t errlen)
{
	struct lo_policy lp = lo_policy_default;
	const char *end;
	unsigned seen = 0;

	while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
		len--;
	if (!len)
		return refuse(
			err, errlen,
			"empty policy: expected KEY=VALUE, with keys stripes, unit and mirrors");
	end = text + len;
	for (const char *at = text; at <= end;) {
		const char *comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL;
		const char *stop = comma ? comma : end;
		int e = parse_pair(at, stop, &lp, &seen, err, errlen);

		if (e)
			return e;
		at = stop + 1;
	}
	*p = lp;
	return 0;
}

size_t lo_policy_format(const struct lo_policy *p, char out[LO_POLICY_TEXT])
{
	bool g = p->lp_unit >= 1u << 30;

	return (size_t)snprintf(out, LO_POLICY_TEXT, "stripes=%u,unit=%u%c,mirrors=%u",
				p->lp_stripes, p->lp_unit >> (g ? 30 : 20), g ? 'G' : 'M',
				p->lp_mirrors);
}

size_t lo_policy_encode(const struct lo_policy *p, uint8_t *out, size_t max)
{
	struct policy_rec r = {
		.p_version = POLICY_VERSION,
		.p_stripes = p->lp_stripes,
		.p_mirrors = p->lp_mirrors,
		.p_unit_log2 = (uint8_t)__builtin_ctz(p->lp_unit),
	};

	if (max < sizeof(r))
		return 0;
	memcpy(out, &r, sizeof(r));
	return sizeof(r);
}

int lo_policy_decode(struct kv_slice s, struct lo_policy *p)
{
	struct policy_rec r;

	if (!s.s_len) {
		*p = lo_policy_default;
		return 0;
	}
	if (s.s_len != sizeof(r))
		return -EIO;
	memcpy(&r, s.s_data, sizeof(r));
	if (r.p_version != POLICY_VERSION || !r.p_stripes || r.p_stripes > LO_MAX_OBJECTS ||
	    !r.p_mirrors || r.p_mirrors > LO_MAX_OBJECTS || r.p_unit_log2 < 20 ||
	    r.p_unit_log2 > 31)
		return -EIO;
	*p = (struct lo_policy){.lp_unit = 1u << r.p_unit_log2,
				.lp_stripes = r.p_stripes,
				.lp_mirrors = r.p_mirrors};
	return 0;
}

bool lo_shape_ok(unsigned stripes, unsigned mirrors)
{
	return stripes && mirrors && stripes * mirrors <= LO_MAX_OBJECTS &&
	       LO_HEAD_LEN + mirrors * LO_MIRROR_LEN + stripes * mirrors * LO_ENTRY_LEN <=
		       LO_LAYOUT_MAX;
}

int lo_policy_check(struct lo *lo, const struct lo_policy *p, char *err, size_t errlen)
{
	unsigned known = dsc_count(lo->l_dsc);

	if (!lo_shape_ok(p->lp_stripes, p->lp_mirrors))
		return refuse(err, errlen,
			      "stripes=%u,mirrors=%u: the layout would not fit in 4096 bytes "
			      "(stripes x mirrors can be at most %d)",
			      p->lp_stripes, p->lp_mirrors, LO_MAX_OBJECTS);
	/* One copy is what there is to say before the first server joins. */
	if (p->lp_mirrors > 1 && p->lp_mirrors > known)
		return refuse(err, errlen, "mirrors=%u: there %s only %u data server%s",
			      p->lp_mirrors, known == 1 ? "is" : "are", known,
			      known == 1 ? "" : "s");
	return 0;
}
