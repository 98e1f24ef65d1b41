/* agent_part.h - the agent itself, as its loop (agent.c) and its questions (questions.c) share it.
 *
 * Layer:   agent, private to it
 * Threads: one
 */
#pragma once
#include "agent/agent.h"
#include "agent/core/supervise.h"
#include "agent/instance.h"
#include "base/io/credentials.h"
#include "base/io/log.h"
#include "base/io/signed_call.h"
#include "base/io/tls.h"

#define CALL_US 5000000 /* for one question; the next waits for it */
#define ANSWER_BYTES_MAX ((size_t)1 << 20)

struct question { /* one call under way at most */
    struct signed_call *call;
    struct buf body;
    int status;
    struct log_limit log;
};

struct agent {
    const struct agent_config *config;
    struct instance in;
    struct sup_config sup_config;
    struct sup sup;
    struct loop *loop;
    struct tls *tls;
    struct http_client *client;
    struct signer *signer;
    struct loop_timer tick;
    struct loop_watch watch; /* the engine's pidfd */
    struct proc engine;      /* id.pid 0: none */
    uint16_t engine_port;
    struct credentials held;

    struct question probe, tell, order;
    struct arena info_arena[2]; /* of the last good answer, and of the next */
    uint32_t info_at;
    struct engine_report info;
    bool has_info;
    int64_t healthy_us, load_us; /* 0: not since the spawn */
    int64_t asked_us;            /* when a probe last said anything of the engine */

    uint64_t boot, seq;
    int64_t lease_until_us, report_due_us;
    int64_t adopted_us;  /* when we came and found an engine; 0: we found none */
    double clock_wished; /* 0: none */
    double clock_asked;  /* in the order under way */
    bool drain_wished, started, last_words;
    char trouble[REPORT_TEXT_BYTES_MAX];
    int rc;
    struct err *err;
};

/* agent.c */
void agent_feed(struct agent *a, enum sup_event e);
void agent_look(struct agent *a); /* at the engine and the clock, and does what follows */

/* questions.c: each has one call under way at most. */
void agent_probe(struct agent *a); /* asks the engine how it is */
void agent_tell(struct agent *a);  /* reports to the controller; what it wishes is fed */
