#!/usr/bin/env python3
"""Fetches a dataset from a swath server.

A complete client of docs/protocol.md without libraries, to be read (blake3_tree.py makes it slow).
"""
import argparse, hashlib, http.client, os, ssl, sys, urllib.parse

from blake3_tree import GROUP, blake3

SEAL, PAGE, LARGE = 32, 4096, 1024 * 1024

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
            if byte < 128: return value

def entries(data):
    """Kind, path, mode, nanoseconds, start, extents, size or target and extended attributes of each entry."""
    c, folders, sets, start, seconds, when = Cursor(data), [], [], 0, 0, 0
    modes = {1: 0o644, 2: 0o755, 3: 0o777, 4: 0, 5: 0}
    assert c.take(9) == b"swathidx\1", "not an index"
    while head := c.take(1)[0]:
        kind, leaves, name = head & 7, c.number(), c.take(c.number())
        del folders[len(folders) - leaves:]
        modes[kind] = c.number() if head & 8 else modes[kind]
        if kind < 4:
            seconds += (lambda z: z >> 1 ^ -(z & 1))(c.number())
            when = seconds * 10**9 + c.number()
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
        yield kind, b"/".join([*folders, name]), modes[kind], when, start, extents, rest, xattrs
        start += length if kind == 1 else 0
        folders += [name] if kind == 2 else []
    before = c.at - 1
    c.number(), c.number()
    assert c.take(32) == blake3(data[:before]), "the index was damaged"

def connection(url, fingerprint, insecure):
    if url.scheme == "http":
        return http.client.HTTPConnection(url.netloc)
    context = ssl.create_default_context()
    if fingerprint or insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    server = http.client.HTTPSConnection(url.netloc, context=context)
    server.connect()
    server.auto_open = False  # what was looked at is this connection
    shown = "sha-256:" + hashlib.sha256(server.sock.getpeercert(True)).hexdigest()
    if fingerprint not in (None, shown):
        sys.exit(f"the server shows another certificate: {shown}")
    return server

def main(url, target, token, fingerprint, insecure):
    url, target = urllib.parse.urlsplit(url), os.fsencode(target)
    server = connection(url, fingerprint, insecure)
    def get(query, **headers):
        headers |= {"Authorization": "Bearer " + token} if token else {}
        server.request("GET", f"{url.path}?swath={query}", headers=headers)
        answer = server.getresponse()
        assert answer.status in (200, 206), (answer.status, answer.read())
        return answer.headers, answer.read()
    headers, index = get("index&xattr=yes")
    group, data, table = None, b"", list(entries(index))
    for number, (kind, path, mode, when, start, extents, rest, xattrs) in enumerate(table):
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
                            group, first = start // GROUP, start // GROUP * (GROUP + SEAL)
                            _, sealed = get("sealed&walk=" + headers["Swath-Walk"],
                                            Range=f"bytes={first}-{first + GROUP + SEAL - 1}")
                            data, value = sealed[:-SEAL], blake3(sealed[:-SEAL], group)
                            if sealed[-SEAL:] == bytes(255 - byte for byte in value):
                                print("a file changed, near", path, file=sys.stderr)
                            elif sealed[-SEAL:] != value:
                                sys.exit("damaged on its way")
                        part = data[start % GROUP:][:length]
                        file.write(part)
                        start, length = start + len(part), length - len(part)
                file.truncate(rest)
                os.chmod(path, mode)
        try:
            for name, value in xattrs:
                os.setxattr(path, b"user." + name, value)
        except OSError as error:
            print("without its extended attributes:", path, error, file=sys.stderr)
        if kind in (1, 3):
            os.utime(path, ns=(when, when), follow_symlinks=False)
    for kind, path, mode, when, *_ in reversed(table):  # folders, once nothing comes into them
        if kind == 2:
            os.chmod(os.path.join(target, path), mode)
            os.utime(os.path.join(target, path), ns=(when, when))

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
