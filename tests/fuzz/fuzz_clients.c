/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_clients.c - several clients at once on several threads: two threads of clients, each with
 * two owners and four connections of its own, against a metadata server whose connections are
 * spread over two loops.
 *
 * Each thread is a fuzz_compound.c (which is a part of this file) with its own half of the input;
 * its first two bytes are the circumstances of both. What one finds depends on the other, so less
 * is told by an input: the sanitizers, and what fuzz_compound.c holds of each reply, are the judges
 * here too.
 */
#define FZ_LOOPS  2
#define FZ_OWN	  _Thread_local
#define FZ_OWNERS owners
static _Thread_local const char *owners = "AB";
#define LLVMFuzzerInitialize   compound_initialize
#define LLVMFuzzerTestOneInput compound_one_input
#include "tests/fuzz/fuzz_compound.c"
#undef LLVMFuzzerInitialize
#undef LLVMFuzzerTestOneInput

#define THREADS 2

static struct half {
	pthread_t h_thread;
	const uint8_t *h_data;
	size_t h_size;
	uint8_t h_prelude;
	sem_t h_go, h_done;
} halves[THREADS];

static void one_half(struct half *h)
{
	in_dark = true; /* a reply may be of what the other one did */
	prelude(h->h_prelude);
	frames(h->h_data, h->h_size);
	for (unsigned i = 0; i < NCONNS; i++) {
		if (conns[i].c_fd >= 0 &&
		    (conns[i].c_doubtful || cb_mode == CB_SILENT || cb_mode == CB_DELAY))
			conn_close(i);
	}
}

static void *half_run(void *arg)
{
	static const char *const names_of[THREADS] = {"CD", "EF"};
	struct half *h = arg;

	owners = names_of[h - halves];
	for (unsigned i = 0; i < NCONNS; i++)
		conns[i].c_fd = -1;
	for (;;) {
		while (sem_wait(&h->h_go))
			;
		one_half(h);
		sem_post(&h->h_done);
	}
	return NULL;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	compound_initialize(argc, argv);
	for (unsigned i = 0; i < THREADS; i++) {
		sem_init(&halves[i].h_go, 0, 0);
		sem_init(&halves[i].h_done, 0, 0);
		if (pthread_create(&halves[i].h_thread, NULL, half_run, &halves[i]))
			fz_bug("no thread");
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t first;

	if (size < 5 || size > 4096)
		return 0;
	fz_restore();
	base_ino = mds.m_ns->n_ino_next;
	circumstances(data[0], data[1]);
	first = (size - 3) * data[2] / 256;
	for (unsigned i = 0; i < THREADS; i++) {
		/* A grace period is everybody's: none here. */
		halves[i].h_prelude = (uint8_t)(data[0] & ~H_GRACE);
		halves[i].h_data = data + 3 + (i ? first : 0);
		halves[i].h_size = i ? size - 3 - first : first;
		sem_post(&halves[i].h_go);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		while (sem_wait(&halves[i].h_done))
			;
	}
	return 0;
}
