/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf_keys.c - every key there is. tests/unit/keys.sh compares the man pages' names and defaults
 * with this table.
 *
 * One table for both daemons, because one weft.conf may be for both (weft-dev makes such a file):
 * each daemon has to tell the other's keys from misspelt ones, and so to know their names.
 */
#include "base/conf.h"

/* clang-format off */
const struct conf_key conf_keys[] = {
	{ "mds.listen", CONF_STR, "127.0.0.1:12049", NULL,
	  "Addresses to serve NFS on, comma separated." },
	{ "mds.rdma", CONF_STR, "", NULL,
	  "Addresses to serve NFS over RDMA on, comma separated, port 20049 where none is "
	  "given; empty: no RDMA." },
	{ "mds.store", CONF_STR, "", NULL, "Directory of the metadata store." },
	{ "mds.admin", CONF_STR, "", NULL,
	  "Addresses of the administration and metrics server: unix:/path, 127.0.0.1:port, "
	  "https://ADDRESS:port, or several of them." },
	{ "mds.admin_group", CONF_STR, "weft", NULL,
	  "Group whose members administer the server by its Unix socket, as root and the "
	  "server's own user do; others that may connect there only look." },
	{ "mds.admin_certs", CONF_STR, "", NULL,
	  "Roles of client certificates on https://: read, operate or admin, and a name in the "
	  "certificate, comma separated." },
	{ "mds.admin_token", CONF_STR, "", NULL,
	  "File with a token that has the role admin; the server knows those of weft token "
	  "create as well." },
	{ "mds.console", CONF_STR, "", NULL,
	  "Folder of the console that browsers get at /console/; empty: the one that was "
	  "installed; off: none." },
	{ "mds.console_login", CONF_SECONDS, "43200s", "1s..604800s",
	  "How long a login to the console lasts." },
	{ "mds.metrics", CONF_STR, "", NULL,
	  "Addresses for monitoring, read only: address:port, any address, comma separated; "
	  "empty: none." },
	{ "mds.exports", CONF_STR, "", NULL,
	  "Exports file; empty: this machine alone may use the server, its root as user nobody." },
	{ "mds.groups", CONF_ENUM, "client", "client|server",
	  "Whose word counts on the groups of a user: the client's, at most 16 with AUTH_SYS, "
	  "or this machine's." },
	{ "mds.names_keep", CONF_SECONDS, "600s", "1s..86400s",
	  "How long what was looked up of groups, hosts and netgroups is kept." },
	{ "mds.connections", CONF_INT, "65536", "1..1000000",
	  "Most connections, of clients and data servers." },
	{ "mds.connections_of_address", CONF_INT, "16384", "1..1000000",
	  "Most connections of one address, or one IPv6 network of 64 bits." },
	{ "mds.record_time", CONF_SECONDS, "60s", "100ms..3600s",
	  "A request that has begun to come ends within this time, or its connection does." },
	{ "mds.clients", CONF_INT, "65536", "1..10000000", "Most clients with a client id." },
	{ "mds.clients_of_address", CONF_INT, "16384", "1..10000000",
	  "Most clients of one address, or one IPv6 network of 64 bits." },
	{ "mds.opens_of_client", CONF_INT, "262144", "1..10000000", "Most opens of one client." },
	{ "mds.opens_of_address", CONF_INT, "524288", "1..100000000",
	  "Most opens of all clients of one address, or one IPv6 network of 64 bits." },
	{ "mds.opens", CONF_INT, "2097152", "1..100000000", "Most opens of all clients." },
	{ "mds.locks_of_client", CONF_INT, "16384", "1..1000000",
	  "Most locked ranges of one client." },
	{ "mds.locks_of_address", CONF_INT, "65536", "1..100000000",
	  "Most locked ranges of all clients of one address, or one IPv6 network of 64 bits." },
	{ "mds.locks", CONF_INT, "1048576", "1..100000000", "Most locked ranges of all clients." },
	{ "mds.layouts_of_client", CONF_INT, "262144", "1..10000000",
	  "Most layouts of one client; then its data goes through the metadata server." },
	{ "mds.layouts_of_address", CONF_INT, "524288", "1..100000000",
	  "Most layouts of all clients of one address, or one IPv6 network of 64 bits." },
	{ "mds.layouts", CONF_INT, "2097152", "1..100000000", "Most layouts of all clients." },
	{ "mds.calls_of_address", CONF_INT, "1024", "16..1000000",
	  "Most requests in hand of one address, on each thread." },
	{ "mds.rate_of_address", CONF_INT, "0", "0..100000000",
	  "Requests a second of one address, on each thread; 0: no limit." },
	{ "mds.pool", CONF_SIZE, "32M", "0..1T",
	  "Memory for payload, taken at start; what does not fit goes through ordinary memory." },
	{ "mds.threads", CONF_INT, "1", "1..64", "Threads that serve clients." },
	{ "mds.lease", CONF_SECONDS, "30s", "1s..3600s", "Lease of clients." },
	{ "mds.grace", CONF_SECONDS, "45s", "0s..3600s",
	  "Longest time for clients to reclaim after a restart." },
	{ "mds.courtesy", CONF_SECONDS, "3600s", "0s..86400s",
	  "How long a client whose lease has run out keeps its state while no other client is "
	  "in conflict with it." },
	{ "mds.reply_cache", CONF_SIZE, "256M", "1M..1T",
	  "Memory for replies that are kept for retries; when it is short, sessions get fewer "
	  "slots." },
	{ "mds.recall_deadline", CONF_SECONDS, "15s", "100ms..3600s",
	  "Time a client has to return what is recalled before it is fenced." },
	{ "mds.return_on_close", CONF_BOOL, "true", NULL,
	  "Ask clients to return layouts when they close a file, in the same request." },
	{ "mds.atime", CONF_ENUM, "relative", "off|relative",
	  "Access times: not touched by reading, or set as Linux's relatime sets them." },
	{ "mds.delegations", CONF_ENUM, "write", "none|read|write",
	  "The most that clients are given: no delegations, those for reading, or those for "
	  "writing as well." },
	{ "mds.delegations_max", CONF_INT, "1000000", "0..100000000",
	  "Delegations that may be out; clients are asked to give some back when three quarters "
	  "are." },
	{ "mds.delegated_times", CONF_BOOL, "false", NULL,
	  "Let holders of delegations keep a file's times (RFC 9754)." },
	{ "mds.threshold", CONF_SIZE, "0", "0..1T",
	  "Ask clients to read and write files below this size through the metadata server; 0: "
	  "no file. A directory's policy may say another size." },
	{ "mds.striping_clients", CONF_STR, "", NULL,
	  "More clients that may have striped layouts: the beginnings of the implementation "
	  "names that they send, comma separated." },
	{ "mds.size_from_ds", CONF_ENUM, "layout", "always|layout|never",
	  "When GETATTR asks the data servers: always, while a write layout is out, or never." },
	{ "mds.repair_files", CONF_INT, "4", "0..64",
	  "Files that are repaired at a time; 0: none is." },
	{ "mds.repair_rate", CONF_SIZE, "256M", "0..1T",
	  "Bytes a second that repairs may read, all together; 0: no limit." },
	{ "mds.repair_wait", CONF_SECONDS, "60s", "0s..86400s",
	  "How long a data server may be away before its objects are made again on others." },
	{ "mds.near_full", CONF_INT, "85", "1..100",
	  "Percent of its space from which a data server, or the metadata store, counts as "
	  "nearly full (weft health)." },
	{ "mds.full", CONF_INT, "95", "1..100",
	  "Percent of its space from which it counts as full." },
	{ "mds.orders_late", CONF_SECONDS, "300s", "1s..86400s",
	  "Orders that have waited for a data server for so long are late (weft health)." },
	{ "mds.backup_age", CONF_SECONDS, "0s", "0s..31536000s",
	  "How old the last backup may be (weft health); 0s: it is not looked at." },
	{ "mds.backup_log", CONF_SIZE, "0", "0..1T",
	  "How much of its log the server keeps for incremental backups; 0: none." },
	{ "mds.io_error_after", CONF_SECONDS, "0s", "0s..31536000s",
	  "Data whose copies are all on data servers that have been away for so long gives I/O "
	  "errors; 0s: it is waited for." },
	{ "mds.balance_again", CONF_SECONDS, "86400s", "0s..31536000s",
	  "For how long weft balance leaves a file alone that it has moved." },
	{ "mds.scrub_delay", CONF_SECONDS, "60s", "0s..86400s",
	  "An object that is no file's is looked at again after so long, before it is removed." },
	{ "mds.near", CONF_STR, "", NULL,
	  "Networks of clients, and labels of the data servers that are near them: NETWORK "
	  "LABELS, comma separated." },
	{ "mds.near_factor", CONF_INT, "16", "1..1000",
	  "How many times its weight a near data server counts when it is chosen which copy a "
	  "client reads." },
	{ "mds.admit", CONF_ENUM, "auto", "auto|manual",
	  "A data server that has the cluster key, and was never here, may join: at once, or "
	  "when it is admitted." },
	{ "mds.ds_suspect", CONF_SECONDS, "2s", "100ms..3600s",
	  "Without a heartbeat for so long a data server is asked whether it lives." },
	{ "mds.ds_refused", CONF_SECONDS, "1s", "0s..3600s",
	  "A data server whose connection is lost, and whose port refuses, is declared dead "
	  "after this time." },
	{ "mds.ds_dead", CONF_SECONDS, "5s", "500ms..3600s",
	  "A data server that answers nothing is declared dead after this time." },
	{ "mds.generic_pool", CONF_INT, "256", "2..1024",
	  "Files that are made ahead on each generic data server." },
	{ "mds.ds_unreached", CONF_SECONDS, "2m", "0s..86400s",
	  "A client that does not reach a data server which we reach writes its files there "
	  "through us for this time." },
	{ "mds.user", CONF_STR, "", NULL,
	  "User that the daemon becomes when root has started it; empty: it stays who it is." },
	{ "mds.sync", CONF_BOOL, "true", NULL,
	  "Make every commit durable before it is answered; false loses acknowledged changes in "
	  "a crash." },
	{ "mds.log", CONF_STR, "", NULL,
	  "Where the store's log is: postgresql: and a connection string; empty: in files in "
	  "mds.store." },
	{ "mds.log_lease", CONF_SECONDS, "1500ms", "500ms..60s",
	  "How long a standby sees no sign of the server before it takes over; with mds.log." },
	{ "mds.log_lease_in", CONF_STR, "", NULL,
	  "Where the lease is: etcd: and endpoints, comma separated; empty: in PostgreSQL, as the "
	  "log." },
	{ "mds.etcd_ca", CONF_STR, "", NULL,
	  "PEM file of the authorities of etcd's certificates; empty: the system's." },
	{ "mds.etcd_cert", CONF_STR, "", NULL, "PEM file of the certificate that etcd asks for." },
	{ "mds.etcd_key", CONF_STR, "", NULL, "PEM file of the key of mds.etcd_cert." },
	{ "mds.etcd_user", CONF_STR, "", NULL, "User of etcd; empty: it asks for none." },
	{ "mds.etcd_password", CONF_STR, "", NULL,
	  "File whose first line is the password of mds.etcd_user." },
	{ "mds.log_rank", CONF_SECONDS, "0s", "0s..60s",
	  "A standby waits so much longer than mds.log_lease: of several, each another time." },
	{ "mds.node", CONF_STR, "", NULL,
	  "Name of this machine among the nodes of an instance; with mds.log. Empty: its host "
	  "name." },
	{ "mds.log_copies", CONF_INT, "2", "1..2",
	  "With mds.log: 2: a change is answered when a synchronous standby of PostgreSQL has it "
	  "too; 1: when PostgreSQL has it." },
	{ "mds.addresses", CONF_STR, "", NULL,
	  "Service addresses that move with this server, comma separated; weft-addr holds them. "
	  "Empty: none." },
	{ "mds.addr_socket", CONF_STR, "/run/weft-addr/socket", NULL,
	  "Unix socket of weft-addr, for mds.addresses." },
	{ "mds.cluster_key", CONF_STR, "", NULL, "File that holds the cluster key." },
	{ "mds.fs", CONF_INT, "0", "0..65535",
	  "Number of the file system in its cluster, for a new store; 0: 1, or what the store "
	  "has." },
	{ "mds.cluster", CONF_STR, "", NULL,
	  "Uuid of the cluster that a new store becomes part of; empty: a new cluster." },
	{ "mds.instances", CONF_STR, "", NULL,
	  "Addresses of other metadata servers of the cluster, comma separated; this one tells its "
	  "data servers, which join them too." },
	{ "mds.tls", CONF_ENUM, "off", "off|optional|required|mutual",
	  "RPC-with-TLS: not offered, offered, demanded, or demanded with a client certificate." },
	{ "mds.tls_cert", CONF_STR, "", NULL,
	  "PEM file of the server's certificate and those between it and its authority." },
	{ "mds.tls_key", CONF_STR, "", NULL, "PEM file of the certificate's private key." },
	{ "mds.tls_ca", CONF_STR, "", NULL,
	  "PEM file of the authorities that vouch for clients; empty: clients are not asked for "
	  "certificates." },
	{ "mds.keytab", CONF_STR, "", NULL,
	  "Key table with the keys of nfs/HOST, for Kerberos 5; empty: no Kerberos." },
	{ "mds.gss_contexts", CONF_INT, "16384", "16..1000000",
	  "Kerberos contexts kept at most; the least recently used one makes room." },
	{ "mds.gss_contexts_of_address", CONF_INT, "4096", "1..1000000",
	  "Of those, the most that one address, or one IPv6 network of 64 bits, may have made." },
	{ "mds.gss_contexts_of_principal", CONF_INT, "0", "0..1000000",
	  "And the most of one principal; 0: as many as in all." },
	{ "mds.idmap_domain", CONF_STR, "", NULL,
	  "Domain of users' and groups' names with Kerberos; empty: what /etc/idmapd.conf says." },
	{ "ds.listen", CONF_STR, "127.0.0.1:12050", NULL,
	  "Addresses to serve NFSv3 on, comma separated." },
	{ "ds.rdma", CONF_STR, "", NULL,
	  "Addresses to serve NFSv3 over RDMA on, comma separated, port 20049 where none is "
	  "given; empty: no RDMA." },
	{ "ds.advertise", CONF_STR, "", NULL,
	  "Addresses that clients get for this server, comma separated; empty: those of "
	  "ds.listen." },
	{ "ds.store", CONF_STR, "", NULL,
	  "Directories of the data store, comma separated; the first is its home." },
	{ "ds.name", CONF_STR, "", NULL, "Name shown to administrators; empty: the host's." },
	{ "ds.labels", CONF_STR, "", NULL,
	  "Labels that this server reports to the metadata server, such as rack=r1,speed=nvme; "
	  "those the administrator has set there count more." },
	{ "ds.admin", CONF_STR, "", NULL,
	  "Addresses of the health and metrics server: unix:/path, 127.0.0.1:port, or both." },
	{ "ds.admin_group", CONF_STR, "weft", NULL,
	  "Group whose members have the role admin on that Unix socket, as root and the "
	  "server's own user have; others that may connect there only look." },
	{ "ds.metrics", CONF_STR, "", NULL,
	  "Addresses for monitoring, read only: address:port, any address, comma separated; "
	  "empty: none." },
	{ "ds.connections", CONF_INT, "65536", "1..1000000", "Most connections." },
	{ "ds.connections_of_address", CONF_INT, "16384", "1..1000000",
	  "Most connections of one address, or one IPv6 network of 64 bits." },
	{ "ds.record_time", CONF_SECONDS, "60s", "100ms..3600s",
	  "A request that has begun to come ends within this time, or its connection does." },
	{ "ds.mds", CONF_STR, "127.0.0.1:12049", NULL,
	  "Addresses of the metadata servers of the cluster, comma separated." },
	{ "ds.reserve", CONF_SIZE, "16M", "1M..1G",
	  "Room on the store's first file system that is kept for the store itself, and given up "
	  "when the disk is full." },
	{ "ds.pool", CONF_SIZE, "256M", "0..1T",
	  "Memory for payload, taken at start; what does not fit goes through ordinary memory." },
	{ "ds.iopoll", CONF_BOOL, "false", NULL,
	  "Poll the drives for the end of direct reads and writes, where they have queues for "
	  "that." },
	{ "ds.zerocopy", CONF_ENUM, "auto", "auto|yes|no",
	  "Send what is read without a copy into the socket: where the device can, always, or "
	  "never." },
	{ "ds.threads", CONF_INT, "1", "1..64", "Threads that serve clients." },
	{ "ds.placement", CONF_ENUM, "auto", "auto|off",
	  "Bind threads and memory to NUMA nodes near the stores' drives and the network cards, "
	  "or let the kernel place them." },
	{ "ds.cpus", CONF_STR, "", NULL,
	  "Processors that the daemon may use, as in 0-7,16-23; empty: all that it was started "
	  "with." },
	{ "ds.order", CONF_ENUM, "topology", "topology|config",
	  "Order in which clients get the addresses: those that suit the stores' drives best "
	  "first, or as configured." },
	{ "ds.disks", CONF_STR, "", NULL,
	  "Block devices of the stores where their folders do not show them, one for each, "
	  "comma separated." },
	{ "ds.topology", CONF_STR, "", NULL,
	  "Recorded machine, or folder like /sys, to place by; empty: this machine." },
	{ "ds.key", CONF_STR, "", NULL,
	  "File that holds the keys of this data server (weft ds key makes it); empty: those in "
	  "its store, or the cluster key." },
	{ "ds.cluster_key", CONF_STR, "", NULL, "File that holds the cluster key." },
	{ "ds.user", CONF_STR, "", NULL,
	  "User that the daemon becomes when root has started it; empty: it stays who it is." },
	{ "ds.eof_wait", CONF_SECONDS, "20s", "1s..60s",
	  "How long a READ waits for the metadata server to say where its striped file ends; "
	  "then the client is asked to try again." },
	{ "ds.lease", CONF_SECONDS, "30s", "1s..3600s",
	  "How long grants are honoured without word from the metadata server." },
	{ "ds.heartbeat", CONF_SECONDS, "1s", "100ms..60s",
	  "Time between two reports to the metadata server." },
	{ "ds.exports", CONF_STR, "", NULL,
	  "File that says which folders of this machine are served by path, to whom; empty: "
	  "none." },
	{ "ds.export_threads", CONF_INT, "16", "1..256",
	  "Threads that do calls on exported folders." },
	{ "ds.export_replies", CONF_SIZE, "16M", "64K..1G",
	  "Memory for replies that are kept for retransmitted calls on exported folders." },
	{ "ds.rpcbind", CONF_BOOL, "false", NULL,
	  "Register NFS and MOUNT with the rpcbind of this machine." },
	{ "ds.tls", CONF_ENUM, "off", "off|optional|required|mutual",
	  "RPC-with-TLS: not offered, offered, demanded, or demanded with a client certificate." },
	{ "ds.tls_cert", CONF_STR, "", NULL,
	  "PEM file of the server's certificate and those between it and its authority." },
	{ "ds.tls_key", CONF_STR, "", NULL, "PEM file of the certificate's private key." },
	{ "ds.tls_ca", CONF_STR, "", NULL,
	  "PEM file of the authorities that vouch for clients; empty: clients are not asked for "
	  "certificates." },
	{ "rdma.credits", CONF_INT, "128", "1..1024",
	  "Calls under way on one RDMA connection, at most." },
	{ "rdma.receives", CONF_INT, "32768", "256..65536",
	  "Receives of all RDMA connections of one thread and device, shared or not, at most." },
	{ "rdma.connections_of_address", CONF_INT, "256", "1..65536",
	  "Most RDMA connections of one address, or one IPv6 network of 64 bits." },
	{ "rdma.srq", CONF_BOOL, "true", NULL,
	  "Let the RDMA connections of a thread share their receives, where the device can." },
	{ "rdma.quiet", CONF_SECONDS, "30s", "100ms..3600s",
	  "An RDMA peer that was not heard of for so long is tried; one that takes nothing for "
	  "so long is cut off." },
	{ "rdma.poll", CONF_INT, "20", "0..10000",
	  "Microseconds that a thread may wait busily for the next RDMA completion while they "
	  "come thick and fast; 0: never." },
	{ "log.level", CONF_ENUM, "info", "error|warn|info|debug",
	  "The least important messages that are written." },
	{ "log.trace", CONF_INT, "16384", "0..1048576",
	  "Events that each thread keeps for weft trace, rounded up to a power of two; 0: none." },
};
/* clang-format on */
const size_t conf_nkeys = sizeof conf_keys / sizeof conf_keys[0];
