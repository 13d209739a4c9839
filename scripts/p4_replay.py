#!/usr/bin/env python3
"""Replays a conformance trace through a P4 program in bmv2, and prints what the program decided in the trace's text form.

    p4_replay.py router|netclone|rounds PROGRAM.json TAILCUT TRACE.txt

`cargo xtask p4` calls this. It needs simple_switch and simple_switch_CLI, but no privileges: packets come from a pcap
file and go to pcap files. The tables are filled with what `tailcut route --emit p4` prints.

`rounds` is no trace: a request that finds no room recirculates until a FEEDBACK has made some.
"""

import ipaddress
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time

# bmv2 begins to read packets after these seconds, in which the tables are filled.
FILL_SECONDS = 6
# A part is over when nothing has changed for so many looks, and must be within so many seconds.
STILL_LOOKS = 3
PART_SECONDS = 120

CLIENT_PORT, SERVER_PORT, UP_PORT = 0, 1, 2
CLIENT, SWITCH = "10.9.8.7", "10.2.3.200"
SWITCH_MAC, CLIENT_MAC = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
EPOCH = 0x0BADCAFE
FIRST = 100


def main():
    kind, program, tailcut, trace = sys.argv[1:]
    if kind == "rounds":
        return replay_rounds(program, tailcut)
    replay = {"router": replay_placements, "netclone": replay_clones}[kind]
    policy = os.path.basename(trace).removesuffix(".txt")
    with open(trace, encoding="ascii") as text:
        for head, steps in parts(text.read().splitlines()):
            print(head)
            replay(program, tailcut, policy, head.split(), steps)


def parts(lines):
    """The parts of a trace: the line that begins each, and the steps."""
    found = []
    for line in lines:
        if line.startswith("servers"):
            found.append((line, []))
        else:
            found[-1][1].append(line)
    return found


def server(index):
    return f"10.2.3.{index}"


def mac(index):
    return bytes([2, 0, 0, 0, 7, index])


def emit(tailcut, options, port, count):
    """The commands for the tables, of the same list of servers that a router would be started with."""
    command = [tailcut, "route", "--emit", "p4", "--listen", f"{SWITCH}:{port(0)}", *options]
    command += ["--p4-up-port", str(UP_PORT), "--p4-way", f"{CLIENT}={CLIENT_PORT}/{CLIENT_MAC.hex(':')}"]
    for index in range(count):
        command += ["--server", f"{server(index)}:{port(index)}"]
        command += ["--p4-way", f"{server(index)}={SERVER_PORT}/{mac(index).hex(':')}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def frame(source, destination, payload, source_mac=CLIENT_MAC):
    """A datagram in its frame, without a UDP checksum."""
    length = 8 + len(payload)
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + length, 0, 0x4000, 64, 17, 0, packed(source[0]), packed(destination[0])
    )
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    udp = struct.pack("!HHHH", source[1], destination[1], length, 0)
    return SWITCH_MAC + source_mac + b"\x08\x00" + ip + udp + payload


def packed(address):
    return ipaddress.IPv4Address(address).packed


def checksum(header):
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def opened(bytes_):
    """The addresses, the payload and the Ethernet destination of a frame that left the switch."""
    assert checksum(bytes_[14:34]) == 0, "the checksum of the IP header is right"
    assert bytes_[40:42] == b"\0\0", "no UDP checksum is better than a wrong one"
    source, destination = struct.unpack("!HH", bytes_[34:38])
    length = struct.unpack("!H", bytes_[38:40])[0]
    ends = [str(ipaddress.IPv4Address(bytes_[at : at + 4])) for at in (26, 30)]
    return (ends[0], source), (ends[1], destination), bytes_[42 : 34 + length], bytes_[:6]


def write_pcap(path, frames):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for index, bytes_ in enumerate(frames):
            file.write(struct.pack("<IIII", index // 1_000_000, index % 1_000_000, len(bytes_), len(bytes_)) + bytes_)


def read_pcap(path):
    with open(path, "rb") as file:
        data = file.read()
    at, frames = 24, []
    while at + 16 <= len(data):
        length = struct.unpack("<I", data[at + 8 : at + 12])[0]
        frames.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return frames


def run(program, commands, frames, settled):
    """What leaves by each port, once the counters say that all has been taken; and the counters."""
    with tempfile.TemporaryDirectory() as folder:
        for port in (CLIENT_PORT, SERVER_PORT, UP_PORT):
            write_pcap(f"{folder}/p{port}_in.pcap", frames if port == CLIENT_PORT else [])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            thrift = str(free.getsockname()[1])
        command = ["simple_switch", "--use-files", str(FILL_SECONDS), "--thrift-port", thrift]
        for port in (CLIENT_PORT, SERVER_PORT, UP_PORT):
            command += ["-i", f"{port}@p{port}"]
        with open(f"{folder}/log", "w+", encoding="utf-8") as log:
            switch = subprocess.Popen(command + [os.path.abspath(program)], cwd=folder, stdout=log, stderr=log)
            try:
                ask(thrift, "set_queue_depth 1000000\n" + commands)
                counts = wait(thrift, settled)
            finally:
                switch.terminate()
                switch.wait(30)
        return [read_pcap(f"{folder}/p{port}_out.pcap") for port in (0, 1, 2)], counts


def ask(thrift, commands):
    """Has the switch carry out commands; ends this program where it refuses one."""
    deadline = time.monotonic() + PART_SECONDS
    while True:
        cli = ["simple_switch_CLI", "--thrift-port", thrift]
        done = subprocess.run(cli, input=commands, capture_output=True, text=True, check=False)
        text = done.stdout + done.stderr
        if "Could not connect" not in text:
            break
        assert time.monotonic() < deadline, text
    refused = [line for line in text.splitlines() if "Error" in line or "Invalid" in line or "Unknown" in line]
    assert not refused, refused
    return text


def wait(thrift, settled):
    """The counters once `settled` packets have been counted."""
    deadline = time.monotonic() + PART_SECONDS
    last, still = None, 0
    while True:
        text = ask(thrift, "".join(f"counter_read ingress.counts {index}\n" for index in range(10)))
        counts = [int(count) for count in re.findall(r"(\d+) packets\)", text)]
        assert len(counts) == 10, text
        still = still + 1 if counts == last else 0
        last = counts
        if settled(counts) and still >= STILL_LOOKS:
            return counts
        assert time.monotonic() < deadline, f"the switch does not come to an end: {counts}"


def request(step):
    """A request of one packet for the router, named by the step."""
    base = struct.pack("!BBBBHH", 0xCC, 72, 0, 0xC0, step & 0xFFFF, 1)
    header = struct.pack("!QIBBHIIQIHH", step, 4, 0, 1, 0, 0, 0, 0, 0, 1400, 0)
    return base + header + bytes(24) + b"ping"


def feedback(counts, is_stopping):
    base = struct.pack("!BBBBHH", 0xCC, 48, 0x20, 0xC0, 0, 1)
    header = struct.pack("!QIBBHIIQIHH", 0, 0, 64 if is_stopping else 0, 1, 0, 0, 0, 0, 0, 0, 0)
    return base + header + struct.pack("!IIII", EPOCH, *counts)


def begin_router(tailcut, policy, count, rounds):
    """The tables, and registers as after the first placements."""
    commands = emit(tailcut, ["--policy", policy], lambda _: 8000, count)
    commands += f"register_write ingress.settings 2 {rounds}\n"
    for index in range(count):
        for name in ("placed", "base"):
            commands += f"register_write ingress.{name} {index} {FIRST}\n"
    return commands


def replay_placements(program, tailcut, policy, head, steps):
    count = int(head[1])
    told = [[FIRST, 0, 0] for _ in range(count)]
    stopping = [False] * count
    frames = []
    for number, step in enumerate(steps):
        words = step.split()
        if words[0] == "place":
            frames.append(frame((CLIENT, 40000), (SWITCH, 8000), request(number)))
            continue
        index = int(words[1])
        if words[0] == "report":
            told[index] = [int(word) for word in words[2:5]]
        else:
            # A server leaves by saying so, and returns by not saying so.
            stopping[index] = words[2] == "off"
        payload = feedback(told[index], stopping[index])
        frames.append(frame((server(index), 8000), (SWITCH, 8000), payload, mac(index)))
    out, counts = run(
        program, begin_router(tailcut, policy, count, 0), frames, lambda counts: sum(counts) == len(frames)
    )
    assert not out[CLIENT_PORT] and counts[1] == len([s for s in steps if not s.startswith("place")]), counts
    chosen = {}
    for bytes_ in out[UP_PORT]:
        _, _, payload, _ = opened(bytes_)
        number = struct.unpack("!Q", payload[8:16])[0]
        assert payload == request(number), "what is held is untouched"
        chosen[number] = "hold"
    for bytes_ in out[SERVER_PORT]:
        source, destination, payload, to = opened(bytes_)
        index, number = int(destination[0].split(".")[3]), struct.unpack("!Q", payload[8:16])[0]
        placement = struct.unpack("!I", payload[68:72])[0]
        same = payload[:66] + b"\0" + payload[67:68] + bytes(4) + payload[72:]
        assert source == (CLIENT, 40000) and to == mac(index) and payload[66] == 1, "only the route block changes"
        assert same == request(number) and number not in chosen, "only the route block changes"
        chosen[number] = f"{index} {placement}"
    for number, step in enumerate(steps):
        decided = chosen.get(number, "nothing")
        print(f"{step.split(' -> ')[0]} -> {decided}" if step.startswith("place") else step)


def replay_rounds(program, tailcut):
    """Three requests for one server that may have two; then it says that it has concluded one."""
    frames = [frame((CLIENT, 40000), (SWITCH, 8000), request(number)) for number in range(3)]
    payload = feedback([FIRST + 1, 1, 1], False)
    frames.append(frame((server(0), 8000), (SWITCH, 8000), payload, mac(0)))
    commands = begin_router(tailcut, "jbsq:2", 1, 1_000_000)
    out, counts = run(program, commands, frames, lambda counts: counts[0] == 3)
    numbers = [struct.unpack("!I", opened(bytes_)[2][68:72])[0] for bytes_ in out[SERVER_PORT]]
    assert numbers == [FIRST + 1, FIRST + 2, FIRST + 3] and not out[UP_PORT] and counts[2] > 0, (numbers, counts)
    print("the third of three requests was placed after a FEEDBACK, and had recirculated")


def netclone(op, seq, group, sid, load, mark, table):
    return struct.pack("!7I", op, seq, group, sid, load, mark, table) + b"whenever" + bytes([9] * 16)


def replay_clones(program, tailcut, policy, head, steps):
    count, filter_len, first = int(head[1]), int(head[3]), int(head[5])
    options = ["--transport", "netclone", "--policy", policy]
    commands = emit(tailcut, options, lambda _: 1000, count)
    commands += f"register_write ingress.settings 1 {filter_len - 1}\nregister_write ingress.seq 0 {first - 1}\n"
    frames, asked = [], {}
    for number, step in enumerate(steps):
        words = step.split()
        if words[0] == "request":
            payload = netclone(0, 0, int(words[1]), 77, 0, 0, int(words[2]))
            # Ports tell requests apart, whose payloads are alike.
            frames.append(frame((CLIENT, 2000 + number), (SWITCH, 1000), payload))
        else:
            index, seq, table, mark, load = (int(word) for word in words[1:6])
            payload = netclone(1, seq, 5, index, load, mark, table)
            frames.append(frame((server(index), 1000), (CLIENT, 2000 + number), payload, mac(index)))
    # Placed, forwarded, filtered: the others are counted besides.
    out, counts = run(program, commands, frames, lambda counts: counts[0] + counts[3] + counts[5] == len(frames))
    assert not out[UP_PORT] and sum(counts[6:]) == 0, counts
    for bytes_ in out[SERVER_PORT]:
        source, destination, payload, to = opened(bytes_)
        index = int(destination[0].split(".")[3])
        assert to == mac(index) and source[0] == CLIENT and destination[1] == 1000, bytes_
        asked.setdefault(source[1] - 2000, []).append((struct.unpack("!7I", payload[:28]), index, payload[28:]))
    passed = set()
    for bytes_ in out[CLIENT_PORT]:
        source, destination, payload, to = opened(bytes_)
        number = destination[1] - 2000
        words = steps[number].split()
        index, seq, table, mark, load = (int(word) for word in words[1:6])
        assert payload == netclone(1, seq, 5, index, load, mark, table) and to == CLIENT_MAC, "it is untouched"
        assert source == (server(index), 1000) and number not in passed, "it leaves once"
        passed.add(number)
    for number, step in enumerate(steps):
        before = step.split(" -> ")[0]
        if not step.startswith("request"):
            print(f"{before} -> {'pass' if number in passed else 'drop'}")
            continue
        _, group, table = before.split()
        copies = sorted(asked.get(number, []), key=lambda copy: copy[0][5])
        marks = [copy[0][5] for copy in copies]
        assert marks in ([0], [1, 2]), f"{step}: {copies}"
        seq, sid = copies[0][0][1], copies[1][1] if len(copies) == 2 else 77
        for (op, seq_, group_, sid_, load, _, table_), _, rest in copies:
            same = (0, seq, int(group), sid, 0, int(table)) == (op, seq_, group_, sid_, load, table_)
            assert same and rest == b"whenever" + bytes([9] * 16), f"{step}: {copies}"
        print(f"{before} -> {seq} {' '.join(str(copy[1]) for copy in copies)}")


if __name__ == "__main__":
    main()
