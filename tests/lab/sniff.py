#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""sniff.py INTERFACE OUT - until it is ended: counts the packets on INTERFACE, and how often each
of the marks below was in them, into OUT."""
import os
import socket
import sys

MARKS = {b"weft-marks-the-clear-bytes-of-a-file": "clear",
         b"weft-marks-the-secret-bytes-of-a-file": "secret"}
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
sock.bind((sys.argv[1], 0))
counts = dict.fromkeys(MARKS.values(), 0)
packets = 0
while True:
    data = sock.recv(65536)
    packets += 1
    for mark, name in MARKS.items():
        counts[name] += data.count(mark)
    if packets % 64 == 0 or any(m in data for m in MARKS):
        with open(sys.argv[2] + ".new", "w", encoding="ascii") as f:
            f.write(f"{packets} {counts['clear']} {counts['secret']}\n")
        os.rename(sys.argv[2] + ".new", sys.argv[2])
