# SPDX-License-Identifier: Apache-2.0
# A data server's store on an NVMe drive over fabrics with several paths, and one whose drive goes
# away for good. Target, host, daemons and client share a guest, for the target is the kernel's.
guest -m 1G -t 300 1 nvme.sh "$WEFT_BUILD"
