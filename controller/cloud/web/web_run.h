/* web_run.h - drives one call of the controller through a provider's steps: login, budget, retries, deadline.
 *
 *     begin ──► (login) ──► steps of the op ──► done
 *       ▲                        │
 *       └── wait: full jitter ◄──┘  throttle, no reply, login refused
 *
 * Layer:   controller/cloud/web (controller/cloud, base/core)
 * Threads: pure; the runs of one api belong to one thread
 * Rules:   (1) a turn says what comes next: make run->step.ask and give its reply to the next turn, come again at
 *              run->wait_us, or it is done
 *          (2) repeated within the run: what was throttled; lists, prices, removes and logins that got no reply;
 *              a create without a reply where nothing was sent that could make one, or where it is keyed
 *              (provider.h, rule 2). WEB_TRIES_MAX tries, WEB_RUN_US in all
 *          (3) once a try of a create may have made something, the run does not end with a class that says nothing
 *              was made
 *          (4) what one call learns of a throttle or of a refused login holds for all of the api
 *          (5) requests of all runs share one token bucket
 */
#pragma once
#include "base/core/rng.h"
#include "controller/cloud/web/web_section.h"

#define WEB_TRIES_MAX 4
#define WEB_RUN_US ((int64_t)90 * 1000000) /* below the time after which calls.c gives a call up */
#define WEB_LOGIN_MARGIN_US ((int64_t)120 * 1000000) /* it is renewed this long before it expires */
#define WEB_LOGIN_AGAIN_US ((int64_t)10 * 1000000)   /* after one that failed */

/* A provider as its runs share it. */
struct web_api {
    struct web_provider provider;
    struct web_host host;
    struct rng rng; /* of jitter */
    double tokens;
    int64_t filled_us;
    int64_t quiet_until_us;   /* the provider wants no request before */
    uint64_t logins;          /* made so far; tells one login from the next */
    struct web_run *login_by; /* makes one now */
    int64_t login_again_us;   /* none before; the next two say why */
    enum offer_error login_class;
    struct err login_err;
    int64_t waited_us; /* by all runs, for budget and throttle */
};

/* `settings`, and what `host` points to, outlive the api. */
int web_api_open(struct web_api *a, const struct web_settings *settings,
                 const struct web_host *host, uint64_t seed, struct err *err);
void web_api_close(struct web_api *a);

enum web_turn { WEB_TURN_ASK, WEB_TURN_WAIT, WEB_TURN_DONE };

struct web_run {
    struct web_api *api;
    struct cloud_kept kept; /* op CLOUD_NONE: a login alone */
    struct arena arena;
    struct launch_spec spec;
    struct buf user_data;
    struct web_op op;     /* the one under way */
    struct web_step step; /* its last */
    enum { WEB_RUN_BEGIN, WEB_RUN_OP, WEB_RUN_DONE } state;
    uint32_t tries;
    bool login_renewed;  /* since the run began, because the old one was refused */
    bool logged_in;      /* a login was made for this run */
    uint64_t login_used; /* api->logins when the op began */
    bool risky;          /* of a create: a request was sent that may have made something */
    bool lost;           /* and of an earlier try so */
    uint32_t resume;     /* the op's stage at the last such request */
    int64_t wait_us, until_us;
    struct listed *item;
    struct cloud_price *price;
};

/* Begins a call, or a login alone where `call` is NULL. `item` has room for CLOUD_LIST_MAX and `price` for
 * CLOUD_PRICES_MAX; each may be NULL where the call wants none. Errors as cloud_keep. */
int web_run_begin(struct web_run *r, struct web_api *api, const struct cloud_call *call,
                  struct listed *item, struct cloud_price *price, int64_t now_us, struct err *err);

/* `reply` is the reply to the request of the last turn; NULL otherwise. `wall_us` is the date. */
enum web_turn web_run_turn(struct web_run *r, const struct web_reply *reply, int64_t now_us,
                           int64_t wall_us);

/* The deadline of the request that the last turn asked for, from now. */
int64_t web_run_deadline_us(const struct web_run *r, int64_t now_us);

/* Fills the event of a run that is done; items lie in run->item. ret->price is filled by the run where `price` was
 * given as ret->price. */
void web_run_event(const struct web_run *r, struct cloud_event *ret);
void web_run_fini(struct web_run *r); /* at any time */
