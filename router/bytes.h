/* bytes.h - a byte loop: reads clients' requests, talks to engines, writes answers.
 *
 * Layer:   router
 * Threads: one thread a loop; all share the port. What needs the whole fleet's state is asked of
 *          the decision thread (request.h).
 */
#pragma once
#include "base/io/text_pool.h"
#include "router/config.h"
#include "router/face.h"
#include "router/metrics.h"

struct byte_loop;
struct decide;

struct bytes_config {
    const struct router_config *router;
    struct fleet_link *link;
    struct face_board *board;
    struct metrics *metrics;
    struct name_book *names;
    struct tls *serve, *call; /* `serve` NULL: clients speak plain HTTP */
    struct text_pool *texts;  /* stopped before bytes_free */
    uint16_t port;            /* 0: any free one */
};

int bytes_new(const struct bytes_config *config, struct byte_loop **ret, struct err *err);
void bytes_free(struct byte_loop *b); /* after its thread has ended */
uint16_t bytes_port(const struct byte_loop *b);

void bytes_attach(struct byte_loop *b, struct decide *d); /* before bytes_start */
int bytes_start(struct byte_loop *b, struct err *err);    /* its thread */

/* Any thread: take no new requests, end the thread when the last one is answered; or at once. */
void bytes_drain(struct byte_loop *b);
void bytes_stop(struct byte_loop *b);
void bytes_join(struct byte_loop *b);
