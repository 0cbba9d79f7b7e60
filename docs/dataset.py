#!/usr/bin/env python3
"""Fetches a dataset from a swath server.

A complete client of docs/protocol.md without libraries, written to be read: one connection, one
group after the other, every seal checked (by a BLAKE3 in plain Python, so this is slow).
"""
import argparse, hashlib, http.client, os, ssl, struct, sys, urllib.parse

GROUP, SEAL, PAGE, LARGE = 256 * 1024, 32, 4096, 1024 * 1024
IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
MIX = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
       (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))

def compress(value, block, counter, length, flags):
    m = list(struct.unpack("<16I", block.ljust(64, b"\0")))
    v = [*value, *IV[:4], counter & 0xFFFFFFFF, counter >> 32, length, flags]
    for _ in range(7):
        for i, (a, b, c, d) in enumerate(MIX):
            for x, turns in ((m[2 * i], (16, 12)), (m[2 * i + 1], (8, 7))):
                v[a] = (v[a] + v[b] + x) & 0xFFFFFFFF
                t = v[d] ^ v[a]
                v[d] = (t >> turns[0] | t << 32 - turns[0]) & 0xFFFFFFFF
                v[c] = (v[c] + v[d]) & 0xFFFFFFFF
                t = v[b] ^ v[c]
                v[b] = (t >> turns[1] | t << 32 - turns[1]) & 0xFFFFFFFF
        m = [m[i] for i in ORDER]
    return [v[i] ^ v[i + 8] for i in range(8)]

def tree(data, chunk, root):
    """BLAKE3's chaining value of a subtree whose first chunk has this number."""
    if len(data) <= 1024:
        value, blocks = IV, [data[i:i + 64] for i in range(0, len(data), 64)] or [b""]
        for i, block in enumerate(blocks):
            last = i == len(blocks) - 1
            flags = (i == 0) | last << 1 | (8 if root and last else 0)
            value = compress(value, block, chunk, len(block), flags)
        return value
    left = 1024 << ((len(data) - 1) // 1024).bit_length() - 1
    pair = tree(data[:left], chunk, False) + tree(data[left:], chunk + left // 1024, False)
    return compress(IV, struct.pack("<16I", *pair), 0, 64, 4 | (8 if root else 0))

def blake3(data, group=None):
    return struct.pack("<8I", *tree(data, (group or 0) * GROUP // 1024, group is None))

class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0
    def take(self, count):
        self.at += count
        return self.data[self.at - count:self.at]
    def number(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

def entries(data):
    """Kind, path, mode, seconds, start, extents, size or target and extended attributes of each entry."""
    c, folders, sets, start, seconds = Cursor(data), [], [], 0, 0
    modes = {1: 0o644, 2: 0o755, 3: 0o777, 4: 0, 5: 0}
    assert c.take(9) == b"swathidx\1", "not an index"
    while head := c.take(1)[0]:
        kind, leaves, name = head & 7, c.number(), c.take(c.number())
        del folders[len(folders) - leaves:]
        if head & 8:
            modes[kind] = c.number()
        if kind < 4:
            seconds += (lambda z: z >> 1 ^ -(z & 1))(c.number())
            c.number()
        extents, rest = [], None
        if kind == 1:
            rest = c.number()
            extents = [(0, rest)]
            if head & 16:
                end, extents = 0, []
                for _ in range(c.number()):
                    gap, length = c.number(), c.number()
                    extents.append((end + gap, length))
                    end += gap + length
            length = sum(e[1] for e in extents)
            start += -start % PAGE if length >= LARGE else 0
        elif kind > 2:
            rest = c.take(c.number()) if kind == 3 else c.number() if kind == 4 else c.take(1)
        chosen = c.number() if head & 32 else 0
        if chosen > len(sets):
            sets.append([(c.take(c.number()), c.take(c.number())) for _ in range(c.number())])
        xattrs = sets[chosen - 1] if chosen else []
        yield kind, b"/".join([*folders, name]), modes[kind], seconds, start, extents, rest, xattrs
        start += length if kind == 1 else 0
        folders += [name] if kind == 2 else []
    before = c.at - 1
    c.number(), c.number()
    assert c.take(32) == blake3(data[:before]), "the index was damaged"

class Pinned(http.client.HTTPSConnection):
    """Whatever certificate is shown, it has to have this fingerprint, if there is one."""
    fingerprint = None
    def connect(self):
        super().connect()
        shown = "sha-256:" + hashlib.sha256(self.sock.getpeercert(True)).hexdigest()
        if self.fingerprint not in (None, shown):
            sys.exit(f"the server shows another certificate: {shown}")

def connection(url, fingerprint, insecure):
    if url.scheme == "http":
        return http.client.HTTPConnection(url.netloc)
    context = ssl.create_default_context()
    if fingerprint or insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    server = Pinned(url.netloc, context=context)
    server.fingerprint = fingerprint
    return server

def main(url, target, token, fingerprint, insecure):
    url, target = urllib.parse.urlsplit(url), os.fsencode(target)
    server = connection(url, fingerprint, insecure)
    def get(query, **headers):
        if token:
            headers["Authorization"] = "Bearer " + token
        server.request("GET", f"{url.path}?swath={query}", headers=headers)
        answer = server.getresponse()
        assert answer.status in (200, 206), (answer.status, answer.read())
        return answer.headers, answer.read()
    headers, index = get("index&xattr=yes")
    group, data = None, b""
    table = list(entries(index))
    for number, (kind, path, mode, seconds, start, extents, rest, xattrs) in enumerate(table):
        path = os.path.join(target, path)
        if kind == 2:
            os.makedirs(path, exist_ok=True)
        elif kind == 3:
            os.symlink(rest, path)
        elif kind == 4:
            os.link(os.path.join(target, table[number - rest][1]), path)
        elif kind == 5:
            print("left out:", path, file=sys.stderr)
        else:
            with open(path, "wb") as file:
                for offset, length in extents:
                    file.seek(offset)
                    while length:
                        if start // GROUP != group:
                            group = start // GROUP
                            first = group * (GROUP + SEAL)
                            _, sealed = get("sealed&walk=" + headers["Swath-Walk"], Range=f"bytes={first}-{first + GROUP + SEAL - 1}")
                            data, seal = sealed[:-SEAL], sealed[-SEAL:]
                            if changed := seal == bytes(255 - byte for byte in blake3(data, group)):
                                print("some file changed at its source, near", path, file=sys.stderr)
                            assert changed or seal == blake3(data, group), "damaged on its way"
                        part = data[start % GROUP:][:length]
                        file.write(part)
                        start, length = start + len(part), length - len(part)
                file.truncate(rest)
        try:
            for name, value in xattrs:
                os.setxattr(path, b"user." + name, value)
        except OSError as error:
            print("without its extended attributes:", path, error, file=sys.stderr)
        if kind == 1:
            os.chmod(path, mode)
            os.utime(path, (seconds, seconds))

if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("url", help="http://host:port/folder/ or https://…")
    words.add_argument("target", help="a new folder")
    words.add_argument("token", nargs="?")
    words.add_argument("--fingerprint", help="of the server's certificate: sha-256:HEX")
    words.add_argument("--insecure", action="store_true", help="take any certificate")
    asked = vars(words.parse_args())
    os.makedirs(asked["target"], exist_ok=True)
    main(**asked)
