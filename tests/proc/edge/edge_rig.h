/* edge_rig.h - starts a router over a scripted engine, and a real engine, for tests of strange requests.
 *
 * Both speak the same HTTP and the same JSON to clients, so a test sends each of them the same bytes.
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

extern struct rig_process edge_fake, edge_router; /* the real engine is edge_servers[1] */
extern const struct edge_server edge_servers[2];

int edge_setup(void **state);    /* of the group */
int edge_teardown(void **state); /* fails if a server ended with an error */

/* Counts the unexpected replies; a test with a table goes through all its rows before it fails. */
extern uint32_t edge_surprises;
int edge_begin(void **state); /* setup of such a test: sets it to 0 */

/* Sends the bytes and expects one response with this status (0: any from 400 on) and an error object and
 * nothing else; prints and counts any other reply. */
void edge_expect_refusal(const struct edge_server *to, const char *why, struct str bytes,
                         int status);
/* Fails unless a plain request is served. */
void edge_expect_service(const struct edge_server *to);

/* Counts the status lines in a text: a version and three digits. A sentence that names HTTP/1.1 is none. */
uint32_t edge_answers(struct str text);
int edge_status(struct str text); /* of the first one; 0: none */

/* Appends a whole request with this body. */
void edge_post(struct buf *out, const char *path, struct str body);
/* Appends `begin`, `count` times `part`, then `end`. */
void edge_repeat(struct buf *out, const char *begin, const char *part, size_t count,
                 const char *end);
