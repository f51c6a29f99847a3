/* conf_keys.c - every key there is. docs' man page is checked against this table. */
#include "base/conf.h"

/* clang-format off */
const struct conf_key conf_keys[] = {
	{ "mds.listen", CONF_STR, "127.0.0.1:12049", NULL, "Addresses to serve NFS on, comma separated." },
	{ "mds.store", CONF_STR, "", NULL, "Directory of the metadata store." },
	{ "mds.admin", CONF_STR, "", NULL, "Address of the administration and metrics server: unix:/path or 127.0.0.1:port." },
	{ "mds.threads", CONF_INT, "1", "1..64", "Threads that serve clients." },
	{ "mds.lease", CONF_SECONDS, "30s", "1s..3600s", "Lease of clients." },
	{ "mds.grace", CONF_SECONDS, "45s", "0s..3600s", "Longest time for clients to reclaim after a restart." },
	{ "mds.courtesy", CONF_SECONDS, "3600s", "0s..86400s", "How long a client whose lease has run out keeps its state while nobody is in conflict with it." },
	{ "mds.reply_cache", CONF_SIZE, "256M", "1M..1T", "Memory for replies that are kept for retries; when it is short, sessions get fewer slots." },
	{ "mds.recall_deadline", CONF_SECONDS, "15s", "100ms..3600s", "Time a client has to return what is recalled before it is fenced." },
	{ "mds.return_on_close", CONF_BOOL, "false", NULL, "Ask clients to return layouts when they close a file." },
	{ "mds.delegations", CONF_ENUM, "write", "none|read|write", "The most that clients are given: no delegations, those for reading, or those for writing as well." },
	{ "mds.delegations_max", CONF_INT, "1000000", "0..100000000", "Delegations that may be out; clients are asked to give some back when three quarters are." },
	{ "mds.delegated_times", CONF_BOOL, "false", NULL, "Let holders of delegations keep a file's times (RFC 9754)." },
	{ "mds.size_from_ds", CONF_ENUM, "layout", "always|layout|never", "When GETATTR asks the data servers: always, while a write layout is out, or never." },
	{ "mds.sync", CONF_BOOL, "true", NULL, "Make every commit durable before it is answered; false loses acknowledged changes in a crash." },
	{ "mds.cluster_key", CONF_STR, "", NULL, "File that holds the cluster key." },
	{ "mds.tls", CONF_ENUM, "off", "off|optional|required|mutual", "RPC-with-TLS: not offered, offered, demanded, or demanded with a client certificate." },
	{ "mds.tls_cert", CONF_STR, "", NULL, "PEM file of the server's certificate and those between it and its authority." },
	{ "mds.tls_key", CONF_STR, "", NULL, "PEM file of the certificate's private key." },
	{ "mds.tls_ca", CONF_STR, "", NULL, "PEM file of the authorities that vouch for clients; empty: clients are not asked for certificates." },
	{ "ds.listen", CONF_STR, "127.0.0.1:12050", NULL, "Addresses to serve NFSv3 on, comma separated." },
	{ "ds.advertise", CONF_STR, "", NULL, "Addresses told to clients, comma separated; empty: those of ds.listen." },
	{ "ds.store", CONF_STR, "", NULL, "Directory of the data store." },
	{ "ds.name", CONF_STR, "", NULL, "Name shown to administrators; empty: the host's." },
	{ "ds.admin", CONF_STR, "", NULL, "Address of the administration and metrics server: unix:/path or 127.0.0.1:port." },
	{ "ds.mds", CONF_STR, "127.0.0.1:12049", NULL, "Address of the metadata server." },
	{ "ds.threads", CONF_INT, "1", "1..64", "Threads that serve clients." },
	{ "ds.cluster_key", CONF_STR, "", NULL, "File that holds the cluster key." },
	{ "ds.lease", CONF_SECONDS, "30s", "1s..3600s", "How long grants are honoured without word from the metadata server." },
	{ "ds.heartbeat", CONF_SECONDS, "1s", "100ms..60s", "Time between two reports to the metadata server." },
	{ "ds.tls", CONF_ENUM, "off", "off|optional|required|mutual", "RPC-with-TLS: not offered, offered, demanded, or demanded with a client certificate." },
	{ "ds.tls_cert", CONF_STR, "", NULL, "PEM file of the server's certificate and those between it and its authority." },
	{ "ds.tls_key", CONF_STR, "", NULL, "PEM file of the certificate's private key." },
	{ "ds.tls_ca", CONF_STR, "", NULL, "PEM file of the authorities that vouch for clients; empty: clients are not asked for certificates." },
	{ "log.level", CONF_ENUM, "info", "error|warn|info|debug", "The least important messages that are written." },
};
/* clang-format on */
const size_t conf_nkeys = sizeof conf_keys / sizeof conf_keys[0];
