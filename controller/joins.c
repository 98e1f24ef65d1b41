/* joins.c - keeps who has joined as which instance, tells people of tokens that were used twice, and
 * answers agents.
 *
 *     first agent with the token   mark stored ─► join.recorded ─► it hears that it is in
 *     the same again               it hears the same
 *     another                      refused; the instance is contested: stored, then an event, then its end
 *
 * Refusals are logged, and are events, once a second at most: whoever has a token can ask often. */
#include "controller/joins.h"

#include "base/core/own.h"
#include "base/io/auth/join.h"
#include "base/io/log.h"
#include "base/wire/launch.h"
#include "controller/api_call.h"
#include "controller/control_state.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#define REFUSED_LOG_US 1000000
#define CONTESTED "two agents have joined with its token"

const char control_join_step[] = "join.recorded";

void control_count_foreign(struct control *c)
{
    control_count(c, CONTROL_M_JOINS, "foreign");
}

/* Returns the intent's place, or UINT32_MAX. */
static uint32_t find(const struct control *c, struct str instance)
{
    char id[INTENT_ID_BYTES];
    uint32_t at = name_copy(id, sizeof id, instance) < 0 ? UINT32_MAX : control_find(c, id);
    uint32_t cloud =
        at == UINT32_MAX ? PLAN_NONE : control_find_cloud(c, c->money.intent[at].provider);
    return cloud != PLAN_NONE && c->observed.provider[cloud].cloud.joins ? at : UINT32_MAX;
}

bool control_may_join(const struct control *c, struct str instance)
{
    return find(c, instance) != UINT32_MAX;
}

static void note(struct control *c, const struct intent *i, const char *what, const char *why,
                 int64_t now_us)
{
    const struct event_note event = { .what = what,
                                      .service = i->service,
                                      .pool = i->pool,
                                      .instance = i->id,
                                      .offer = i->offer,
                                      .text = why };
    control_note(c, &event, now_us);
}

/* The instance is contested from now on: one of two agents has stolen its token. The next tick ends it
 * (control_heed_contest). */
static int contest(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    if (i->contested_us) return 0;
    int rc = control_keep_join(c, at, NULL, now_us);
    if (rc < 0) return rc;
    log_event(LOG_ERROR, "join_token_stolen", "id=%s service=%s pool=%s replaced=%d", i->id,
              i->service, i->pool, c->setup.join.replaces);
    note(c, i, "token_stolen", CONTESTED, now_us);
    c->urgent = true;
    return 0;
}

int control_heed_contest(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    if (!i->contested_us || !c->setup.join.replaces || i->state >= INTENT_ENDING) return 0;
    return control_apply(c, at, INTENT_END, CONTESTED, NULL, now_us);
}

static void tell_refusal(struct control *c, const struct intent *i, enum join_verdict v,
                         int64_t now_us)
{
    uint64_t skipped;
    if (!log_pass(&c->refused_joins, now_us, REFUSED_LOG_US, &skipped)) return;
    log_event(LOG_WARN, "join_refused", "id=%s verdict=%s why=%s skipped=%llu", i->id,
              join_verdict_names[v], join_verdict_reasons[v], (unsigned long long)skipped);
    note(c, i, "join_refused", join_verdict_reasons[v], now_us);
}

int control_join(struct control *c, struct str instance, const char *mark, int64_t now_us,
                 enum join_verdict *ret)
{
    owner_assert(&c->owner);
    uint32_t at = find(c, instance);
    if (at == UINT32_MAX) return -ENOENT;
    const struct intent *i = &c->money.intent[at];
    enum join_verdict v = join_judge(i, mark, c->setup.join.within_us, now_us);
    control_count(c, CONTROL_M_JOINS, join_verdict_names[v]);
    int rc = 0;
    if (v == JOIN_FIRST) rc = control_keep_join(c, at, mark, now_us);
    if (v == JOIN_FIRST && rc == 0) {
        log_event(LOG_INFO, "joined", "id=%s service=%s pool=%s", i->id, i->service, i->pool);
        rc = control_step_at(c, control_join_step);
    }
    if (!join_is_welcome(v)) tell_refusal(c, i, v, now_us);
    if (v == JOIN_TAKEN) rc = contest(c, at, now_us);
    *ret = v;
    return rc == 0 || rc == -ECANCELED ? rc : -EAGAIN;
}

/* ---- the call ---- */

/* Answers an agent that shows the token of its instance (base/io/auth/join.h, core/join.h).
 *
 * The path is open to anybody, because the body alone proves who asks. It costs two multiplications on a curve, a tenth
 * of a millisecond, and only for an instance that is there. */

/* Answers sealed, so that a refusal is the controller's word: an agent ends its machine on it. */
static void answer_join(struct call *k, const struct join *j, struct str instance,
                        enum join_verdict v)
{
    CLEANUP(buf_fini) struct buf seal = { 0 };
    CLEANUP(buf_fini) struct buf seal_hex = { 0 };
    struct hpke_key nonce;
    char nonce_hex[2 * HPKE_KEY_BYTES + 1];
    int rc = getrandom(&nonce, sizeof nonce, 0) == sizeof nonce ? 0 : -EIO;
    if (rc == 0 && join_is_welcome(v))
        rc = join_welcome(j, &nonce, str_from(k->api->config.held->secret), instance, &seal);
    else if (rc == 0)
        rc = join_refuse(j, &nonce, join_verdict_reasons[v], &seal);
    if (rc == 0) rc = buf_reserve(&seal_hex, 2 * seal.len + 1);
    if (rc < 0) {
        call_refuse(k, 503, "failed", "the reply cannot be sealed now");
        return;
    }
    hex_from(nonce.byte, sizeof nonce.byte, nonce_hex);
    hex_from((const uint8_t *)seal.data, seal.len, seal_hex.data);
    const struct join_reply reply = { str_from(nonce_hex), str_of(seal_hex.data, 2 * seal.len) };
    join_reply_encode(&reply, &k->api->out);
    call_answer(k, join_is_welcome(v) ? 200 : 403, &k->api->out);
}

/* Reads a join and opens it. -EACCES: it is not of an instance that may join. */
static int hear_join(struct call *k, struct join_request *ret, struct join *ret_join,
                     struct err *err)
{
    struct hpke_key enc;
    uint8_t seal[JOIN_SEAL_BYTES_MAX];
    int rc = join_request_decode(k->req->body, &k->api->arena, ret, err);
    if (rc < 0) return rc;
    size_t bytes = ret->seal.len / 2;
    if (hex_to(ret->enc, enc.byte, sizeof enc.byte) < 0 || bytes > sizeof seal ||
        hex_to(ret->seal, seal, bytes) < 0)
        return err_set(err, -EINVAL, "the join: enc and seal are hexadecimal");
    if (!control_may_join(k->api->control, ret->instance)) return -EACCES;
    return join_hear(str_from(k->api->config.held->secret), ret->instance, &enc,
                     str_of(seal, bytes), ret_join);
}

void agents_join(struct call *k)
{
    struct join_request r;
    struct join j;
    struct err err = { 0 };
    char mark[JOIN_MARK_BYTES];
    enum join_verdict v = JOIN_CLOSED;
    int rc = hear_join(k, &r, &j, &err);
    if (rc == -EACCES) {
        control_count_foreign(k->api->control);
        call_refuse(k, 403, "token", "that is not the token of an instance that may join");
        return;
    }
    if (rc < 0) {
        call_refuse(k, rc == -EINVAL ? 400 : 503, "invalid", err_text(&err, rc));
        return;
    }
    join_mark(&j, mark);
    rc = control_join(k->api->control, r.instance, mark, api_now(k->api), &v);
    if (rc < 0)
        call_refuse(k, 503, "store_away", "that it joined cannot be kept now");
    else
        answer_join(k, &j, r.instance, v);
    join_wipe(&j);
    call_tell_urgent(k->api);
}
