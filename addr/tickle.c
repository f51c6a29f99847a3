/* SPDX-License-Identifier: Apache-2.0 */
/* tickle.c - the rows that are to be tickled, each a few times, so many a second. See addr.h. */
#include "addr/addr.h"
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define TICKLE_MAX 65536
/* 20,000 packets a second */
#define TICKLE_STEP_MS 10
#define TICKLE_STEP    200

/* When after its row came a packet leaves. The first may be lost: the network may still believe
 * the former node, and a peer answers a wrong ACK of a connection only each 0.5 s. */
static const int16_t delays[] = {0, 200, 500, 1000};
#define TRIES (sizeof delays / sizeof delays[0])

struct tickle {
	struct addr_row t_row;
	uint8_t t_tries;
	int64_t t_due;
};
static struct tickle *tickles;
static unsigned ntickles;
static int64_t step_at; /* the step that is under way began then */
static unsigned step_sent;

unsigned addr_tickle_count(void)
{
	return ntickles;
}

unsigned addr_tickle_add(const struct addr_row *rows, unsigned n, int64_t now)
{
	if (!tickles)
		tickles = malloc(TICKLE_MAX * sizeof *tickles);
	if (!tickles)
		return 0;
	if (n > TICKLE_MAX - ntickles)
		n = TICKLE_MAX - ntickles;
	for (unsigned i = 0; i < n; i++)
		tickles[ntickles++] = (struct tickle){.t_row = rows[i], .t_due = now};
	return n;
}

void addr_tickle_drop(const struct addr_ip *local)
{
	for (unsigned i = 0; i < ntickles;)
		if (addr_ip_same(&tickles[i].t_row.r_local, local))
			tickles[i] = tickles[--ntickles];
		else
			i++;
}

int addr_tickle_run(int64_t now)
{
	int64_t next = INT64_MAX;

	if (now >= step_at + TICKLE_STEP_MS) {
		step_at = now;
		step_sent = 0;
	}
	for (unsigned i = 0; i < ntickles;) {
		struct tickle *t = &tickles[i];
		uint32_t seq;

		if (t->t_due <= now && step_sent < TICKLE_STEP) {
			/* Another number each time: one may fall into the peer's window. */
			if (getrandom(&seq, sizeof seq, GRND_NONBLOCK) != sizeof seq)
				seq = (uint32_t)(now * 2654435761u);
			addr_tickle_send(&t->t_row, seq);
			step_sent++;
			if (++t->t_tries == TRIES) {
				*t = tickles[--ntickles];
				continue;
			}
			t->t_due = now + delays[t->t_tries] - delays[t->t_tries - 1];
		}
		if (t->t_due < next)
			next = t->t_due;
		i++;
	}
	if (!ntickles)
		return -1;
	if (next <= now)
		next = step_at + TICKLE_STEP_MS;
	return (int)(next > now ? next - now : 1);
}
