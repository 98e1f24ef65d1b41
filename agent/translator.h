/* translator.h - speaks for an engine of another kind to routers: its tokenizer, its cache, its load.
 *
 * Layer:   agent (base/io, base/text, base/wire, agent/core)
 * Threads: the agent's loop; one thread reads the tokenizer's file and then ends
 * Rules:   (1) what a router gets is what an engine of ours would tell: block keys, loads, a bundle. So a
 *              router needs to know nothing of ZeroMQ, MessagePack or Prometheus
 *          (2) without a tokenizer there are no keys: the engine is routed to by load alone
 *          (3) an engine that starts again has a new boot id: all streams end and nothing that was known
 *              of its cache holds
 */
#pragma once
#include "agent/api.h"
#include "agent/kv_feed.h"
#include "base/wire/launch.h"

struct translator;

struct translator_config {
    struct loop *loop;
    const struct credentials *held;
    const struct key_file *scrapers; /* as in agent_api_config */
    struct tls *tls;                 /* of the agent's own port; NULL: plain */
    const char *host;                /* where routers reach the agent; also listened on */
    uint16_t port;                   /* 0: the first free one */
    struct str tokenizer;            /* path; empty: none */
    tokenizer_load_fn *load;         /* reads it; NULL: only tokenizer files of ours */
    struct str kv_events, kv_replay; /* empty: none */
    bool (*report)(void *arg, struct engine_report *ret); /* as in agent_api_config */
    void (*meter)(void *arg, struct metrics *m);          /* sets the metrics about the engine */
    void *arg;
    void (*on_ready)(void *arg); /* the tokenizer is there: the report has more to say */
};

int translator_new(const struct translator_config *config, struct translator **ret,
                   struct err *err);
void translator_free(struct translator *t);

/* Adds what the translator knows to the engine's report: digest, and where the agent serves. */
void translator_fill(const struct translator *t, struct engine_report *r);

/* Tells the translator of the engine that was just seen; another boot id means another engine. */
void translator_saw(struct translator *t, uint64_t boot);
