/* agent_state.h - defines the members of an agent.
 *
 * Layer:   agent, private to agent.c, agent_calls.c and agent_open.c
 * Threads: the agent's loop
 */
#pragma once
#include "agent/agent.h"
#include "agent/core/supervise.h"
#include "agent/dialler.h"
#include "agent/first_boot.h"
#include "agent/gpu_watch.h"
#include "agent/instance.h"
#include "agent/look.h"
#include "agent/notice.h"
#include "agent/probes.h"
#include "agent/translator.h"
#include "agent/weights.h"
#include "base/io/auth/credentials.h"
#include "base/io/auth/signed_call.h"
#include "base/io/log.h"
#include "base/io/net/tls.h"
#include "base/io/notify.h"
#include "fleet/controllers.h"

#define AGENT_CALL_US 5000000 /* deadline of one question; the next one waits for it */

struct agent_question {
    struct peer_call call;
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
    struct notify_watch manager;
    struct loop_watch watch;     /* the engine's pidfd */
    struct probes *probes;       /* NULL: none */
    struct notice_watch *notice; /* NULL: no metadata service is asked */
    struct gpu_watch *gpus;      /* NULL: none are looked for */
    struct proc engine;          /* id.pid 0: none */
    uint16_t engine_port;
    struct credentials held;
    struct key_file scrapers;
    struct tls *serve; /* of the agent's own port; NULL: plain */

    const struct engine_driver *driver;
    struct look look;
    char engine_id[AUTH_ID_BYTES_MAX]; /* that signs the look's calls */
    struct dialler *dialler;           /* NULL: routers reach the engine themselves */
    struct addr engine_addr;           /* with a dialler: where it leads routers to */
    char agent_id[AUTH_ID_BYTES_MAX];  /* that signs the dialler's calls */
    char tunnel_host[REPORT_NAME_BYTES_MAX + sizeof TUNNEL_HOST]; /* as routers call it then */
    struct translator *translator; /* NULL: the engine serves routers itself */
    struct weights *weights;       /* NULL: the launch document does not say where they come from */
    int64_t spawned_us;            /* the engine; 0: no start of this agent's is measured */
    struct agent_question tell, order;
    struct controllers controllers;
    struct engine_report info; /* as last seen; strings are the look's */
    bool has_info;
    int64_t healthy_us, load_us; /* 0: not since the spawn */
    struct log_limit look_log;
    int64_t asked_us; /* silence before this is judged: last probe sent or excused */

    struct first_boot first_boot;
    uint64_t boot, seq;
    int64_t lease_until_us, report_due_us;
    int64_t leaves_us;  /* the provider takes the machine away then; 0: no notice */
    int64_t noticed_us; /* the same as the machine's own metadata service said; 0: it has not */
    bool at_risk;       /* the same service said that it may be taken away, without a time */
    char notice_why[NOTICE_WHY_BYTES];
    int64_t adopted_us;  /* when the agent started and found an engine; 0: found none */
    double clock_wished; /* 0: none */
    double clock_asked;  /* in the order under way */
    bool drain_wished, started, last_words;
    char trouble[REPORT_TEXT_BYTES_MAX];
    uint64_t oom_kills;  /* of our control group, when the engine was started */
    uint32_t unfinished; /* requests in flight when the drain's time was over */
    int rc;
    struct err *err;
};

/* ---- agent.c ---- */

/* Feeds an event, or time, to the supervisor and carries out the actions that it returns. */
void agent_feed(struct agent *a, enum sup_event e);
void agent_look(struct agent *a);
bool agent_has_engine(const struct agent *a);
void agent_forget_engine(struct agent *a); /* closes our descriptors; the engine lives on */
void agent_on_tick(void *agent);
void agent_on_signal(void *agent, int signo);
void agent_on_notice(void *agent, int64_t left_us, const char *why);
void agent_on_gpus(void *agent);
void agent_on_fault(void *agent, const struct gpu_event *e);

/* ---- agent_calls.c ---- */

void agent_probe(struct agent *a); /* asks the engine about itself */
void agent_tell(struct agent *a);  /* reports to the controller, if no report is under way */
void agent_fill(const struct agent *a,
                struct engine_report *r); /* where routers reach engine and agent */
void agent_on_seen(void *agent, enum look_end how, enum http_end http);

/* ---- agent_open.c ---- */

/* Opens the instance that the configuration names: a launch document's, or one that adopts an engine. */
int agent_open_instance(struct agent *a, struct err *err);
/* Takes the controllers that the launch document names. */
int agent_find_controllers(struct agent *a, struct err *err);
/* Makes the agent's parts. Call agent_teardown also when it fails. */
int agent_build(struct agent *a, tokenizer_load_fn *load, struct err *err);
void agent_teardown(struct agent *a);
