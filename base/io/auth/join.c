/* join.c - tokens, and the two sealed messages of a join. */
#include "base/io/auth/join.h"

#include "base/core/bits.h"
#include "base/core/own.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "muster-join-token 1\n"
#define INFO STR("muster join 1")
#define ASKS STR("let me in") /* the seal proves who asks; it carries nothing */
#define WELCOME STR("welcome\n")
#define REFUSED STR("refused\n")

_Static_assert(sizeof(struct auth_key) == sizeof(struct hpke_key), "either is a digest");

static struct hpke_key key_of(const struct auth_key *k)
{
    struct hpke_key ret;
    memcpy(ret.byte, k->byte, sizeof ret.byte);
    return ret;
}

static void keys_of(struct str secret, struct str instance, struct hpke_key *ret_token,
                    struct hpke_key *ret_seed)
{
    struct auth_key token, seed;
    auth_join_keys(secret, instance, &token, &seed);
    *ret_token = key_of(&token);
    *ret_seed = key_of(&seed);
    explicit_bzero(&token, sizeof token);
    explicit_bzero(&seed, sizeof seed);
}

/* ---- the token's file ---- */

int join_token_print(struct str secret, struct str instance, struct buf *out)
{
    struct hpke_key token, seed, own, controller;
    char token_hex[2 * HPKE_KEY_BYTES + 1], controller_hex[2 * HPKE_KEY_BYTES + 1];
    keys_of(secret, instance, &token, &seed);
    int rc = hpke_key_pair(&seed, &own, &controller);
    hex_from(token.byte, sizeof token.byte, token_hex);
    hex_from(controller.byte, sizeof controller.byte, controller_hex);
    if (rc == 0)
        rc = buf_printf(out, MAGIC "instance " STR_FMT "\ntoken %s\ncontroller %s\n",
                        STR_ARG(instance), token_hex, controller_hex);
    explicit_bzero(&token, sizeof token);
    explicit_bzero(&seed, sizeof seed);
    explicit_bzero(&own, sizeof own);
    explicit_bzero(token_hex, sizeof token_hex);
    return rc;
}

/* Takes the value of the next line, which must begin with `name` and a blank. */
static bool line_of(struct str *rest, const char *name, struct str *ret)
{
    struct str value = str_cut(rest, '\n'), word = str_cut(&value, ' ');
    *ret = value;
    return value.data && str_eq(word, str_from(name));
}

/* A name is compared and logged as text. */
static bool is_plain(struct str name)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.data[i] <= ' ' || name.data[i] > '~') return false;
    return name.len > 0 && name.len <= CREDENTIALS_NAME_BYTES;
}

int join_token_parse(struct str text, struct join_token *ret)
{
    struct join_token t = { 0 };
    struct str rest = text, name, token, controller;
    if (!str_starts(text, STR(MAGIC))) return -EINVAL;
    str_cut(&rest, '\n');
    bool fine = line_of(&rest, "instance", &name) && line_of(&rest, "token", &token) &&
                line_of(&rest, "controller", &controller) && is_plain(name) &&
                hex_to(token, t.token.byte, sizeof t.token.byte) == 0 &&
                hex_to(controller, t.controller.byte, sizeof t.controller.byte) == 0;
    if (!fine) return -EINVAL;
    memcpy(t.instance, name.data, name.len);
    *ret = t;
    return 0;
}

/* ---- the two messages ---- */

int join_ask(const struct join_token *t, const struct hpke_key *seed, struct join *ret,
             struct buf *seal)
{
    const struct str name = str_from(t->instance);
    const struct hpke_known known = { .psk = t->token, .psk_id = name, .info = INFO };
    int rc = hpke_send(&t->controller, &known, seed, &ret->enc, &ret->context);
    return rc < 0 ? rc : hpke_seal(&ret->context, name, ASKS, seal);
}

int join_hear(struct str secret, struct str instance, const struct hpke_key *enc, struct str seal,
              struct join *ret)
{
    CLEANUP(buf_fini) struct buf text = { .max = JOIN_SEAL_BYTES_MAX };
    struct hpke_known known = { .psk_id = instance, .info = INFO };
    struct hpke_key seed, own, unused;
    struct join j = { .enc = *enc };
    keys_of(secret, instance, &known.psk, &seed);
    int rc = hpke_key_pair(&seed, &own, &unused);
    if (rc == 0) rc = hpke_receive(&own, &known, enc, &j.context);
    if (rc == 0) rc = hpke_open(&j.context, instance, seal, &text);
    if (rc == 0 && !str_eq(buf_view(&text), ASKS)) rc = -EACCES;
    explicit_bzero(&known, sizeof known);
    explicit_bzero(&seed, sizeof seed);
    explicit_bzero(&own, sizeof own);
    if (rc == 0) *ret = j;
    join_wipe(&j);
    return rc == 0 || rc == -ENOMEM ? rc : -EACCES;
}

void join_mark(const struct join *j, char ret[JOIN_MARK_BYTES])
{
    uint8_t digest[SHA256_BYTES];
    sha256(j->enc.byte, sizeof j->enc.byte, digest);
    hex_from(digest, (JOIN_MARK_BYTES - 1) / 2, ret);
}

static int answer(const struct join *j, const struct hpke_key *nonce, struct str text,
                  struct buf *out)
{
    struct hpke reply;
    hpke_reply(&j->context, &j->enc, nonce, &reply);
    int rc = hpke_seal(&reply, (struct str){ 0 }, text, out);
    explicit_bzero(&reply, sizeof reply);
    return rc;
}

int join_welcome(const struct join *j, const struct hpke_key *nonce, struct str secret,
                 struct str instance, struct buf *out)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_str(&text, WELCOME);
    int rc = credentials_print_instance(secret, instance, &text);
    if (rc == 0) rc = answer(j, nonce, buf_view(&text), out);
    if (text.data) explicit_bzero(text.data, text.len);
    return rc;
}

int join_refuse(const struct join *j, const struct hpke_key *nonce, const char *why,
                struct buf *out)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_str(&text, REFUSED);
    buf_text(&text, why);
    return text.rc < 0 ? text.rc : answer(j, nonce, buf_view(&text), out);
}

int join_read(const struct join *j, const struct hpke_key *nonce, struct str seal, struct buf *out)
{
    struct hpke reply;
    size_t before = out->len;
    hpke_reply(&j->context, &j->enc, nonce, &reply);
    int rc = hpke_open(&reply, (struct str){ 0 }, seal, out);
    explicit_bzero(&reply, sizeof reply);
    if (rc < 0) return rc;
    struct str text = str_of(out->data + before, out->len - before);
    const bool welcome = str_starts(text, WELCOME), refused = str_starts(text, REFUSED);
    _Static_assert(sizeof "welcome\n" == sizeof "refused\n", "one cut");
    if (!welcome && !refused) return -EBADMSG;
    memmove(out->data + before, text.data + WELCOME.len, text.len - WELCOME.len + 1);
    out->len -= WELCOME.len;
    return welcome ? 0 : -EACCES;
}

void join_wipe(struct join *j)
{
    explicit_bzero(j, sizeof *j);
}
