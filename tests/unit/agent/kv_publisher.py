# SPDX-License-Identifier: Apache-2.0
"""kv_publisher.py - publish KV events over ZeroMQ's own library, as vLLM does, by commands on stdin.

    kv_publisher.py EVENTS REPLAY FORM MADE   EVENTS and REPLAY: endpoints ("-": none); FORM: map or array

MADE messages are in the replay buffer from the start. It prints where EVENTS is bound, since a port may be left to the kernel (tcp://127.0.0.1:*).
Message n stores a block of 16 tokens, all of them n, under the hash n + 1000. Commands:
    pub K    make and publish K messages, once somebody has subscribed
    lose K   make K messages that are only in the replay buffer
    keep K   forget all but the last K of the buffer
    bad      publish a message that is no batch
    topic    replay as vLLM 0.32 does, with the topic before the number
"""
import struct
import sys

import zmq


def pack(v):
    """The few forms of MessagePack that are needed."""
    if v is None:
        return b"\xc0"
    if isinstance(v, float):
        return b"\xcb" + struct.pack(">d", v)
    if isinstance(v, int):
        return b"\xcf" + struct.pack(">Q", v)
    if isinstance(v, str):
        return b"\xd9" + bytes([len(v)]) + v.encode()
    if isinstance(v, list):
        return b"\xdc" + struct.pack(">H", len(v)) + b"".join(map(pack, v))
    pairs = b"".join(pack(k) + pack(x) for k, x in v.items())
    return b"\xde" + struct.pack(">H", len(v)) + pairs


def batch(n, form):
    members = {"block_hashes": [n + 1000], "parent_block_hash": None, "token_ids": [n] * 16,
               "block_size": 16, "lora_id": None}
    if form == "array":
        return pack([0.5, [["BlockStored", *members.values()]]])
    return pack([0.5, [{"type": "BlockStored", **members}], 0])


class Publisher:
    def __init__(self, events, replay, form, made):
        context = zmq.Context()
        self.form, self.seq, self.buffer, self.topic = form, 0, [], False
        for _ in range(int(made)):
            self.make()
        self.out = context.socket(zmq.XPUB)
        self.out.bind(events)
        print(self.out.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode(), flush=True)
        self.subscribed = False
        self.router = None
        if replay != "-":
            self.router = context.socket(zmq.ROUTER)
            self.router.bind(replay)

    def make(self):
        message = (struct.pack(">Q", self.seq), batch(self.seq, self.form))
        self.buffer.append(message)
        self.seq += 1
        return message

    def serve_replay(self):
        who, empty, start = self.router.recv_multipart()
        assert empty == b""
        head = [who, b""] + ([b"kv"] if self.topic else [])
        for seq, payload in self.buffer:
            if seq >= start:
                self.router.send_multipart([*head, seq, payload])
        self.router.send_multipart([*head, b"\xff" * 8, b""])

    def await_subscription(self):
        while not self.subscribed:
            self.subscribed = self.out.recv()[:1] == b"\x01"

    def command(self, words):
        count = int(words[1]) if len(words) > 1 else 1
        if words[0] == "pub":
            self.await_subscription()
            for _ in range(count):
                self.out.send_multipart([b"kv", *self.make()])
        elif words[0] == "lose":
            for _ in range(count):
                self.make()
        elif words[0] == "keep":
            self.buffer = self.buffer[-count:]
        elif words[0] == "bad":
            self.await_subscription()
            self.out.send_multipart([b"kv", struct.pack(">Q", self.seq), b"\x93\x01"])
            self.seq += 1
        elif words[0] == "topic":
            self.topic = True

    def run(self):
        poller = zmq.Poller()
        poller.register(sys.stdin.fileno(), zmq.POLLIN)
        if self.router:
            poller.register(self.router, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self.router in ready:
                self.serve_replay()
            if sys.stdin.fileno() in ready:
                line = sys.stdin.buffer.raw.readline().decode().split()
                if not line:
                    return
                self.command(line)


if __name__ == "__main__":
    Publisher(*sys.argv[1:]).run()
