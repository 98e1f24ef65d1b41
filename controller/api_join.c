/* api_join.c - answers an agent that shows the token of its instance (base/io/auth/join.h, core/join.h).
 *
 * The path is open to anybody, because the body alone proves who asks. It costs two multiplications on a curve, a tenth
 * of a millisecond, and only for an instance that is there. */
#include "base/core/own.h"
#include "base/io/auth/join.h"
#include "base/wire/launch.h"
#include "controller/api_call.h"
#include "controller/joins.h"

#include <errno.h>
#include <sys/random.h>

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
