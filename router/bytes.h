/* bytes.h - a byte loop: reads clients' requests, talks to engines, writes answers.
 *
 * Layer:   router
 * Threads: one thread a loop; all share the port. What needs the whole fleet's state is asked of
 *          the decision thread (request.h).
 */
#pragma once
#include "base/core/pool.h"
#include "base/core/rng.h"
#include "router/config.h"
#include "router/face.h"
#include "router/metrics.h"
#include "router/request.h"

struct decide;

struct byte_loop {
    const struct router_config *config;
    struct str secret;
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    struct lane lane;
    struct lane *asks; /* the decision thread's */
    struct decide *decide;
    struct face_board *board;
    struct metrics *metrics;
    struct pool requests;
    struct list live; /* requests not yet given back */
    struct rng rng;   /* request ids and seeds */
    bool loopback;
    bool asks_lengths; /* the predictor wants the model's own word: question.h */
    pthread_t thread;
    bool running;
};

struct bytes_config {
    const struct router_config *router;
    struct str secret;
    struct face_board *board;
    struct metrics *metrics;
    uint16_t port; /* 0: any free one */
};

int bytes_new(const struct bytes_config *config, struct byte_loop **ret, struct err *err);
void bytes_free(struct byte_loop *b); /* after its thread has ended */
uint16_t bytes_port(const struct byte_loop *b);
struct lane *bytes_lane(struct byte_loop *b);

void bytes_attach(struct byte_loop *b, struct decide *d); /* before bytes_start */
int bytes_start(struct byte_loop *b, struct err *err);    /* its thread */

/* Any thread: take no new requests, end the thread when the last one is answered; or at once. */
void bytes_drain(struct byte_loop *b);
void bytes_stop(struct byte_loop *b);
void bytes_join(struct byte_loop *b);

/* front.c: one request of any path. */
void front_on_request(void *ctx, struct http_exchange *x);
struct str front_render_refusal(void *ctx, const struct http_fault_info *why, struct buf *body);
void front_cors(struct byte_loop *b, struct http_exchange *x); /* headers, when allowed */

/* generate.c: chat and completions, from body to ASK_ARRIVE; mail from the decision thread. */
void generate_begin(struct byte_loop *b, struct http_exchange *x, enum openai_surface surface,
                    const struct face *f, const struct tenant_name *tenant);
void generate_on_mail(void *arg, struct lane_item *item);
struct request *generate_take(struct byte_loop *b, int64_t deadline_us); /* NULL: all are out */
void generate_release(struct request *r); /* gives it back; x and call are NULL */
/* Ids, keys and features of r->api for a model. Negative: r->problem says why. */
int generate_ready(struct request *r, const struct face_model *m);
/* Fill r->ids; see that prompt and answer fit (0: not known). Negative: r->problem says why. */
int generate_tokenize(struct request *r, const struct bundle_entry *bundle);
int generate_check_context(struct request *r, uint32_t context_tokens);

/* upstream.c: one attempt at r->target. */
void upstream_start(struct request *r);
void upstream_deadline(struct request *r); /* ends the request, wherever it is */

/* answer.c: bytes to the client. Each may find that the client has left (r->x NULL). */
void answer_text(struct request *r, struct str text);
void answer_drained(struct request *r); /* the client has room again */

/* To the end, then request_over: at once, or when the client has taken what came before. */
void answer_finish(struct request *r);
void answer_problem(struct request *r, double retry_after_s); /* r->problem; breaks a stream */
void answer_relay(struct request *r, int status, struct str content_type, struct str body);

void request_arrive(struct request *r); /* ASK_ARRIVE */

/* Says ASK_OVER, once. r->outcome is filled. */
void request_over(struct request *r);
void request_failed(struct request *r, enum retry_failure failure); /* ASK_FAILED */
void request_tokens(struct request *r, uint32_t count);             /* ASK_TOKENS, and times */
