# SPDX-License-Identifier: Apache-2.0
# t_drain, with files on generic data servers (docs/generic.md): nfs-ganesha where that is
# installed, else folders of weft-ds. WEFT_KIND says another.
WEFT_KIND=${WEFT_KIND:-foreign}
. "$LAB_HERE/t_drain.sh"
