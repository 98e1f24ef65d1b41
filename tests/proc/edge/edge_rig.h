/* edge_rig.h - a router over a scripted engine and an engine of its own, and what strangers send them.
 *
 * Both speak the same HTTP and the same JSON to whoever comes, so a test asks each of them the same.
 */
#pragma once
#include "tests/proc/rig/rig.h"

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define POST "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
#define RAW(text)                      \
    {                                  \
        "" text "", sizeof "" text - 1 \
    }

struct edge_server {
    const char *name;
    const struct rig_process *process;
};

extern struct rig_process edge_fake, edge_router; /* the engine of its own is among the servers */
extern const struct edge_server edge_servers[2];

int edge_setup(void **state);    /* of the group */
int edge_teardown(void **state); /* ends with failure where a server did */

/* The failures of a test that goes on through its table to the end. */
extern uint32_t edge_surprises;
int edge_begin(void **state); /* of such a test: none so far */

/* One answer to the bytes, of this status (0: any from 400 on), an error object and no more; or it
 * is said and counted. */
void edge_expect_refusal(const struct edge_server *to, const char *why, struct str bytes,
                         int status);
/* The server goes on: a plain request is answered as ever. */
void edge_expect_service(const struct edge_server *to);

/* Status lines: a version and three digits, unlike a sentence about HTTP/1.1. */
uint32_t edge_answers(struct str text);
int edge_status(struct str text); /* 0: none */

/* A whole request with this body. */
void edge_post(struct buf *out, const char *path, struct str body);
/* `count` times `part` behind `begin`, then `end`. */
void edge_repeat(struct buf *out, const char *begin, const char *part, size_t count,
                 const char *end);
