/* wire_messages.h - a full example of every internal message, and its codec behind void pointers. */
#pragma once
#include "base/wire/events.h"
#include "base/wire/generate.h"
#include "base/wire/sync.h"

#define DIGEST "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

#define STRUCT_BYTES_MAX 4096 /* of a message decoded */

typedef int (*encode_fn)(const void *in, struct buf *out);
typedef int (*decode_fn)(struct str text, struct arena *arena, void *ret, struct err *err);

struct message {
    const char *name;
    const void *example;
    size_t size;
    encode_fn encode;
    decode_fn decode;
};

#define WIRE_MESSAGES 11
extern const struct message wire_messages[WIRE_MESSAGES];

/* Those that tests look into. */
extern const struct generate_request wire_generate;
extern const struct block_event wire_hello, wire_change;
extern const struct router_rules wire_rules;

/* Of each type, a decode_fn. */
int wire_decode_generate(struct str text, struct arena *arena, void *ret, struct err *err);
int wire_decode_generate_frame(struct str text, struct arena *arena, void *ret, struct err *err);
int wire_decode_block_event(struct str text, struct arena *arena, void *ret, struct err *err);
int wire_decode_engine_report(struct str text, struct arena *arena, void *ret, struct err *err);
int wire_decode_agent_report(struct str text, struct arena *arena, void *ret, struct err *err);
int wire_decode_agent_reply(struct str text, struct arena *arena, void *ret, struct err *err);
int wire_decode_engine_clock(struct str text, struct arena *arena, void *ret, struct err *err);
int wire_decode_router_sync(struct str text, struct arena *arena, void *ret, struct err *err);
int wire_decode_router_rules(struct str text, struct arena *arena, void *ret, struct err *err);
