/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold.c - open files or idle clients on a server, kept until standard input ends, so that what
 * they take there can be measured.
 *
 *   hold ADDRESS opens N     one client opens N files (hold.0, ...) that it makes in the root
 *   hold ADDRESS clients N   N clients, each with a connection and a session of one slot
 *
 * Prints "held" when all are there.
 */
#include "client/weft.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WINDOW 64

static void die(const char *what, int err)
{
	fprintf(stderr, "hold: %s: %s\n", what, strerror(-err));
	exit(1);
}

/* Until the one who started this has seen enough; the leases are kept meanwhile. */
static void wait_for_end(struct weft_ring *ring)
{
	char c;

	printf("held\n");
	fflush(stdout);
	weft_reap(ring, NULL, 0, 0);
	while (read(0, &c, 1) > 0)
		weft_reap(ring, NULL, 0, 0);
}

static void open_some(struct weft_ring *ring, struct weft *w, unsigned first, unsigned n)
{
	static char names[WINDOW][32];
	static struct weft_op ops[WINDOW];

	for (unsigned i = 0; i < n; i++) {
		snprintf(names[i], sizeof(names[i]), "hold.%u", first + i);
		ops[i] = (struct weft_op){.o_what = WEFT_OPEN,
					  .o_name = names[i],
					  .o_flags = WEFT_O_READ | WEFT_O_CREATE,
					  .o_attr = {.at_set = WEFT_A_MODE, .at_mode = 0644}};
		weft_submit(w, &ops[i]);
	}
	for (unsigned got = 0; got < n;) {
		struct weft_op *ended[WINDOW];
		int k = weft_reap(ring, ended, WINDOW, -1);

		for (int i = 0; i < k; i++)
			if (ended[i]->o_err)
				die(ended[i]->o_name, ended[i]->o_err);
		got += k > 0 ? (unsigned)k : 0;
	}
}

static void opens(struct weft_ring *ring, const char *server, unsigned n)
{
	struct weft_opts o = {.wo_server = server, .wo_no_layouts = true, .wo_slots = WINDOW};
	struct weft *w;
	int err = weft_connect(&w, ring, &o);

	if (err)
		die(server, err);
	for (unsigned done = 0; done < n; done += WINDOW)
		open_some(ring, w, done, n - done < WINDOW ? n - done : WINDOW);
	wait_for_end(ring);
	weft_close(w);
}

static void clients(struct weft_ring *ring, const char *server, unsigned n)
{
	struct weft **w = calloc(n, sizeof(*w));

	for (unsigned i = 0; w && i < n; i++) {
		struct weft_opts o = {.wo_server = server, .wo_slots = 1};
		int err = weft_connect(&w[i], ring, &o);

		if (err)
			die(server, err);
	}
	wait_for_end(ring);
	for (unsigned i = 0; w && i < n; i++)
		weft_close(w[i]);
	free(w);
}

int main(int argc, char **argv)
{
	struct weft_ring *ring;
	int err;

	if (argc != 4 || atoi(argv[3]) < 1 ||
	    (strcmp(argv[2], "opens") && strcmp(argv[2], "clients"))) {
		fprintf(stderr, "usage: hold ADDRESS opens|clients N\n");
		return 2;
	}
	err = weft_ring_create(&ring);
	if (err)
		die("no ring", err);
	(argv[2][0] == 'o' ? opens : clients)(ring, argv[1], (unsigned)atoi(argv[3]));
	weft_ring_destroy(ring);
	return 0;
}
