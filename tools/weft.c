/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft.c - the administrator's command: the table of its commands, and its command line. It asks
 * the metadata server's HTTP API and shows the answers: tables for people, the server's JSON with
 * --json. See docs/weft.1.
 */
#include "tools/weft_command.h"
#include "tools/http_get.h"
#include "tools/topo_tool.h"
#include "base/near.h"
#include "common/version.h"
#include <ctype.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ADMIN_DEFAULT "unix:/run/weft-mds/admin"
enum { OPTIONS = 24, COMMON = 8, ANY = 1 << 20 };

const char *weft_admin;
bool weft_json;

/* ---- the commands ---- */

static const struct weft_opt layout_options[] = {
	{"client", 0, "CLIENT", "only layouts of this client"},
	{"ds", 0, "DS", "only layouts of files with an object on this data server"},
	{0}};
static const struct weft_opt orders_options[] = {{"ds", 0, "DS", "only orders to this data server"},
						 {"last", 'n', "N", "at most N orders"},
						 {0}};
static const struct weft_opt events_options[] = {
	{"follow", 'f', NULL, "keep printing new events"},
	{"since", 0, "TIME", "only events from this time on: 10m, 2h, 3d, 14:30, 2030-01-31"},
	{"kind", 0, "KIND", "only events of this kind"},
	{"last", 'n', "N", "only the last N events"},
	{0}};
static const struct weft_opt trace_options[] = {
	{"follow", 'f', NULL, "keep printing requests that are answered"},
	{"id", 0, "ID", "only the request that a log line names, such as 3.4711"},
	{"client", 0, "ADDRESS", "only requests of this IP address"},
	{"inode", 0, "N", "only requests that did something with this inode"},
	{"last", 'n', "N", "only the last N requests"},
	{0}};
static const struct weft_opt add_options[] = {
	{"group", 'g', "LABELS", "on data servers with these labels"},
	{"wait", 'w', NULL, "wait until the mirror is filled"},
	{"recursive", 'r', NULL, "all files below PATH; with --to"},
	{"to", 0, "N", "only files that have fewer than N mirrors"},
	{0}};
static const struct weft_opt repair_options[] = {{"recursive", 'r', NULL, "all files below PATH"},
						 {0}};
static const struct weft_opt verify_options[] = {
	{"recursive", 'r', NULL, "all files below PATH"},
	{"mend", 0, NULL, "overwrite copies that differ from the first copy in sync"},
	{"keep", 0, "MIRROR", "with --mend: overwrite copies that differ from this mirror"},
	{"yes", 'y', NULL, "do not ask"},
	{0}};
static const struct weft_opt wait_options[] = {
	{"wait", 'w', NULL, "wait until no object is left there"}, {0}};
static const struct weft_opt move_options[] = {
	{"group", 'g', "LABELS", "to data servers with these labels"},
	{"policy", 'p', "POLICY", "to where this policy wants its objects"},
	{"from", 'f', "DS", "away from this data server"},
	{"stripes", 's', "N", "change the number of stripes"},
	{"unit", 'u', "SIZE", "change the stripe unit"},
	{"cancel", 0, NULL, "cancel moves that have not begun"},
	{"wait", 'w', NULL, "wait until it is done"},
	{"recursive", 'r', NULL, "all files below PATH"},
	{0}};
static const struct weft_opt pin_options[] = {
	{"group", 'g', "NAME", "on data servers with the label group=NAME, or with these labels"},
	{"for", 0, "TIME", "the copies go after this time: 90s, 30m, 12h, 7d"},
	{"recursive", 'r', NULL, "all files below PATH"},
	{"wait", 'w', NULL, "wait until the copies are made"},
	{0}};
static const struct weft_opt unpin_options[] = {
	{"group", 'g', "NAME", "only the pin with this group"},
	{"wait", 'w', NULL, "wait until the copies are gone"},
	{0}};
static const struct weft_opt jobs_options[] = {{"kind", 0, "KIND", "only jobs of this kind"}, {0}};
static const struct weft_opt find_options[] = {
	{"on-ds", 0, "DS", "files with an object on this data server"},
	{"stale", 0, NULL, "files with objects that are not in sync"},
	{"lost", 0, NULL, "files that cannot be read: a stripe has no copy left"},
	{"degraded", 0, NULL, "files that can be read but lack a copy"},
	{"policy", 0, "TEXT", "files and directories whose policy contains TEXT"},
	{0}};
static const struct weft_opt top_options[] = {
	{"by", 0, "WHAT", "only by job, client, server, export or directory"},
	{"times", 'n', "N", "print N times, for scripts"},
	{"rows", 0, "N", "at most N rows in a table"},
	{0}};
static const struct weft_opt du_options[] = {
	{"summarize", 's', NULL, "only the directory itself, as with --depth 0"},
	{"depth", 0, "N", "also the directories below it, N levels deep (1)"},
	{"users", 0, NULL, "what each user has, in the whole file system"},
	{"rows", 0, "N", "at most the N largest (1000)"},
	{0}};
static const struct weft_opt heat_options[] = {{"rows", 0, "N", "at most N rows in a table"}, {0}};
static const struct weft_opt advise_options[] = {
	{"spread", 0, "PERCENT", "how far off its share a data server may be (10)"}, {0}};
static const struct weft_opt balance_options[] = {
	{"dry-run", 0, NULL, "only say what would move"},
	{"files", 0, "N", "move at most N files"},
	{"bytes", 0, "SIZE", "move at most so many bytes"},
	{"rate", 0, "SIZE", "bytes a second"},
	{"spread", 0, "PERCENT", "how far off its share a data server may be (10)"},
	{"stop", 0, NULL, "stop the run: start no more moves"},
	{0}};
static const struct weft_opt choose_options[] = {
	{"copy", 0, "MIRROR", "declare this copy good and rebuild the others from it"},
	{"force", 0, NULL, "with --copy: also stripes that have a readable copy in sync"},
	{"yes", 'y', NULL, "do not ask"},
	{0}};
static const struct weft_opt scrub_options[] = {
	{"dry-run", 0, NULL, "change nothing"},
	{"background", 0, NULL, "begin, and do not wait for the end"},
	{"remove-newer", 0, NULL, "after a restore: delete objects newer than the backup"},
	{"status", 0, NULL, "show how far a check is, or what the last one found"},
	{"stop", 0, NULL, "stop a check"},
	{"yes", 'y', NULL, "do not ask"},
	{0},
};
static const struct weft_opt forget_options[] = {
	{"force", 0, NULL, "also if files need it: those with no other copy ARE LOST"},
	{"yes", 'y', NULL, "do not ask"},
	{0}};
static const struct weft_opt key_options[] = {
	{"out", 'o', "FILE", "write the keys to this file (NAME.key)"}, {0}};
static const struct weft_opt yes_options[] = {{"yes", 'y', NULL, "do not ask"}, {0}};
static const struct weft_opt remove_options[] = {
	{"wait", 'w', NULL, "wait until it is done"}, {"yes", 'y', NULL, "do not ask"}, {0}};
static const struct weft_opt config_options[] = {
	{"all", 'a', NULL, "also keys that have their default"}, {0}};
static const struct weft_opt token_options[] = {
	{"role", 0, "ROLE", "what it may do: read, operate or admin"},
	{"name", 0, "NAME", "a name to list and revoke it by"},
	{"days", 0, "N", "it ends after N days"},
	{0}};
#define CLUSTER_OPTIONS                                                                            \
	{"dry-run", 0, NULL, "change nothing: print each file and each command"},                  \
		{"force", 0, NULL,                                                                 \
		 "go on where a check refuses; a file that is there is kept as "                   \
		 "NAME.before"},                                                                   \
	{                                                                                          \
		"root", 0, "DIR", "make the files below DIR, for an image; start nothing"          \
	}
static const struct weft_opt init_options[] = {
	{"store", 0, "DIR", "the folder of the metadata store (/var/lib/weft/mds)"},
	{"clients", 0, "NETWORKS",
	 "who may mount: networks, hosts, @netgroups (ADDRESS's network)"},
	{"alone", 0, NULL, "no other machine joins: ADDRESS may be one of loopback"},
	CLUSTER_OPTIONS,
	{0}};
static const struct weft_opt join_options[] = {
	{"store", 0, "DIR", "the folder of the data store (/srv/weft/NAME)"},
	{"address", 0, "ADDRESS",
	 "what clients are given (that which leads to the metadata server)"},
	CLUSTER_OPTIONS,
	{0}};
static const struct weft_opt cluster_key_options[] = {
	{"hours", 0, "N", "it expires after N hours (24)"},
	{"mds", 0, "ADDRESS", "where the data server finds the metadata server (mds.listen)"},
	{0}};
static const struct weft_opt pg_init_options[] = {
	{"instance", 0, "N", "make this instance too, a number from 1 to 65535"},
	{"role", 0, "NAME", "make this role, as which weft-mds connects (weft)"},
	{0}};
static const struct weft_opt pg_verify_options[] = {
	{"instance", 0, "N", "the instance (1)"},
	{"store", 0, "DIR", "compare this copy, whose weft-mds does not run"},
	{0}};
static const struct weft_opt trash_restore_options[] = {
	{"to", 0, "PATH", "under this name, or into this directory"},
	{"recursive", 'r', NULL, "all that was below PATH"},
	{"wait", 'w', NULL, "with -r: wait until it is done"},
	{0}};
static const struct weft_opt trash_empty_options[] = {
	{"older", 0, "AGE", "only what was removed longer ago: 12h, 3d"},
	{"wait", 'w', NULL, "wait until it is done"},
	{"yes", 'y', NULL, "do not ask"},
	{0}};
/* The first row that fits is the command. */
/* clang-format off */
const struct command weft_commands[] = {
	{"status", NULL, 0, 0, false, cmd_status, NULL, "",
	 "show the cluster at a glance",
	 "weft status", GROUP_CLUSTER, {NULL}},
	{"health", NULL, 0, 0, false, cmd_health, NULL, "",
	 "say whether anything is wrong, and what to do about it: OK, WARN or ERROR. The exit "
	 "status is 0, 1 or 2; 3 if there is no answer",
	 "weft health", GROUP_CLUSTER, {NULL}},
	{"orders", NULL, 0, 0, false, cmd_orders, orders_options, "",
	 "list what data servers were ordered to do and have not done; the oldest first",
	 "weft orders --ds ds3", GROUP_CLUSTER, {orders_columns}},
	{"cluster", "init", 0, 1, false, cmd_cluster_init, init_options, "[ADDRESS[:PORT]]",
	 "make this machine the metadata server of a new cluster: check it, write keys and "
	 "configuration, start weft-mds. Run again, it goes on or says what is there",
	 "weft cluster init 192.0.2.1 --clients 192.0.2.0/24", GROUP_MACHINE, {NULL}},
	{"cluster", "key", 0, 1, false, cmd_cluster_key, cluster_key_options, "[NAME]",
	 "make a token with which one machine joins once, as a new data server; on the metadata "
	 "server's machine",
	 "weft cluster key ds1", 0, {NULL}},
	{"cluster", "join", 1, 1, false, cmd_cluster_join, join_options, "TOKEN",
	 "make this machine a data server: check it, get its keys, write its configuration, start "
	 "weft-ds@NAME; - for TOKEN reads it from standard input",
	 "weft cluster join - --store /srv/weft/ds1 <token", 0, {NULL}},
	{"pg", "init", 1, 1, false, cmd_pg_init, pg_init_options, "CONNINFO",
	 "make the tables of weft in a PostgreSQL database, and the role of weft-mds, as their "
	 "owner; run again, it sees that they are there. CONNINFO is libpq's connection string, "
	 "without a password",
	 "weft pg init \"host=192.0.2.1 dbname=weft user=postgres\" --instance 1",
	 GROUP_MACHINE, {NULL}},
	{"pg", "verify", 1, 1, false, cmd_pg_verify, pg_verify_options, "CONNINFO",
	 "check the log of an instance in PostgreSQL and the table behind it: sums, gaps, and what "
	 "a copy has. Exit 1 if something is wrong",
	 "weft pg verify \"host=192.0.2.1 dbname=weft\" --store /var/lib/weft/mds",
	 GROUP_MACHINE, {NULL}},
	{"instance", "list", 0, 0, false, cmd_instance_list, instance_options, "",
	 "list the instances whose log is in PostgreSQL: who holds each, who stands by, and how "
	 "far behind",
	 "weft instance list", GROUP_CLUSTER, {instance_columns}},
	{"instance", "make", 1, 1, false, cmd_instance_make, instance_make_options, "INSTANCE",
	 "make this machine a node of an instance: check it, write its configuration and folder, "
	 "start weft-mds@INSTANCE. Run again, it goes on",
	 "weft instance make 1 --address 192.0.2.11 --interface eth0 --dry-run", 0, {NULL}},
	{"instance", "move", 1, 1, false, cmd_instance_move, instance_move_options, "INSTANCE",
	 "move an instance to another node, and wait until it is served there",
	 "weft instance move 2 --to node2", 0, {NULL}},
	{"instance", "drain", 1, 1, false, cmd_instance_drain, instance_options, "NODE",
	 "move all instances away from a node, one after the other",
	 "weft instance drain node1", 0, {NULL}},
	{"ds", "list", 0, 0, false, cmd_ds_list, NULL, "",
	 "list the data servers",
	 "weft ds list -o name,state,used", GROUP_SERVERS, {ds_columns}},
	{"ds", "weight", 2, 2, false, cmd_ds_weight, NULL, "DS WEIGHT",
	 "set a data server's share of new files: 1 is usual, 0 gives it no new files",
	 "weft ds weight ds3 0.5", 0, {ds_columns}},
	{"ds", "add", 1, ANY, false, cmd_ds_add, NULL, "URL [KEY=VALUE]...",
	 "add any NFSv3 server as a data server; URL is nfs3://HOST[:PORT]/PATH",
	 "weft ds add nfs3://filer1/export/weft site=b", 0, {ds_columns}},
	{"ds", "group", 2, ANY, false, cmd_ds_group, NULL, "DS KEY=VALUE...",
	 "set labels that policies select data servers by; KEY= removes a label",
	 "weft ds group ds1 rack=r1 speed=nvme", 0, {ds_columns}},
	{"ds", "drain", 1, 1, false, cmd_ds_drain, wait_options, "DS",
	 "empty a data server while clients keep working: no new files go there, and its "
	 "objects move away",
	 "weft ds drain ds3 --wait", 0, {ds_columns}},
	{"ds", "undrain", 1, 1, false, cmd_ds_undrain, NULL, "DS",
	 "end a drain: the data server takes new files again; objects that moved away stay "
	 "away",
	 "weft ds undrain ds3", 0, {ds_columns}},
	{"ds", "kill", 1, 1, false, cmd_ds_kill, yes_options, "DS",
	 "declare a data server dead and fence it; undo with \"ds admit\". Until then files "
	 "whose only copy is there can be neither read nor written",
	 "weft ds kill ds3", 0, {ds_columns}},
	{"ds", "admit", 1, 1, false, cmd_ds_admit, NULL, "DS",
	 "let a data server join that was killed or waits for this",
	 "weft ds admit ds3", 0, {ds_columns}},
	{"ds", "forget", 1, 1, false, cmd_ds_forget, forget_options, "DS",
	 "remove the record of a killed or waiting data server; refused while files need it. "
	 "--force removes it all the same: files whose only copy is there ARE LOST",
	 "weft ds forget ds3", 0, {NULL}},
	{"ds", "key", 1, 1, false, cmd_ds_key, key_options, "DS",
	 "write a data server's keys to a file, for ds.key on its machine; a name that does "
	 "not exist yet gets the keys of a new data server",
	 "weft ds key ds5 --out /root/ds5.key", 0, {NULL}},
	{"key", "status", 0, 0, false, cmd_key_status, NULL, "",
	 "show the number of the cluster key, and which data servers have no keys from it yet",
	 "weft key status", GROUP_SERVERS, {NULL}},
	{"key", "rotate", 0, 0, false, cmd_key_rotate, yes_options, "",
	 "replace the cluster key while the cluster runs; no data server can join with the "
	 "old key any more",
	 "weft key rotate", 0, {NULL}},
	{"policy", "get", 1, 1, true, cmd_policy_get, NULL, "PATH",
	 "show the policy for new files in a directory",
	 "weft policy get /checkpoints", GROUP_FILES, {NULL}},
	{"policy", "set", 2, 2, true, cmd_policy_set, NULL, "PATH POLICY",
	 "set a directory's own policy; it applies to files made from now on",
	 "weft policy set /checkpoints stripes=4,unit=1M,mirrors=2", 0, {NULL}},
	{"policy", "remove", 1, 1, true, cmd_policy_remove, NULL, "PATH",
	 "remove a directory's own policy; it inherits its parent's again",
	 "weft policy remove /checkpoints", 0, {NULL}},
	{"trash", "list", 0, 1, true, cmd_trash_list, NULL, "[PATH]",
	 "show what was removed, and is kept because a policy says trash=",
	 "weft trash list /checkpoints", GROUP_FILES, {trash_columns}},
	{"trash", "restore", 1, 1, false, cmd_trash_restore, trash_restore_options, "PATH|ID",
	 "restore what was removed, where it was or --to another PATH; of several removed files "
	 "of one name the last one, or the one of this ID; -r: all that was below PATH",
	 "weft trash restore /checkpoints/model.pt", 0, {NULL}},
	{"trash", "empty", 0, 1, true, cmd_trash_empty, trash_empty_options, "[PATH]",
	 "remove for good what is in the trash, or what was below PATH",
	 "weft trash empty --older 3d", 0, {NULL}},
	{"config", NULL, 0, 1, false, cmd_config, config_options, "[KEY]",
	 "show the keys of the configuration that are set, or one key; --all: those with their "
	 "default too. With --admin of a data server: its keys",
	 "weft config mds.repair_rate", GROUP_CLUSTER, {config_columns}},
	{"set", NULL, 1, 1, false, cmd_set, NULL, "KEY=VALUE",
	 "change a key of the configuration while the daemon runs; until it starts again or reads "
	 "its file again. Refused for keys that take effect only at its start",
	 "weft set mds.repair_rate=64M", GROUP_CLUSTER, {config_columns}},
	{"support", NULL, 0, 1, false, cmd_support, NULL, "[FILE]",
	 "collect what daemons and machine say of themselves into a tar.gz file, for "
	 "whoever helps; no keys, tokens or data",
	 "weft support /tmp/weft.tar.gz", GROUP_CLUSTER, {NULL}},
	{"exports", "reload", 0, 0, false, cmd_exports_reload, NULL, "",
	 "reload the exports file; if it has an error, the old exports stay in force",
	 "weft exports reload", GROUP_CLIENTS, {exports_columns}},
	{"exports", NULL, 0, 0, false, cmd_exports, NULL, "",
	 "list the exports and what clients may do with them",
	 "weft exports", 0, {exports_columns}},
	{"mirror", "status", 0, 1, true, cmd_mirror_status, NULL, "[PATH]",
	 "show copies that are being repaired or moved, and copies that wait for it",
	 "weft mirror status", GROUP_FILES, {repair_columns, waiting_columns, moving_columns}},
	{"mirror", "repair", 1, 1, true, cmd_mirror_repair, repair_options, "PATH",
	 "repair a file's copies now, without waiting for an absent data server to return; "
	 "-r: of all files below PATH",
	 "weft mirror repair -r /checkpoints", 0,
	 {repair_columns, waiting_columns, moving_columns}},
	{"mirror", "list", 1, 1, true, cmd_mirror_list, NULL, "PATH",
	 "list a file's mirrors and their states",
	 "weft mirror list /vital/f", 0, {mirror_columns}},
	{"mirror", "add", 1, 1, true, cmd_mirror_add, add_options, "PATH",
	 "add a mirror to a file and fill it in the background. --group LABELS: on data "
	 "servers with these labels; -r --to N: for all files below PATH that have fewer than "
	 "N mirrors",
	 "weft mirror add -r --to 2 /vital", 0, {repair_columns, waiting_columns, moving_columns}},
	{"mirror", "remove", 2, 2, true, cmd_mirror_remove, remove_options, "PATH MIRROR",
	 "delete one mirror of a file; refused if it is the only copy in sync",
	 "weft mirror remove /vital/f 1", 0, {repair_columns, waiting_columns, moving_columns}},
	{"mirror", "verify", 1, 1, true, cmd_mirror_verify, verify_options, "PATH",
	 "compare a file's copies; -r: of all files below PATH. --mend overwrites copies that "
	 "differ from the first copy in sync, or from --keep MIRROR: data that only the "
	 "overwritten copies have IS LOST",
	 "weft mirror verify -r /vital", 0, {NULL}},
	{"mirror", "choose", 1, 1, true, cmd_mirror_choose, choose_options, "PATH",
	 "show what each copy of a file holds. --copy MIRROR declares that copy good and "
	 "overwrites the others: data that only the others have IS LOST",
	 "weft mirror choose /vital/f --copy 0", 0, {choose_columns}},
	{"move", NULL, 1, 1, true, cmd_move, move_options, "PATH",
	 "move a file to other data servers (--group LABELS, --policy POLICY, --from DS), or "
	 "change its stripes (--stripes N, --unit SIZE), while clients use it; -r: all files "
	 "below PATH; --cancel: stop",
	 "weft move -r /old --group speed=hdd", GROUP_FILES,
	 {repair_columns, waiting_columns, moving_columns, restripe_columns}},
	{"pin", "list", 0, 0, false, cmd_pin_list, NULL, "",
	 "list what is pinned and warmed: group, copies, their size, and until when",
	 "weft pin list", GROUP_FILES, {pin_columns}},
	{"pin", NULL, 1, 1, true, cmd_pin, pin_options, "PATH",
	 "give a file one more copy on the data servers of a group, and have clients read that "
	 "one; -r: all files that are below PATH now. Writes go to this copy too, so they cost "
	 "more. Refused where the group lacks the room",
	 "weft pin -r /datasets/images --group fast --for 12h", 0, {pin_columns}},
	{"warm", NULL, 1, 1, true, cmd_warm, pin_options, "PATH",
	 "pin for a day, and give the copies up when room is needed; those warmed first go first",
	 "weft warm -r /datasets/images", GROUP_FILES, {pin_columns}},
	{"unpin", NULL, 1, 1, true, cmd_unpin, unpin_options, "PATH",
	 "take the copies of \"pin\" or \"warm\" away; a number from \"pin list -o +pin\" in place "
	 "of PATH ends one whose path is gone",
	 "weft unpin /datasets/images", GROUP_FILES, {pin_columns}},
	{"jobs", "list", 0, 1, true, cmd_jobs, jobs_options, "[PATH]",
	 "list what the server does in the background (repairs, moves, drains, scrubs...), with "
	 "its progress, and what ended lately; of a file, or of one kind. Compute jobs are \"job\"",
	 "weft jobs list --kind repair", GROUP_FILES, {jobs_columns, jobs_ended_columns}},
	{"jobs", "wait", 1, ANY, false, cmd_jobs_wait, NULL, "ID...",
	 "wait until these jobs are over; exit status 1 if one failed or was cancelled",
	 "weft jobs wait 281474976710657", 0, {NULL}},
	{"jobs", "cancel", 1, ANY, false, cmd_jobs_cancel, NULL, "ID...",
	 "cancel jobs; refused for those that have to go to their end",
	 "weft jobs cancel 281474976710657", 0, {NULL}},
	{"jobs", NULL, 0, 0, false, cmd_jobs, jobs_options, "",
	 "the same as \"jobs list\"",
	 "weft jobs", 0, {jobs_columns, jobs_ended_columns}},
	{"file", "show", 1, 1, true, cmd_file_show, NULL, "PATH",
	 "show where a file's data is stored",
	 "weft file show /checkpoints/step-1000", GROUP_FILES, {file_columns}},
	{"client", "list", 0, 0, false, cmd_client_list, NULL, "",
	 "list the clients that mount this file system, and what each holds",
	 "weft client list -o +owner", GROUP_CLIENTS, {client_columns}},
	{"client", "evict", 1, 1, false, cmd_client_evict, yes_options, "CLIENT",
	 "end a client's lease now: it loses its opens, locks and layouts, and data that it "
	 "has not committed yet MAY BE LOST",
	 "weft client evict node17", 0, {NULL}},
	{"job", "tag", 2, ANY, false, cmd_job_tag, NULL, "NAME CLIENT...",
	 "name the clients of a compute job: what they do is counted under NAME. CLIENT is a host "
	 "name, an address or an owner as \"client list\" shows it, also of a client that is not "
	 "there yet. What the server does in the background is \"jobs\"",
	 "weft job tag train-7 node17 node18", GROUP_CLIENTS, {tag_columns}},
	{"job", "untag", 1, ANY, false, cmd_job_untag, NULL, "NAME [CLIENT]...",
	 "take clients out of a compute job; without CLIENT all of them, and the job is gone",
	 "weft job untag train-7", 0, {tag_columns}},
	{"job", "list", 0, 1, false, cmd_job_list, NULL, "[NAME]",
	 "list the compute jobs that \"job tag\" named, and what their clients did; with NAME "
	 "also these clients",
	 "weft job list", 0, {tag_columns, tag_client_columns}},
	{"layout", "list", 0, 1, true, cmd_layout_list, layout_options, "[PATH]",
	 "list the layouts that clients hold: of a file, of a client, or at a data server",
	 "weft layout list --client node17", GROUP_CLIENTS, {layout_columns}},
	{"layout", "recall", 1, 1, true, cmd_layout_recall, NULL, "PATH",
	 "recall a file's layouts; clients that do not return them in time are fenced",
	 "weft layout recall /checkpoints/step-1000", 0, {NULL}},
	{"token", "create", 0, 0, false, cmd_token_create, token_options, "",
	 "make a token for the API, print it once, and keep only a hash of it",
	 "weft token create --role read --name grafana --days 365", GROUP_CLIENTS, {NULL}},
	{"token", "list", 0, 0, false, cmd_token_list, NULL, "",
	 "list the tokens: what each may do, until when, and when it was last used",
	 "weft token list", 0, {token_columns}},
	{"token", "revoke", 1, 1, false, cmd_token_revoke, NULL, "NAME",
	 "revoke a token: it counts no more from now on",
	 "weft token revoke grafana", 0, {NULL}},
	{"find", NULL, 0, 1, true, cmd_find, find_options, "[PATH]",
	 "print files below PATH: with objects on a data server (--on-ds), with copies not in "
	 "sync (--stale), with no copy left (--lost), with fewer copies than they should have "
	 "(--degraded), or with a policy (--policy)",
	 "weft find / --on-ds ds3", GROUP_FILES, {NULL}},
	{"du", NULL, 0, 64, true, cmd_du, du_options, "[PATH]...",
	 "show how much is below directories: files, directories, bytes, and bytes with all "
	 "copies; the largest first; --users: what each user has",
	 "weft du /projects", GROUP_FILES, {du_columns, du_user_columns}},
	{"xattr", "show", 1, 2, true, cmd_xattr_show, NULL, "PATH [NAME]",
	 "show the extended attributes of a file or directory",
	 "weft xattr show /vital", GROUP_FILES, {NULL}},
	{"xattr", "set", 2, 3, true, cmd_xattr_set, NULL, "PATH NAME [VALUE]",
	 "set an extended attribute; a VALUE of 0x and hexadecimal digits is taken as bytes",
	 "weft xattr set /vital user.team physics", 0, {NULL}},
	{"xattr", "remove", 2, 2, true, cmd_xattr_remove, NULL, "PATH NAME",
	 "remove an extended attribute",
	 "weft xattr remove /vital user.team", 0, {NULL}},
	{"top", NULL, 0, 1, true, cmd_top, top_options, "[PATH]",
	 "show who and what is busiest now, live: compute jobs (\"job tag\"), clients, data "
	 "servers, exports and directories. With PATH: each directory in it, with all that is "
	 "below",
	 "weft top --by job", GROUP_CLUSTER,
	 {top_tag_columns, top_client_columns, top_server_columns, top_export_columns,
	  top_directory_columns}},
	{"heat", NULL, 0, 1, true, cmd_heat, heat_options, "[PATH]",
	 "show the directories and files that were used most lately",
	 "weft heat /projects --rows 20", GROUP_CLUSTER,
	 {heat_directory_columns, heat_file_columns}},
	{"advise", NULL, 0, 0, false, cmd_advise, advise_options, "",
	 "say what is hot, and which data servers are behind; and what \"balance\" would move",
	 "weft advise", GROUP_CLUSTER, {NULL}},
	{"balance", NULL, 0, 0, false, cmd_balance, balance_options, "",
	 "move files until each data server is near its share: within --spread percent; --stop: "
	 "move no more",
	 "weft balance --dry-run", GROUP_SERVERS, {balance_columns}},
	{"events", NULL, 0, 0, false, cmd_events, events_options, "",
	 "print the journal of events; -f: keep printing new ones",
	 "weft events --since 1h --kind copy-stale", GROUP_CLUSTER, {NULL}},
	{"trace", NULL, 0, 0, false, cmd_trace, trace_options, "",
	 "print what the server did for its last requests, step by step; --id: the one that a log "
	 "line names; -f: keep printing those that are answered. With --admin of a data server: "
	 "its NFSv3 calls",
	 "weft trace --id 3.4711", GROUP_CLUSTER, {NULL}},
	{"scrub", NULL, 0, 0, false, cmd_scrub, scrub_options, "",
	 "compare what the data servers hold with the metadata, and repair; the content is "
	 "compared too, and only what is safe is repaired. After a restore, --remove-newer also "
	 "deletes the data of files that were made since the backup: IT IS LOST",
	 "weft scrub --dry-run", GROUP_SERVERS, {NULL}},
	/* These have options of their own, but for help; see weft_other_program(). */
	{"backup", NULL, 0, ANY, false, NULL, NULL, "FOLDER [OPTION]...",
	 "back up the metadata store of this machine, beside its server. --incremental: what "
	 "changed since the newest backup in FOLDER; --keep N: remove those older than the newest "
	 "N full ones; -o -: to a pipe; --verify: check backups",
	 "weft backup /srv/backup", GROUP_MACHINE, {NULL}},
	{"restore", NULL, 0, ANY, false, NULL, NULL, "FOLDER [OPTION]...",
	 "make the metadata store again from a backup; in an empty folder, and from the "
	 "incremental backups after it. Then start weft-mds with --restored",
	 "weft restore /srv/backup", GROUP_MACHINE, {NULL}},
	{"export-meta", NULL, 0, ANY, false, NULL, NULL, "FILE|- [OPTION]...",
	 "write the metadata store as JSON lines, which import-meta takes. Beside its server; all "
	 "lines are of one moment. -: to a pipe",
	 "weft export-meta /srv/meta.jsonl", GROUP_MACHINE, {NULL}},
	/* The line of export-meta in the summary names it. */
	{"import-meta", NULL, 0, ANY, false, NULL, NULL, "FILE|- [OPTION]...",
	 "make a metadata store of the lines of export-meta, in an empty folder. --edited: they "
	 "were changed. Then start weft-mds with --restored",
	 "weft import-meta /srv/meta.jsonl", GROUP_AS_NOUN, {NULL}},
	{"fsck", NULL, 0, ANY, false, NULL, NULL, "STORE [OPTION]...",
	 "check the metadata store of a stopped server. fsck --online [--dry-run] "
	 "[--background]: check what a running cluster's data servers hold",
	 "weft fsck /var/lib/weft/mds", GROUP_MACHINE, {NULL}},
	{"topo", NULL, 0, ANY, false, NULL, NULL, "[OPTION]...",
	 "show this machine's drives, network cards, GPUs and distances",
	 "weft topo --near /srv/weft/store1", GROUP_MACHINE, {NULL}},
	{"help", NULL, 0, 2, false, NULL, NULL, "[COMMAND]",
	 "show a command's arguments, options and columns, and an example",
	 "weft help ds drain", GROUP_MACHINE, {NULL}},
};
/* clang-format on */
const size_t weft_ncommands = sizeof(weft_commands) / sizeof(weft_commands[0]);
const struct weft_opt weft_columns_option = {"columns", 'o', "COLUMNS", "show these columns"};

const char *command_name(const struct command *c, char out[64])
{
	snprintf(out, 64, "%s%s%s", c->c_noun, c->c_verb ? " " : "", c->c_verb ? c->c_verb : "");
	return out;
}

const struct command *command_meant(int argc, char **argv)
{
	for (size_t i = 0; argc && i < weft_ncommands; i++) {
		if (strcmp(argv[0], weft_commands[i].c_noun))
			continue;
		if (!weft_commands[i].c_verb)
			return &weft_commands[i];
		for (int k = 1; k < argc; k++)
			if (!strcmp(argv[k], weft_commands[i].c_verb))
				return &weft_commands[i];
	}
	return NULL;
}

bool command_noun(const char *noun)
{
	for (size_t i = 0; i < weft_ncommands; i++)
		if (!strcmp(noun, weft_commands[i].c_noun))
			return true;
	return false;
}

/* Several tables of a command may have a column of the same name. */
static bool has_column(const struct command *c, const struct column *before, const char *name,
		       size_t len)
{
	for (unsigned i = 0; c->c_columns[i]; i++)
		for (const struct column *co = c->c_columns[i]; co->co_name; co++) {
			if (before && co == before)
				return false;
			if (strlen(co->co_name) == len && !strncasecmp(co->co_name, name, len))
				return true;
		}
	return false;
}

void command_columns(const struct command *c, const char *between, char *out, size_t len)
{
	size_t n = 0;

	out[0] = 0;
	for (unsigned i = 0; c->c_columns[i]; i++)
		for (const struct column *co = c->c_columns[i]; co->co_name; co++)
			if (!has_column(c, co, co->co_name, strlen(co->co_name)) && n < len)
				n += (size_t)snprintf(out + n, len - n, "%s%s", n ? between : "",
						      co->co_name);
}

bool weft_sure(const char *fmt, ...)
{
	char line[16] = "";
	va_list ap;

	if (weft_option("yes") || !isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return true;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs("\nContinue? [y/N] ", stderr);
	fflush(stderr);
	if (fgets(line, sizeof(line), stdin) && (line[0] == 'y' || line[0] == 'Y'))
		return true;
	fputs("weft: cancelled; nothing was changed\n", stderr);
	return false;
}

/* The last line of a usage error. words: those of the command line that are no options. */
static const struct command *meant;
static const char *meant_noun;

static int weft_where_help_is(void)
{
	char name[64];

	if (meant)
		fprintf(stderr, "\"weft help %s\" shows its arguments and options.\n",
			command_name(meant, name));
	else if (meant_noun)
		fprintf(stderr, "\"weft help %s\" lists its commands.\n", meant_noun);
	else
		fputs("\"weft --help\" lists the commands.\n", stderr);
	return EXIT_USAGE;
}

int weft_usage_error(const char *what)
{
	fprintf(stderr, "weft: %s\n", what);
	return weft_where_help_is();
}

/* Keeps in *best the name with the fewest edits. A short name has to be nearer than a long one. */
static void weft_nearer(const char *typed, const char *name, unsigned *least, const char **best)
{
	unsigned edits = near_distance(typed, name);

	if (edits < *least && edits * 2 <= strlen(name)) {
		*least = edits;
		*best = name;
	}
}

/* Prints the nearest verb of a noun that exists, or all its verbs. False: there is no such noun. */
static bool weft_verbs(const char *noun, const char *verb)
{
	const char *near = NULL, *before = "is followed by one of: ";
	unsigned least = NEAR_EDITS + 1;
	bool any = false;

	for (size_t i = 0; i < weft_ncommands; i++) {
		const struct command *c = &weft_commands[i];

		if (c->c_verb && !strcmp(c->c_noun, noun)) {
			any = true;
			weft_nearer(verb, c->c_verb, &least, &near);
		}
	}
	if (near)
		fprintf(stderr, "Did you mean \"weft %s %s\"?\n", noun, near);
	if (near || !any)
		return any;
	fprintf(stderr, "\"weft %s\" ", noun);
	for (size_t i = 0; i < weft_ncommands; i++) {
		if (!weft_commands[i].c_verb || strcmp(weft_commands[i].c_noun, noun))
			continue;
		fprintf(stderr, "%s%s", before, weft_commands[i].c_verb);
		before = ", ";
	}
	fputc('\n', stderr);
	return true;
}

static int weft_unknown_command(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "", *near = NULL;
	unsigned least = NEAR_EDITS + 1;

	fprintf(stderr, "weft: unknown command \"%s%s%s\"\n", argv[0], *verb ? " " : "", verb);
	if (!weft_verbs(argv[0], verb)) {
		for (size_t i = 0; i < weft_ncommands; i++)
			weft_nearer(argv[0], weft_commands[i].c_noun, &least, &near);
		if (near)
			fprintf(stderr, "Did you mean \"weft %s\"?\n", near);
	}
	return weft_where_help_is();
}

/* ---- the command line ---- */

static struct {
	const struct weft_opt *g_opt;
	const char *g_value; /* NULL: was not given */
	char g_short;
} given[OPTIONS];
static unsigned n_given;

static int option_index(const char *name)
{
	for (unsigned i = 0; i < n_given; i++)
		if (!strcmp(given[i].g_opt->o_name, name))
			return (int)i;
	return -1;
}

const char *weft_option(const char *name)
{
	int i = option_index(name);

	return i < 0 ? NULL : given[i].g_value;
}

static void weft_gather_one(const struct weft_opt *o)
{
	char letter = o->o_short;

	if (option_index(o->o_name) >= 0 || n_given == OPTIONS)
		return;
	for (unsigned i = 0; i < n_given; i++)
		if (given[i].g_short == letter)
			letter = 0; /* it is that of the command that is meant */
	given[n_given].g_opt = o;
	given[n_given++].g_short = letter;
}

static void weft_gather_command(const struct command *c)
{
	for (const struct weft_opt *o = c->c_options; o && o->o_name; o++)
		weft_gather_one(o);
	if (c->c_columns[0])
		weft_gather_one(&weft_columns_option);
}

/* Collects the options of the command that is meant, then those of all others with its noun: they
 * are refused by name. */
static void weft_gather(const char *noun)
{
	n_given = 0;
	if (meant)
		weft_gather_command(meant);
	for (size_t i = 0; i < weft_ncommands; i++)
		if (!strcmp(weft_commands[i].c_noun, noun))
			weft_gather_command(&weft_commands[i]);
}

static bool has_option(const struct command *c, const struct weft_opt *want)
{
	for (const struct weft_opt *o = c->c_options; o && o->o_name; o++)
		if (!strcmp(o->o_name, want->o_name))
			return true;
	return c->c_columns[0] && !strcmp(want->o_name, weft_columns_option.o_name);
}

/* Refuses an option of another command of the noun. */
static int check_options(const struct command *c)
{
	char what[160], name[64];

	for (unsigned i = 0; i < n_given; i++) {
		if (!given[i].g_value || has_option(c, given[i].g_opt))
			continue;
		snprintf(what, sizeof(what), "%s has no option --%s", command_name(c, name),
			 given[i].g_opt->o_name);
		return weft_usage_error(what);
	}
	return EXIT_DONE;
}

static void near_column(const struct command *c, const char *typed)
{
	const char *near = NULL;
	unsigned least = NEAR_EDITS + 1;
	char upper[NEAR_NAME], columns[400];

	snprintf(upper, sizeof(upper), "%s", typed);
	for (char *p = upper; *p; p++)
		*p = (char)toupper((unsigned char)*p);
	for (unsigned i = 0; c->c_columns[i]; i++)
		for (const struct column *co = c->c_columns[i]; co->co_name; co++)
			weft_nearer(upper, co->co_name, &least, &near);
	command_columns(c, ", ", columns, sizeof(columns));
	if (near)
		fprintf(stderr, "Did you mean \"%s\"?\n", near);
	else
		fprintf(stderr, "Its columns are %s.\n", columns);
}

/* Refuses a column that the command's tables do not have. */
static int check_columns(const struct command *c)
{
	const char *names = weft_option(weft_columns_option.o_name);
	char one[NEAR_NAME], name[64];
	size_t n;

	if (names)
		names += names[0] == '+';
	for (; names; names = names[n] ? names + n + 1 : NULL) {
		n = strcspn(names, ",");
		if (has_column(c, NULL, names, n))
			continue;
		snprintf(one, sizeof(one), "%.*s", (int)n, names);
		fprintf(stderr, "weft: %s has no column \"%s\"\n", command_name(c, name), one);
		near_column(c, one);
		return weft_where_help_is();
	}
	return EXIT_DONE;
}

static int command_error(const struct command *c, const char *why)
{
	char what[200], name[64];

	snprintf(what, sizeof(what), "%s: %s", command_name(c, name), why);
	return weft_usage_error(what);
}

static int weft_dispatch(int argc, char **argv)
{
	for (size_t i = 0; i < weft_ncommands; i++) {
		const struct command *c = &weft_commands[i];
		int skip = c->c_verb ? 2 : 1;

		if (!c->c_fn || strcmp(argv[0], c->c_noun) ||
		    (c->c_verb && (argc < 2 || strcmp(argv[1], c->c_verb))))
			continue;
		if (argc - skip < c->c_min || argc - skip > c->c_max)
			return command_error(c, argc - skip < c->c_min ? "an argument is missing"
								       : "too many arguments");
		if (c->c_path && argc > skip && argv[skip][0] != '/')
			return command_error(c, "PATH must be absolute: begin it with /");
		return check_options(c) || check_columns(c) ? EXIT_USAGE : c->c_fn(argv + skip);
	}
	return weft_unknown_command(argc, argv);
}

static bool help;

enum {
	OPT_ADMIN = 256,
	OPT_JSON,
	OPT_HELP,
	OPT_VERSION,
	OPT_TOKEN_FILE,
	OPT_CACERT,
	OPT_CERT,
	OPT_KEY,
	OPT_COMMAND
};

/* getopt_long() has said which option is unknown, or lacks its argument. */
static void weft_option_error(const char *typed)
{
	static const char *const common[] = {"admin",	   "json",   "help", "version",
					     "token-file", "cacert", "cert", "key"};
	const char *near = NULL;
	unsigned least = NEAR_EDITS + 1;
	char name[NEAR_NAME];

	/* optopt is 0 for a long option that does not exist. */
	if (!optopt && !strncmp(typed, "--", 2)) {
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(typed + 2, "="), typed + 2);
		for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++)
			weft_nearer(name, common[i], &least, &near);
		for (unsigned i = 0; i < n_given; i++)
			weft_nearer(name, given[i].g_opt->o_name, &least, &near);
	}
	if (near)
		fprintf(stderr, "Did you mean \"--%s\"?\n", near);
	exit(weft_where_help_is());
}

static void take_option(int opt, const char *typed)
{
	switch (opt) {
	case OPT_ADMIN:
		weft_admin = optarg;
		return;
	case OPT_JSON:
		weft_json = true;
		return;
	case OPT_TOKEN_FILE:
		http_creds.hc_token_file = optarg;
		return;
	case OPT_CACERT:
		http_creds.hc_cacert = optarg;
		return;
	case OPT_CERT:
		http_creds.hc_cert = optarg;
		return;
	case OPT_KEY:
		http_creds.hc_key = optarg;
		return;
	case OPT_HELP:
	case 'h':
		help = true;
		return;
	case OPT_VERSION:
		exit(version_print("weft") ? EXIT_FAILED : EXIT_DONE);
	}
	if (opt >= OPT_COMMAND) {
		given[opt - OPT_COMMAND].g_value = optarg ? optarg : "";
		return;
	}
	for (unsigned i = 0; i < n_given; i++) {
		if (given[i].g_short == opt) {
			given[i].g_value = optarg ? optarg : "";
			return;
		}
	}
	weft_option_error(typed);
}

/* mode: "+" ends at the first word that is no option. */
static void parse_options(int argc, char **argv, const char *mode)
{
	struct option longs[OPTIONS + COMMON + 1] = {
		{"admin", required_argument, NULL, OPT_ADMIN},
		{"json", no_argument, NULL, OPT_JSON},
		{"help", no_argument, NULL, OPT_HELP},
		{"version", no_argument, NULL, OPT_VERSION},
		{"token-file", required_argument, NULL, OPT_TOKEN_FILE},
		{"cacert", required_argument, NULL, OPT_CACERT},
		{"cert", required_argument, NULL, OPT_CERT},
		{"key", required_argument, NULL, OPT_KEY}};
	char shorts[4 + 2 * OPTIONS], *p = shorts + sprintf(shorts, "%sh", mode);
	int opt;

	for (unsigned i = 0; i < n_given; i++) {
		const struct weft_opt *o = given[i].g_opt;

		longs[COMMON + i] =
			(struct option){o->o_name, o->o_arg ? required_argument : no_argument, NULL,
					(int)(OPT_COMMAND + i)};
		if (given[i].g_short)
			p += sprintf(p, "%c%s", given[i].g_short, o->o_arg ? ":" : "");
	}
	optind = 0; /* from the start */
	while ((opt = getopt_long(argc, argv, shorts, longs, NULL)) != -1)
		take_option(opt, argv[optind - 1]);
}

/* True when the noun has verbs. */
static bool weft_has_verbs(const char *noun)
{
	for (size_t i = 0; i < weft_ncommands; i++)
		if (weft_commands[i].c_verb && !strcmp(weft_commands[i].c_noun, noun))
			return true;
	return false;
}

/* What stands behind "help", or before --help. */
static int weft_help(int argc, char **argv)
{
	const struct command *c = command_meant(argc, argv);

	if (!argc)
		help_summary(stdout);
	else if (argc == 1 && weft_has_verbs(argv[0]))
		help_noun(stdout, argv[0]);
	else if (c)
		help_command(stdout, c);
	else
		return weft_unknown_command(argc, argv);
	return weft_flush();
}

/* Commands whose arguments are not ours to parse. Returns -1 for any other. */
static int weft_other_program(int argc, char **argv)
{
	if (!strcmp(argv[0], "complete"))
		return complete_command(argc - 1, argv + 1);
	if (!strcmp(argv[0], "topo"))
		return topo_command(argc, argv, weft_json);
	if (!strcmp(argv[0], "backup") || !strcmp(argv[0], "restore") ||
	    !strcmp(argv[0], "export-meta") || !strcmp(argv[0], "import-meta"))
		return cmd_backup(argv[0], argc - 1, argv + 1);
	if (strcmp(argv[0], "fsck"))
		return -1;
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--online"))
			return cmd_fsck_online(argc - 1, argv + 1);
	return cmd_fsck(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	char wrong[400];
	int rc;

	weft_locale();
	weft_admin = getenv("WEFT_ADMIN");
	if (!weft_admin || !*weft_admin)
		weft_admin = ADMIN_DEFAULT;
	/* Options may stand anywhere, but options behind the commands that are other programs
	 * belong to these: ours end at their name. */
	parse_options(argc, argv, "+");
	if (optind < argc && !help) {
		rc = weft_other_program(argc - optind, argv + optind);
		if (rc >= 0)
			return rc;
	}
	if (optind < argc) {
		meant = command_meant(argc - optind, argv + optind);
		meant_noun = command_noun(argv[optind]) ? argv[optind] : NULL;
		weft_gather(argv[optind]);
	}
	parse_options(argc, argv, "");
	argc -= optind;
	argv += optind;
	if (argc && !strcmp(argv[0], "help")) {
		meant = NULL;
		meant_noun = NULL;
		return weft_help(argc - 1, argv + 1);
	}
	if (help)
		return weft_help(argc, argv);
	if (http_addr_wrong(weft_admin)) {
		snprintf(wrong, sizeof(wrong), "%s \"%.200s\": %s",
			 weft_admin == getenv("WEFT_ADMIN") ? "WEFT_ADMIN" : "--admin", weft_admin,
			 http_addr_wrong(weft_admin));
		return weft_usage_error(wrong);
	}
	if (!argc)
		return weft_usage_error("no command was given");
	return weft_dispatch(argc, argv);
}
