/* web_run.c - drives calls of the controller through a provider's steps.
 *
 * A call begins again from its first step when it is repeated: a list of pages then takes the first page anew, so
 * that no page of an old list is joined to one of a new list. */
#include "controller/cloud/web/web_run.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_step.h"
#include "controller/cloud/web/web_user_data.h"

#include <math.h>
#include <string.h>

#define BACK_OFF_US 500000 /* doubles with each try; the wait is drawn from 0 to it */
#define BACK_OFF_US_MAX 16000000
#define BUDGET_S 5    /* seconds of the budget that may be saved up */
#define LOOK_US 50000 /* between looks at a login that another run makes */
#define TURNS_MAX 256 /* steps without a request in one turn: more is a defect of a kind */

static const enum web_op_kind op_of[CLOUD_OP_COUNT] = {
    [CLOUD_NONE] = WEB_LOGIN,   [CLOUD_CREATE] = WEB_CREATE, [CLOUD_REMOVE] = WEB_REMOVE,
    [CLOUD_STOP] = WEB_STOP,    [CLOUD_START] = WEB_START,   [CLOUD_LIST] = WEB_LIST,
    [CLOUD_PRICES] = WEB_PRICES
};

/* ---- the provider as runs share it ---- */

int web_api_open(struct web_api *a, const struct web_settings *settings,
                 const struct web_host *host, uint64_t seed, struct err *err)
{
    *a = (struct web_api){ .provider = { .kind = settings->kind, .settings = settings },
                           .host = *host };
    a->provider.host = &a->host;
    rng_seed(&a->rng, seed);
    if (!settings->kind->open) return 0;
    int rc = settings->kind->open(&a->provider, err);
    return rc < 0 ? err_prefix(err, rc, "clouds: " STR_FMT, STR_ARG(settings->name)) : 0;
}

void web_api_close(struct web_api *a)
{
    if (!a->provider.kind) return;
    if (a->provider.kind->close) a->provider.kind->close(&a->provider);
    web_login_clear(&a->provider.login);
    *a = (struct web_api){ 0 };
}

/* Takes a request out of the budget; otherwise returns when there will be one. */
static bool take_token(struct web_api *a, int64_t now_us, int64_t *ret_when_us)
{
    double rate = a->provider.settings->calls_per_s;
    double most = fmax(1, rate * BUDGET_S);
    double added = rate * (double)max_i64(0, now_us - a->filled_us) / 1e6;
    if (rate <= 0) return true;
    a->tokens = a->filled_us ? fmin(most, a->tokens + added) : most;
    a->filled_us = now_us;
    if (a->tokens >= 1) {
        a->tokens--;
        return true;
    }
    *ret_when_us = now_us + 1 + (int64_t)((1 - a->tokens) / rate * 1e6);
    return false;
}

/* ---- the end ---- */

static void blot(char *text, const char *secret)
{
    web_blot(text, strlen(text), str_from(secret));
}

static enum web_turn done(struct web_run *r)
{
    const struct web_login *l = &r->api->provider.login;
    struct web_step *s = &r->step;
    r->state = WEB_RUN_DONE;
    if (r->api->login_by == r) r->api->login_by = NULL;
    if (s->rc < 0 && r->lost) s->class = OFFER_TRANSIENT; /* rule 3 */
    const char *const secrets[] = { l->token, l->key };
    for (size_t i = 0; i < COUNT_OF(secrets); i++)
        blot(s->err.text, secrets[i]);
    return WEB_TURN_DONE;
}

/* Wants a new login, unless another run has made one since. The texts of the old one stay until they are replaced:
 * other runs are in the middle of ops that read them. */
static void forget_login(struct web_run *r)
{
    if (r->login_used == r->api->logins) r->api->provider.login.made = false;
}

static int64_t jitter_us(struct web_run *r)
{
    double most = fmin(BACK_OFF_US_MAX, BACK_OFF_US * exp2((double)r->tries));
    return (int64_t)(rng_f64(&r->api->rng) * most);
}

static bool may_repeat(const struct web_run *r)
{
    if (r->tries + 1 >= WEB_TRIES_MAX) return false;
    if (r->step.class == OFFER_THROTTLE) return true;
    if (r->step.class != OFFER_TRANSIENT) return false;
    return r->op.kind != WEB_CREATE || !r->risky || r->api->provider.kind->create_is_keyed;
}

/* Waits and begins again; or it is done. */
static enum web_turn repeat(struct web_run *r, int64_t now_us)
{
    bool throttled = r->step.class == OFFER_THROTTLE;
    if (!may_repeat(r)) return done(r);
    int64_t wait_us = jitter_us(r);
    if (throttled) {
        wait_us += r->step.wait_us;
        r->api->quiet_until_us = max_i64(r->api->quiet_until_us, now_us + wait_us);
    }
    if (now_us + wait_us >= r->until_us) return done(r);
    r->api->waited_us += throttled ? wait_us : 0;
    r->wait_us = now_us + wait_us;
    r->lost = r->lost || (r->risky && !throttled);
    r->tries++;
    r->state = WEB_RUN_BEGIN;
    return WEB_TURN_WAIT;
}

static enum web_turn end_login(struct web_run *r, int64_t now_us)
{
    struct web_api *a = r->api;
    bool alone = r->kept.op == CLOUD_NONE;
    a->login_by = NULL;
    if (r->step.rc == 0) {
        a->provider.login.made = true;
        a->logins++;
        a->login_again_us = 0;
        r->logged_in = true;
        if (alone) return done(r);
        r->state = WEB_RUN_BEGIN;
        return WEB_TURN_WAIT;
    }
    blot(r->step.err.text, a->provider.login.token);
    blot(r->step.err.text, a->provider.login.key);
    a->provider.login.made = false;
    err_prefix(&r->step.err, r->step.rc, "login");
    if (may_repeat(r)) return repeat(r, now_us);
    a->login_again_us = now_us + WEB_LOGIN_AGAIN_US;
    a->login_class = r->step.class;
    a->login_err = r->step.err;
    return done(r);
}

static enum web_turn end_op(struct web_run *r, int64_t now_us)
{
    if (r->op.kind == WEB_LOGIN) return end_login(r, now_us);
    if (r->step.rc == 0) return done(r);
    if (r->step.login_refused && !r->login_renewed) {
        forget_login(r);
        r->login_renewed = true;
        r->logged_in = false;
        r->state = WEB_RUN_BEGIN;
        return WEB_TURN_WAIT;
    }
    return repeat(r, now_us);
}

/* ---- the beginning ---- */

static bool login_is_due(const struct web_run *r, int64_t now_us)
{
    const struct web_login *l = &r->api->provider.login;
    if (!l->made) return true;
    /* One that lives shorter than the margin is good for the run that made it. */
    return !r->logged_in && l->expires_us > 0 && now_us >= l->expires_us - WEB_LOGIN_MARGIN_US;
}

static void clear_op(struct web_run *r, enum web_op_kind kind)
{
    arena_reset(&r->arena);
    r->op = (struct web_op){ .kind = kind,
                             .arena = &r->arena,
                             .resume = kind == WEB_CREATE ? r->resume : 0,
                             .item = r->item,
                             .price = r->price };
    r->risky = false;
}

/* Writes the user data anew: the arena is the op's. */
static int prepare_create(struct web_run *r, struct err *err)
{
    const struct web_provider *p = &r->api->provider;
    int rc = launch_spec_decode(buf_view(&r->kept.spec), &r->arena, &r->spec, err);
    if (rc < 0) return rc;
    r->op.spec = &r->spec;
    r->op.offer = web_settings_offer(p->settings, str_from(r->kept.offer.name));
    if (!r->op.offer)
        return err_set(err, -EINVAL, STR_FMT " sells no offer %s", STR_ARG(p->settings->name),
                       r->kept.offer.name);
    if (p->kind->user_data_bytes == 0) return 0;
    buf_clear(&r->user_data);
    rc = web_user_data_write(p->settings, &r->spec, buf_view(&r->kept.key), &r->user_data, err);
    r->op.user_data = buf_view(&r->user_data);
    return rc;
}

static enum web_turn begin_login(struct web_run *r, int64_t now_us)
{
    struct web_api *a = r->api;
    if (a->login_by && a->login_by != r) {
        r->wait_us = now_us + LOOK_US;
        return WEB_TURN_WAIT;
    }
    if (now_us < a->login_again_us) {
        r->step = (struct web_step){ .next = WEB_END,
                                     .rc = web_class_errno(a->login_class),
                                     .class = a->login_class,
                                     .err = a->login_err };
        return done(r);
    }
    a->login_by = r;
    clear_op(r, WEB_LOGIN);
    r->state = WEB_RUN_OP;
    r->step.next = WEB_WAIT;
    return WEB_TURN_WAIT;
}

static enum web_turn begin(struct web_run *r, int64_t now_us)
{
    struct err err = { 0 };
    if (r->kept.op == CLOUD_NONE || login_is_due(r, now_us)) return begin_login(r, now_us);
    clear_op(r, op_of[r->kept.op]);
    r->login_used = r->api->logins;
    if (r->kept.op != CLOUD_LIST && r->kept.op != CLOUD_PRICES) r->op.call = &r->kept;
    int rc = r->kept.op == CLOUD_CREATE ? prepare_create(r, &err) : 0;
    if (rc < 0) {
        web_refuse(&r->step, rc == -ENOMEM ? OFFER_TRANSIENT : OFFER_INVALID, "%s", err.text);
        return done(r);
    }
    r->state = WEB_RUN_OP;
    r->step.next = WEB_WAIT;
    return WEB_TURN_WAIT;
}

/* ---- turns ---- */

static void step(struct web_run *r, const struct web_reply *reply, int64_t now_us, int64_t wall_us)
{
    struct web_provider *p = &r->api->provider;
    struct web_step next = { .next = WEB_END };
    p->kind->step(p, &r->op, reply, now_us, wall_us, &next);
    r->step = next;
    must(next.next != WEB_END || next.rc <= 0);
    r->wait_us = next.next == WEB_WAIT ? now_us + next.wait_us : 0;
}

static void take_reply(struct web_run *r, const struct web_reply *reply, int64_t now_us,
                       int64_t wall_us)
{
    bool reads = r->step.ask.reads || str_eq(r->step.ask.method, STR("GET"));
    if (r->op.kind == WEB_CREATE && !reads && (reply->sent || reply->status != 0)) {
        r->risky = true;
        r->resume = r->op.stage;
    }
    step(r, reply, now_us, wall_us);
}

/* Goes on with a step that wants a request. */
static enum web_turn ask(struct web_run *r, int64_t now_us)
{
    struct web_api *a = r->api;
    int64_t when_us = a->quiet_until_us;
    if (r->op.asks == WEB_ASKS_MAX) {
        web_refuse(&r->step, OFFER_TRANSIENT, "%s: more than %d requests", web_op_names[r->op.kind],
                   WEB_ASKS_MAX);
        return done(r);
    }
    if (now_us >= when_us && take_token(a, now_us, &when_us)) {
        r->op.asks++;
        return WEB_TURN_ASK;
    }
    a->waited_us += when_us - now_us;
    r->wait_us = when_us;
    return WEB_TURN_WAIT;
}

static enum web_turn go_on(struct web_run *r, int64_t now_us, int64_t wall_us)
{
    if (r->state == WEB_RUN_BEGIN) return begin(r, now_us);
    switch (r->step.next) {
    case WEB_ASK:
        return ask(r, now_us);
    case WEB_WAIT:
        step(r, NULL, now_us, wall_us);
        return WEB_TURN_WAIT;
    case WEB_END:
        break;
    }
    return end_op(r, now_us);
}

static enum web_turn give_up(struct web_run *r)
{
    if (r->step.rc < 0) return done(r); /* the last failure says why */
    web_refuse(&r->step, OFFER_TRANSIENT, "%s of " STR_FMT ": not done within %d s",
               web_op_names[r->op.kind], STR_ARG(r->api->provider.settings->name),
               (int)(WEB_RUN_US / 1000000));
    return done(r);
}

enum web_turn web_run_turn(struct web_run *r, const struct web_reply *reply, int64_t now_us,
                           int64_t wall_us)
{
    if (reply) take_reply(r, reply, now_us, wall_us);
    for (int turns = 0; r->state != WEB_RUN_DONE; turns++) {
        must(turns < TURNS_MAX);
        if (now_us < r->wait_us) return WEB_TURN_WAIT;
        bool over = now_us >= r->until_us && !(r->step.next == WEB_END && r->state == WEB_RUN_OP);
        enum web_turn next = over ? give_up(r) : go_on(r, now_us, wall_us);
        if (next != WEB_TURN_WAIT) return next;
    }
    return WEB_TURN_DONE;
}

int64_t web_run_deadline_us(const struct web_run *r, int64_t now_us)
{
    int64_t wanted_us = r->step.ask.deadline_us > 0 ? r->step.ask.deadline_us : WEB_CALL_US;
    return max_i64(1000000, min_i64(wanted_us, r->until_us - now_us));
}

int web_run_begin(struct web_run *r, struct web_api *api, const struct cloud_call *call,
                  struct listed *item, struct cloud_price *price, int64_t now_us, struct err *err)
{
    *r = (struct web_run){
        .api = api, .item = item, .price = price, .until_us = now_us + WEB_RUN_US
    };
    int rc = call ? cloud_keep(call, now_us, &r->kept, err) : 0;
    if (rc < 0) return rc;
    arena_init(&r->arena, WEB_ARENA_BYTES);
    return 0;
}

void web_run_event(const struct web_run *r, struct cloud_event *ret)
{
    must(r->state == WEB_RUN_DONE);
    ret->id = r->kept.id;
    ret->op = r->kept.op;
    ret->rc = r->step.rc;
    ret->class = r->step.rc < 0 ? r->step.class : OFFER_OK;
    ret->err = r->step.err;
    ret->epoch_seen = 0;
    ret->made = r->op.made;
    ret->item = r->item;
    ret->count = r->step.rc < 0 ? 0 : r->op.count;
}

void web_run_fini(struct web_run *r)
{
    if (r->api && r->api->login_by == r) r->api->login_by = NULL;
    if (r->user_data.data) explicit_bzero(r->user_data.data, r->user_data.len);
    buf_fini(&r->user_data);
    cloud_kept_fini(&r->kept);
    arena_fini(&r->arena);
    *r = (struct web_run){ 0 };
}
