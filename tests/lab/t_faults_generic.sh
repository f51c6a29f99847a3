# SPDX-License-Identifier: Apache-2.0
# t_faults, with files on generic data servers (docs/generic.md): nfs-ganesha where that is
# installed, else folders of weft-ds. WEFT_KIND says another. What differs with the kind: servers
# that are killed, cut off from the metadata server, and full. WEFT_FAULTS='*': all faults.
WEFT_KIND=${WEFT_KIND:-foreign}
WEFT_FAULTS=${WEFT_FAULTS:-g1 is killed|g3 and the MDS are cut (both)|g4 is full}
. "$LAB_HERE/t_faults.sh"
