# SPDX-License-Identifier: Apache-2.0
# A data server that polls its drive for the end of direct reads and writes: one over NVMe/TCP whose
# host has a queue for that. Another one whose drive has none, and which says so.
guest -m 1G -t 90 1 iopoll.sh "$WEFT_BUILD"
