"""BLAKE3 in plain Python, and the values of groups of 256 KiB within a larger file: to be read."""
import struct

GROUP = 256 * 1024
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
    """The hash of some bytes; with a number the chaining value of the group that has it."""
    return struct.pack("<8I", *tree(data, (group or 0) * GROUP // 1024, group is None))
