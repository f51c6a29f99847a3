#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
kdc=$1
cp "$kdc/krb5.conf" /run/krb5.conf # where users can read it
chmod 644 /run/krb5.conf
export KRB5_CONFIG=/run/krb5.conf
WEFT_MOUNT=${WEFT_MOUNT/10.77.0.1/labhost}
mkdir -p /run/cc
chmod 1777 /run/cc
# USER COMMAND...: alice, bob, mallory (whom the server does not know), or a uid without a ticket
as() {
	local user=$1 uid gid groups
	shift
	case $user in
		alice) uid=3001 gid=3001 ;; bob) uid=3002 gid=3002 ;; mallory) uid=3003 gid=3003 \
			;; *) uid=$user gid=$user ;;
	esac
	KRB5CCNAME=FILE:/run/cc/krb5cc_$uid setpriv --reuid $uid --regid $gid --clear-groups "$@"
}
login() { as "$1" kinit "$1" <<<"$1" >/dev/null; }
flavour() { sed -n 's/.* \/mnt\/weft nfs4 .*sec=\([a-z0-9]*\).*/\1/p' /proc/mounts; }

# Before there is any Kerberos in the client.
mount_weft
same "without Kerberos in the client the mount is sec=sys" "$(flavour)" sys
mkdir -m 1777 $M/k
chown 3001:3100 $M/k
umount_weft

mount -t rpc_pipefs sunrpc /run/rpc_pipefs
rpc.gssd -k "$kdc/host-lab1.keytab" -p /run/rpc_pipefs -d /run/cc || not_ok "rpc.gssd starts"
for user in alice bob mallory; do login $user || not_ok "kinit $user"; done
head -c 5000000 /dev/urandom >/run/data
want=$(sha256sum </run/data)

for sec in krb5 krb5i krb5p; do
	mount_weft sec=$sec
	same "$sec: the mount has it" "$(flavour)" $sec
	check "$sec: alice writes" as alice cp /run/data $M/k/$sec
	check "$sec: alice makes it hers alone" as alice chmod 600 $M/k/$sec
	umount_weft
	mount_weft sec=$sec
	same "$sec: alice reads it cold" "$(as alice cat $M/k/$sec | sha256sum)" "$want"
	fails "$sec: bob does not" 'Permission denied' as bob cat $M/k/$sec
	same "$sec: owner and group have names" "$(stat -c %U:%G $M/k/$sec)" alice:alice
	same "$sec: so has a directory" "$(stat -c %U:%G $M/k)" alice:crew
	umount_weft
done

mount_weft sec=krb5p
check "mallory may make a file" as mallory touch $M/k/mallory
same "who the server does not know is nobody" "$(stat -c %U:%G $M/k/mallory)" nobody:nogroup
touch $M/k/root
same "and so is the client's root, with the machine's ticket" "$(stat -c %U:%G $M/k/root)" \
	nobody:nogroup
fails "who has no ticket is refused" 'Permission denied|Required key' as 4000 ls $M/k
check "alice gives her file to a group of hers, by name" as alice chgrp crew $M/k/krb5
same "and it has it" "$(stat -c %U:%G $M/k/krb5)" alice:crew
as alice chmod 660 $M/k/krb5
same "bob reads it as one of the group" "$(as bob cat $M/k/krb5 | sha256sum)" "$want"
fails "alice cannot give it to bob" 'not permitted' as alice chown bob $M/k/krb5
dd if=/dev/zero of=/run/big bs=1M count=24 status=none
check "24 MB through krb5p" as alice cp /run/big $M/k/big
check "compare equal" as alice cmp /run/big $M/k/big

# The MDS dies and loses all contexts; the mount stays, and what is open goes on.
(
	until [ -e /run/cc/writing ]; do sleep 0.05; done
	flag writing
	wait_flag restarted
	touch /run/cc/restarted
) &
as alice python3 - $M/k/open /run/cc <<'PY' || not_ok "writing through the restart"
import hashlib, os, sys, time
path, shared = sys.argv[1:]
with open(path, "wb") as f:
    for n in range(40):
        f.write(b"%06d\n" % n * 3000)
        f.flush()
        os.fsync(f.fileno())
        if n == 10:
            open(f"{shared}/writing", "w").close()
            end = time.monotonic() + 60
            while not os.path.exists(f"{shared}/restarted"):
                assert time.monotonic() < end
                time.sleep(0.05)
want = b"".join(b"%06d\n" % n * 3000 for n in range(40))
assert open(path, "rb").read() == want
PY
check "alice makes another file after it" as alice touch $M/k/after
same "with her name" "$(stat -c %U $M/k/after)" alice
umount_weft
mount_weft sec=krb5i
same "what was written through the restart is whole" "$(as alice cat $M/k/open | wc -c)" 840000
umount_weft
no_complaint
kill "$(pidof rpc.gssd)"
