/* byte_loop.h - a byte loop reads clients' requests, talks to engines and writes responses.
 *
 * Layer:   router
 * Threads: one thread a loop; all loops share the port. `asks` leads to the decision thread, which
 *          decides all that needs the state of the whole fleet, and `mailbox` leads back (request.h)
 *
 *     http_routes ──► generate ──► question, upstream (migrate_request) ──► response ──► request
 *          └────────► tokens
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/rng.h"
#include "base/text/encode.h"
#include "router/config.h"
#include "router/fleet_link.h"
#include "router/metrics.h"
#include "router/request.h"
#include "router/snapshot.h"
#include "router/tunnels.h"

struct decide;

struct byte_loop_config {
    const struct router_config *router;
    struct tunnels *tunnels;
    struct fleet_link *link;
    struct snapshot_board *board;
    struct metrics *metrics;
    struct name_book *names;
    struct tls *serve, *call; /* `serve` NULL: clients speak plain HTTP */
    struct text_pool *texts;  /* stopped before byte_loop_free */
    struct tracer *tracer;    /* NULL: no traces */
    uint16_t port;            /* 0: any free one */
};

int byte_loop_new(const struct byte_loop_config *config, struct byte_loop **ret, struct err *err);
void byte_loop_free(struct byte_loop *b); /* after its thread has ended */
uint16_t byte_loop_port(const struct byte_loop *b);

void byte_loop_attach(struct byte_loop *b, struct decide *d); /* before byte_loop_start */
int byte_loop_start(struct byte_loop *b, struct err *err);    /* its thread */

/* Any thread. _drain takes no new requests and ends the loop's thread when the last one is answered,
 * _stop ends it at once, _join waits for its end. */
void byte_loop_drain(struct byte_loop *b);
void byte_loop_stop(struct byte_loop *b);
void byte_loop_join(struct byte_loop *b);

struct byte_loop {
    const struct router_config *config;
    struct fleet_link *link;
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    struct signer *signer;
    struct mailbox mailbox;
    struct text_desk text;   /* where large bodies are worked on */
    struct list token_calls; /* of tokens.c, not answered at once */
    struct mailbox entered;  /* replies to those about their tenants' limits */
    struct mailbox *asks;    /* the decision thread's */
    struct mailbox_sender asking;
    struct mailbox_sender telling; /* the decision thread's, for `mailbox` */
    struct decide *decide;
    struct snapshot_board *board;
    struct tunnels *tunnels;
    struct metrics *metrics;
    struct pool requests;
    struct tracer *tracer;
    struct pool traces;         /* records of requests; only with a tracer */
    struct arena render, frame; /* for the prompt being rendered, for the frame being read */
    struct buf body;            /* of the call about to be made */
    struct list live;           /* requests not yet given back */
    struct rng rng;             /* request ids and seeds */
    char host[64];              /* that we listen at */
    uint64_t print_seed;        /* of prompts' fingerprints: the same in all routers of the fleet */
    bool loopback;
    bool asks_lengths; /* the predictor wants the model's own estimate: question.h */
    pthread_t thread;
    bool running;
};

/* http_routes.c: one request of any path; the head first, then the whole. */
void http_routes_on_head(void *ctx, struct http_exchange *x);
void http_routes_on_request(void *ctx, struct http_exchange *x);
void http_routes_on_reply(void *ctx, struct http_exchange *x, int status, const struct str *body);
struct str http_routes_render_refusal(void *ctx, const struct http_fault_info *why,
                                      struct buf *body);

/* generate.c: chats (in either style) and completions, from body to ASK_ARRIVE; mail from the decision thread. */
void generate_begin(struct byte_loop *b, struct http_exchange *x, enum openai_surface surface,
                    enum reply_style style, const struct snapshot *f,
                    const struct tenant_name *tenant);
void generate_on_mail(void *arg, struct mailbox_item *item);

/* Returns true while a text worker has the request: its end then waits for the worker's, after which x
 * and deadline_us are looked at. A job that still waits for its turn is cancelled, and the result is
 * false. */
bool generate_at_text(struct request *r);

/* Tokenises for r->client.target on a worker, then calls upstream_start again. */
void generate_retokenise(struct request *r);

/* tokens.c: /tokenize and /detokenize. */
void tokens_begin(struct byte_loop *b, struct http_exchange *x, enum token_ask_kind kind,
                  const struct snapshot *f, const struct tenant_name *tenant);
void tokens_on_mail(void *byte_loop, struct mailbox_item *item);
void tokens_free(struct byte_loop *b); /* after the text pool has stopped */

/* upstream.c: one leg at r->client.target. */
void upstream_start(struct request *r);
void upstream_deadline(void *request); /* ends it, wherever it is */

/* The next leg, and the output so far. */
uint32_t leg_generated(const struct request *r);
/* Prepares a leg at r->client.target. Returns 1 when the output is complete already, r->client.finish
 * says how; -ESTALE: it cannot go on there. */
int leg_begin(struct request *r);
int leg_body(struct request *r, struct buf *out);
void leg_frame(struct request *r, const struct generate_frame *frame); /* takes its tokens, usage */

/* migrate_request.c: migrates a running output from r->client.target to another engine; ends with ASK_MIGRATED
 * or ASK_STAYS. */
void migrate_request_begin(struct request *r, const struct target *to);
void migrate_request_forget(struct request *r); /* drops it without mail */

/* response.c: writes the response to the client, which may have left (r->client.x NULL). */
void response_text(struct request *r, struct str text,
                   struct str logprobs); /* JSON of a streamed piece's tokens; empty: none */

/* Sends what a chunk of another engine's says of reasoning and calls: as it wrote it, or in Anthropic's form.
 * -EINVAL: it cannot be read. */
int response_delta(struct request *r, const struct openai_delta *delta);

/* Renders another engine's whole reply, of this text, in the client's style into client.out. */
int response_whole(struct request *r, struct str text, const struct openai_delta *delta);
void response_forget(struct request *r); /* of a parsed output: it begins anew */

/* Returns an output as a choice that points into it: the parts of its message, or `text` where it is not parsed. */
struct openai_choice response_choice(struct request *r, const struct buf *text);
void response_drained(struct request *r); /* the client has room again */

/* Writes the end of the response, then calls request_over: at once, or when the client has read the rest. */
void response_finish(struct request *r);
void response_problem(struct request *r,
                      double retry_after_s);      /* client.problem; breaks a stream */
bool response_has_begun(const struct request *r); /* a byte of the client's response was sent */
/* Tells the client of a stream that it waits for an instance, eta_s > 0: for how long. This begins the response. */
void response_waiting(struct request *r, double eta_s);
void response_relay(struct request *r, int status, struct str content_type, struct str body);
void response_cors(struct byte_loop *b, struct http_exchange *x); /* headers, when allowed */
