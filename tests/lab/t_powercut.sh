# SPDX-License-Identifier: Apache-2.0
# A machine with the metadata server loses power, again and again: what its file system had not been
# told to keep is gone, and everything acknowledged is there.
guest -t 280 1 powercut.sh "$WEFT_BUILD"
