# SPDX-License-Identifier: Apache-2.0
"""Rows of a metadata store whose server is stopped: read, and damaged on purpose, by liblmdb."""
import contextlib
import ctypes


class Val(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_void_p)]


def val(data):
    memory = ctypes.create_string_buffer(data, len(data))
    v = Val(len(data), ctypes.addressof(memory))
    v.memory = memory  # it lives as long as v
    return v


class Rows:
    def __init__(self, folder):
        self.lib = ctypes.CDLL("liblmdb.so.0")
        self.lib.mdb_strerror.restype = ctypes.c_char_p
        self.env, self.txn, self.dbi = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint()
        self.run("mdb_env_create", ctypes.byref(self.env))
        self.run("mdb_env_set_mapsize", self.env, ctypes.c_size_t(1 << 30))
        self.run("mdb_env_open", self.env, folder.encode(), 0, 0o600)
        self.run("mdb_txn_begin", self.env, None, 0, ctypes.byref(self.txn))
        self.run("mdb_dbi_open", self.txn, None, 0, ctypes.byref(self.dbi))

    def run(self, name, *args):
        rc = getattr(self.lib, name)(*args)
        if rc:
            raise OSError(f"{name}: {self.lib.mdb_strerror(rc).decode()}")

    def put(self, key, data):
        self.run("mdb_put", self.txn, self.dbi, ctypes.byref(val(key)), ctypes.byref(val(data)), 0)

    def delete(self, key):
        self.run("mdb_del", self.txn, self.dbi, ctypes.byref(val(key)), None)

    def all(self, prefix):
        """The rows whose keys begin so, in order."""
        cursor, found = ctypes.c_void_p(), []
        self.run("mdb_cursor_open", self.txn, self.dbi, ctypes.byref(cursor))
        key, data, how = val(prefix), Val(), 17  # MDB_SET_RANGE
        while self.lib.mdb_cursor_get(cursor, ctypes.byref(key), ctypes.byref(data), how) == 0:
            k, how = ctypes.string_at(key.data, key.size), 8  # MDB_NEXT
            if not k.startswith(prefix):
                break
            found.append((k, ctypes.string_at(data.data, data.size)))
        self.lib.mdb_cursor_close(cursor)
        return found


@contextlib.contextmanager
def rows_of(folder):
    """What is changed is committed at the end."""
    r = Rows(folder)
    yield r
    r.run("mdb_txn_commit", r.txn)
    r.lib.mdb_env_close(r.env)
