#!/usr/bin/env python3
"""Computes sealed packets again, from docs/sealed.md alone: a second implementation.

Reads packets.txt (R2P2), coalesced.txt (R2P2, several packets in a datagram), homa.txt (Homa), streams.txt (byte streams over that), resets.txt and homa-resets.txt (answers where a key is not there) beside it: `keys`, a server's keys with their lines joined by |, then packets as
`from to bytes`. Each must be genuine, and sealed again to the same bytes. Needs Python's cryptography
(Debian: python3-cryptography). Exits 1 where a packet is not what it should be.
"""

import pathlib
import sys

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

LABEL = b"tailcut sealed 1 "
REQUEST, RESPONSE, ACK, DROP, REPLY_ACK, CANCEL, PROBE, CLAIM = 0, 1, 3, 4, 12, 13, 14, 15
CLIENT_TO_SERVER = (REQUEST, REPLY_ACK, CANCEL)
HELD = 0x80
HOMA_DATA, HOMA_RESEND, HOMA_UNKNOWN = 0x10, 0x12, 0x13
NOBODY = bytes(8)


def expand(secret, length, *parts):
    return HKDFExpand(SHA256(), length, LABEL + b"".join(parts)).derive(secret)


def number(value, length):
    return value.to_bytes(length, "big")


def siphash24(key, message, is_wide=False):
    """SipHash-2-4 of Aumasson and Bernstein: 64 bits, or 128 as bytes."""
    mask = (1 << 64) - 1
    k0, k1 = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotate(word, by):
        return (word << by | word >> (64 - by)) & mask

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & mask
            v[1] = rotate(v[1], 13) ^ v[0]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & mask
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & mask
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & mask
            v[1] = rotate(v[1], 17) ^ v[2]
            v[2] = rotate(v[2], 32)

    v[1] ^= 0xEE if is_wide else 0
    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE if is_wide else 0xFF
    rounds(4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    if not is_wide:
        return first
    v[1] ^= 0xDD
    rounds(4)
    second = v[0] ^ v[1] ^ v[2] ^ v[3]
    return first.to_bytes(8, "little") + second.to_bytes(8, "little")


class Keys:
    def __init__(self, text):
        self.epochs, self.reset = {}, None
        for line in text.split("|"):
            words = line.split()
            if words[:1] == ["group"]:
                self.group = words[1].encode()
            elif words[:1] == ["cipher"]:
                aes = words[1] == "aes-128-gcm"
                self.key_len, self.aead = (16, AESGCM) if aes else (32, ChaCha20Poly1305)
            elif words[:1] == ["reset"]:
                self.reset = bytes.fromhex(words[1])
            elif words[:1] == ["key"]:
                self.epochs[int(words[1])] = bytes.fromhex(words[3])

    def route(self, epoch):
        return expand(self.epochs[epoch], 32, b"route\0", self.group)

    def router(self, epoch):
        return expand(self.route(epoch), 16, b"router\0", self.group)

    def hop(self, epoch, client):
        secret = expand(self.route(epoch), 16, b"hop\0", self.group)
        return siphash24(secret, number(client, 4), True)

    def client(self, epoch, client):
        return expand(self.epochs[epoch], 32, b"client\0", self.group, b"\0", number(client, 4))

    def request(self, epoch, client, session, began):
        secret = self.client(epoch, client)
        return expand(secret, self.key_len, b"request\0", number(session, 8), began)

    def reply(self, epoch, client, instance):
        return expand(self.client(epoch, client), self.key_len, b"reply\0", instance)

    def homa_request(self, epoch, client, session, began):
        secret = self.client(epoch, client)
        return expand(secret, self.key_len, b"homa request\0", number(session, 8), began)

    def homa_reply(self, epoch, client, instance):
        return expand(self.client(epoch, client), self.key_len, b"homa reply\0", instance)


def blanked(header):
    """What the sender has authenticated of a header: of one with a route block, not what routers write."""
    header = bytearray(header)
    if len(header) == 72:
        header[20] &= ~0x0E
        header[28:32] = bytes(4)
        header[46:48] = bytes(2)
        header[48:72] = bytes(24)
    return bytes(header)


def check_hop(packet, hop_key, receiver=NOBODY, sender=NOBODY):
    header_len = packet[1]
    if packet[21] != 3:
        covered = packet[:header_len] + packet[-32:-8] + receiver + sender
    else:
        covered = packet[:-8]
    return number(siphash24(hop_key, covered), 8) == packet[-8:]


def check_cookie():
    """The vectors of tailcut-proto's tests, by the pages of R2P2 and Homa alone."""
    period = 0
    told = siphash24(bytes(16 * [7]), b"cookie" + number(period, 8) + bytes([10, 0, 0, 1]) + number(33_000, 2))
    cookie = told & ~7 | (period % 4) * 2 + 1
    header = bytes.fromhex("cc4800c0000400010102030405060708000000050101000000000005000003e8") + bytes(8)
    packet = header + bytes.fromhex("0000000305640000") + bytes(24) + b"words"
    tag = siphash24(2 * number(cookie, 8), blanked(packet[:72]) + packet[72:]) & ~7 | cookie & 7
    assert (cookie, tag) == (0x2388E24C26CAC801, 0x52C86FDD3137C8F1)
    # DATA of a request, marked, and blank where the tag stands.
    common = bytes.fromhex("80000063 00000000 04 0000 10 e0 06 0000 0000 b97d 0102030405060708")
    packet = common + bytes.fromhex("00000005 00000005") + bytes(10) + bytes.fromhex("0001 00 80 0000 00000000") + b"words"
    tag = siphash24(2 * number(cookie, 8), packet) & ~7 | cookie & 7
    assert tag == 0xB7883C2B4FF5AFD9


def answer_of_r2p2(request, name):
    """What answers a request, but for its tag."""
    made = bytearray(73)
    made[:4] = bytes([0xCC, 48, DROP << 4 | 1, 0xC0])
    made[6:16] = request[6:16]
    made[21:24] = bytes([5]) + request[22:24]
    made[28:32] = request[24:28]
    made[48] = 12
    made[49:57] = name
    made[65:73] = request[-16:-8]
    return bytes(made)


def answer_of_homa(request, name):
    """The same of a packet of Homa."""
    made = bytearray(28)
    made[:4] = request[2:4] + request[:2]
    made[8:12] = bytes([3, 12, 0, HOMA_UNKNOWN])
    made[12:14], made[18:20] = bytes([0x50, 0x06]), bytes([0xB9, 0x7D])
    made[20:28] = number(int.from_bytes(request[20:28], "big") ^ 1, 8)
    return bytes(made) + name + request[-8:] + request[-16:-8]


def check_resets(file, make, name_at):
    """Requests, and what answers them where their epoch has no key: made anew from the request alone."""
    path = pathlib.Path(__file__).with_name(file)
    keys, request, count = None, None, 0
    for line in path.read_text().splitlines():
        words = line.split(" ")
        if words[0] == "keys":
            keys = Keys(line[5:])
        elif request is None:
            request, source, to = bytes.fromhex(words[2]), words[0], words[1]
        else:
            answer = bytes.fromhex(words[2])
            name = answer[name_at:name_at + 8]  # Who answers: drawn at its start.
            made = make(request, name)
            reset_key = siphash24(keys.reset, bytes(1) + request[-16:-13], True)
            made += number(siphash24(reset_key, made), 8)
            assert (words[0], words[1]) == (to, source) and made == answer, line
            assert len(answer) <= len(request) and name != bytes(8)
            request, count = None, count + 1
    assert count > 0
    return count


class Nodes:
    """What a reader of the packets has learned of who sends them."""

    def __init__(self):
        self.clients = {}  # Numbers of clients, by address.
        self.names = {}  # Names of servers and routers, by address.
        self.aliases = {}  # By which a server names a router, by both addresses.
        self.asked = {}  # Aliases of probes that name nobody, by both addresses.

    def check_names(self, source, to, kind, names):
        """Whether a packet between a router and a server names both as they are to be named."""
        sender, receiver = names[:8], names[8:]
        if kind == PROBE and receiver == NOBODY:
            self.asked[source, to] = sender
            return True
        if kind in (PROBE, CLAIM):
            self.aliases[source, to] = sender
            return receiver == self.names[to]
        known = (self.asked.get((to, source)), self.aliases.get((to, source)))
        self.names[source] = name(sender)
        return receiver in known

    def is_named(self, packet, key, source, to, is_routed):
        """Whether a client's packet is for whom it has been sent to, or for nobody where it may be."""
        if is_routed:
            return check_hop(packet, key, self.names[to], self.aliases[source, to])
        known = self.names.get(to)
        return known is not None and check_hop(packet, key, known) or check_hop(packet, key)


def name(instance):
    """Without the number of the member."""
    return instance[:7] + bytes(1)


def check(keys, nodes, source, to, packet):
    """The number of the client that the packet is from or for; None where it is forged."""
    header_len, kind = packet[1], packet[2] >> 4
    header, sealed, rest = packet[:header_len], packet[header_len:-16], packet[-16:]
    high, epoch, low, hop = rest[:3], rest[3], rest[4:8], rest[8:]
    if packet[21] == 3:
        # A router's word to a client is under that client's key, all others under the routers'.
        to_client = kind == DROP or kind == ACK and packet[20] & HELD
        client = nodes.clients.get(to, 0) if to_client else 0
        key = keys.hop(epoch, client) if to_client else keys.router(epoch)
        if not check_hop(packet, key):
            return None
        if to_client:
            nodes.names[source] = name(sealed[-16:-8])
            return client if sealed[-8:] == NOBODY else None
        return client if nodes.check_names(source, to, kind, sealed[-16:]) else None
    if kind in CLIENT_TO_SERVER:
        client = int.from_bytes(high, "big")
        is_routed = header_len == 72 and header[66] != 0
        key = keys.router(epoch) if is_routed else keys.hop(epoch, client)
        if not nodes.is_named(packet, key, source, to, is_routed):
            return None
        if not is_routed:
            nodes.clients[source] = client
        session = int.from_bytes(header[8:13], "big")
        key = keys.request(epoch, client, session, low)
        nonce = b"\0" + header[13:16] + header[24:28] + header[22:24] + bytes(2)
        aad = blanked(header) + rest[:8]
    else:
        client = nodes.clients[to]
        nodes.names[source] = name(hop)
        key = keys.reply(epoch, client, hop)
        nonce = bytes(5) + high + low
        aad = header + rest
    cipher = keys.aead(key)
    payload = cipher.decrypt(nonce, sealed, aad)
    if packet[21] == 4 and not are_together(header + payload, kind in CLIENT_TO_SERVER):
        return None
    return client if cipher.encrypt(nonce, payload, aad) == sealed else None


def are_together(opened, to_server):
    """Whether these are packets of one session, and behind them the length of each but the last."""
    length = int.from_bytes(opened[-2:], "big")
    packets = [opened[at : at + length] for at in range(0, len(opened) - 2, length)]
    packets[-1] = packets[-1][: len(opened) - 2 - length * (len(packets) - 1)]
    kinds = (REQUEST, REPLY_ACK) if to_server else (RESPONSE, DROP)
    is_part = [
        packet[2] >> 4 in kinds and packet[8:13] == opened[8:13] and packet[21] == (1 if at else 4)
        for at, packet in enumerate(packets)
    ]
    return len(packets) > 1 and all(is_part)


def check_homa(keys, nodes, source, to, packet):
    """The same of a packet of Homa."""
    kind, mark, named = packet[11], packet[8], packet[9]
    header_len = 56 if kind == HOMA_DATA else len(packet) - 32
    header, sealed, rest = packet[:header_len], packet[header_len:-16], packet[-16:]
    high, epoch, low, last = rest[:3], rest[3], rest[4:8], rest[8:]
    back = packet[10]
    if mark != 2 or back > 1:
        return None
    if packet[27] & 1 == back:
        # A client's: what names nobody asks who is there, and is a RESEND of a call of its own.
        client = int.from_bytes(high, "big")
        if not named and (kind != HOMA_RESEND or back):
            return None
        nodes.clients[source] = client
        session = int.from_bytes(packet[20:25], "big")
        if last[:4] != siphash24(keys.hop(epoch, client), number(session, 8) + low, True)[:4]:
            return None
        key = keys.homa_request(epoch, client, session, low)
        nonce, aad = bytes(8) + last[4:], header + rest + (nodes.names[to] if named else NOBODY)
    else:
        client = nodes.clients[to]
        nodes.names[source] = name(last)
        key = keys.homa_reply(epoch, client, last)
        nonce, aad = bytes(5) + high + low, header + rest
    cipher = keys.aead(key)
    payload = cipher.decrypt(nonce, sealed, aad)
    return client if cipher.encrypt(nonce, payload, aad) == sealed else None


def check_file(file, check):
    """How many packets a file has, each of which is what it should be."""
    path = pathlib.Path(__file__).with_name(file)
    keys, nodes, count = None, Nodes(), 0
    for at, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split(" ", 1)
        if words[0] == "keys":
            keys, nodes = Keys(words[1]), Nodes()
            continue
        source, to, packet = line.split()
        if check(keys, nodes, source, to, bytes.fromhex(packet)) is None:
            sys.exit(f"{path}:{at}: the packet is not what it should be")
        count += 1
    return count


def main():
    # The paper's own vector, Appendix A.
    assert siphash24(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5
    check_cookie()
    count = check_file("packets.txt", check)
    count += check_file("coalesced.txt", check)
    count += check_file("homa.txt", check_homa) + check_file("streams.txt", check_homa)
    count += check_resets("resets.txt", answer_of_r2p2, 49)
    count += check_resets("homa-resets.txt", answer_of_homa, 28)
    print(f"{count} sealed packets are what they should be")


if __name__ == "__main__":
    main()
