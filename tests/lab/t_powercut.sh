# SPDX-License-Identifier: Apache-2.0
# A machine with the metadata server loses power, again and again. It loses what its file system had
# not synced, and everything acknowledged is there.
guest -t 280 1 powercut.sh "$WEFT_BUILD"
