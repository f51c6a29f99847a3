/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_ls.c - lists a folder of an NFSv4.1 server, or prints a file, with libweft:
 *
 *	cc weft_ls.c $(pkg-config --cflags --libs libweft) -o weft_ls
 *	weft_ls 10.1.2.3 some/folder
 */
#include "client/weft.h"
#include <stdio.h>
#include <string.h>

static void entry(struct weft_op *op, const struct weft_entry *en)
{
	(void)op;
	printf("%06o %12llu %s\n", en->en_attr.at_mode, (unsigned long long)en->en_attr.at_size,
	       en->en_name);
}

static int list(struct weft *w, const struct weft_fh *dir)
{
	struct weft_op op = {.o_what = WEFT_READDIR, .o_fh = *dir, .o_entry = entry};
	int err;

	do
		err = weft_do(w, &op); /* o_off and o_verf are where the next one goes on */
	while (!err && !op.o_eof);
	return err;
}

static int print(struct weft *w, const struct weft_fh *file)
{
	static char buf[1 << 20];
	struct weft_op open = {.o_what = WEFT_OPEN, .o_fh = *file, .o_flags = WEFT_O_READ};
	struct weft_op op = {.o_what = WEFT_READ, .o_buf = buf, .o_len = sizeof(buf)},
		       close = {.o_what = WEFT_CLOSE};
	int err = weft_do(w, &open);

	op.o_file = close.o_file = open.o_file;
	while (!err && !op.o_eof) {
		err = weft_do(w, &op);
		fwrite(buf, 1, op.o_count, stdout);
		op.o_off += op.o_count;
	}
	if (open.o_file)
		weft_do(w, &close);
	return err;
}

int main(int argc, char **argv)
{
	struct weft_op look = {.o_what = WEFT_LOOKUP, .o_name = argc > 2 ? argv[2] : ""};
	struct weft_opts o = {.wo_server = argc > 1 ? argv[1] : "127.0.0.1", .wo_giveup_ms = 30000};
	struct weft_ring *r;
	struct weft *w;
	int err = weft_ring_create(&r);

	if (err)
		return 1;
	err = weft_connect(&w, r, &o);
	if (!err) {
		err = weft_do(w, &look);
		if (!err)
			err = look.o_attr.at_type == WEFT_DIR ? list(w, &look.o_fh2)
							      : print(w, &look.o_fh2);
		weft_close(w);
	}
	weft_ring_destroy(r);
	if (err)
		fprintf(stderr, "weft_ls: %s\n", strerror(-err));
	return err != 0;
}
