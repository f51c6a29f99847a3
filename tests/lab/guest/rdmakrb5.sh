#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rdmakrb5.sh BUILD KDC: a cluster in this guest with Kerberos, and its client.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/rdma_lib.sh"
BUILD=$1 kdc=$2
here=$(cd "$(dirname "$0")/.." && pwd)
export WEFT_BUILD=$BUILD CLUSTER=/run/c
mount -t tmpfs -o size=1000m tmpfs /run
mkdir -p /run/cc /run/rpc_pipefs
chmod 1777 /run/cc
cp "$kdc/krb5.conf" /run/krb5.conf # where users can read it
chmod 644 /run/krb5.conf
export KRB5_CONFIG=/run/krb5.conf
dev() { local command=$1; shift; python3 "$here/../../tools/weft-dev" "$command" $CLUSTER "$@"; }
metric() { "$WEFT_BUILD/tests/lab/metric" $CLUSTER "$@"; }
alice() {
	KRB5CCNAME=FILE:/run/cc/krb5cc_3001 setpriv --reuid 3001 --regid 3001 --clear-groups "$@"
}
# moved DIR BYTES: at least this much more than before went between the client's memory and the
# metadata server's.
moved() { [ $(($(metric mds weft_rdma_bytes_total "dir=$1") - ${before[$1]})) -ge "$2" ]; }
declare -A before
look() { for d in read write; do before[$d]=$(metric mds weft_rdma_bytes_total "dir=$d"); done; }
kmount() { # FLAVOUR
	WEFT_MOUNT="mount -t nfs4 -o vers=4.2,proto=rdma,port=20049,sec=$1 lab1:/"
	mount_weft
}

trap 'for d in mds ds1; do tail -5 $CLUSTER/log/$d.log | sed "s/^/# $d: /"; done' EXIT
rdma_up rxe
# rpc.gssd makes contexts over TCP, at the usual port.
dev up --ds 2 --addr "$LAB_SELF" --port 2049 --rdma 20049 --set mds.keytab="$kdc/nfs-lab1.keytab" \
	--set mds.idmap_domain=weft.test --set mds.lease=10s --set mds.grace=5s >/run/up.log 2>&1 ||
	{ not_ok "the cluster starts: $(tail -3 /run/up.log)"; exit 1; }
for i in {1..100}; do
	[ "$(grep -l 'NFS over RDMA at' $CLUSTER/log/*.log | wc -l)" != 3 ] || break
	sleep 0.1
done
mount -t rpc_pipefs sunrpc /run/rpc_pipefs
rpc.gssd -k "$kdc/host-lab1.keytab" -p /run/rpc_pipefs -d /run/cc || not_ok "rpc.gssd starts"
alice kinit alice <<<alice >/dev/null || not_ok "kinit alice"
head -c 5000000 /dev/urandom >/run/data
chmod 644 /run/data
want=$(cksum </run/data)

kmount sys
mkdir -m 1777 $M/k
umount_weft
for sec in krb5 krb5i krb5p; do
	kmount $sec
	same "$sec: the mount has it, and RDMA" \
		"$(sed -n 's/.* \/mnt\/weft nfs4 .*proto=\([a-z]*\),.*sec=\([a-z0-9]*\).*/\1 \2/p' \
		/proc/mounts)" "rdma $sec"
	check "$sec: alice writes" alice cp /run/data $M/k/$sec
	umount_weft
	kmount $sec
	same "$sec: alice reads it cold" "$(alice cat $M/k/$sec | cksum)" "$want"
	umount_weft
done

# Without layouts all of it comes to the metadata server.
sed -i 's/client "\*" {/& layouts = no /' $CLUSTER/exports
check "clients get no layouts any more" "$BUILD/weft" --admin "unix:$CLUSTER/run/mds.sock" exports \
	reload
for sec in krb5 krb5i krb5p; do
	look
	kmount $sec
	check "$sec: alice writes through the metadata server" alice cp /run/data $M/k/mds-$sec
	for n in $(seq 60); do
		echo "$M/k/$sec-a-file-with-a-rather-long-name-$(printf 'x%.0s' $(seq 80))-$n"
	done | xargs touch
	check "$sec: by RDMA Read" moved read 5000000
	umount_weft
	kmount $sec
	same "$sec: and reads it cold" "$(alice cat $M/k/mds-$sec | cksum)" "$want"
	check "$sec: by RDMA Write" moved write 5000000
	same "$sec: a long directory" "$(ls $M/k | grep -c "^$sec-a-file")" 60
	check "$sec: a long symbolic link" alice ln -s "$(printf 'x%.0s' $(seq 3000))" \
		$M/k/link-$sec
	umount_weft
	kmount $sec
	same "$sec: is read" "$(readlink $M/k/link-$sec | wc -c)" 3001
	umount_weft
done
same "no call was taken for a replay" "$(metric mds weft_rpc_gss_dropped_total)" 0
same "no call was refused for its chunks" "$(metric mds weft_rdma_chunk_errors_total)" 0
kill "$(pidof rpc.gssd)"
check "the daemons stop" timeout 20 python3 "$BUILD/tools/weft-dev" down $CLUSTER
grep -hE 'Sanitizer|runtime error|[Aa]ssert|FATAL' $CLUSTER/log/*.log | head -20 |
	sed 's/^/not ok - a daemon complains: /'
no_complaint
