/* auth.c - derives keys, signs requests and replies, and checks their signatures.
 *
 * A signature covers the header's own text up to its mac, so there is no second form of the same fields
 * that two sides could write differently. The parser takes one order of fields and one way to write
 * each, and refuses everything else.
 */
#include "base/io/auth/auth.h"

#include "base/core/bits.h"

#include <errno.h>
#include <stdio.h>

#define TICKET "ticket/"
#define MAC_HEX (2 * SHA256_BYTES)

/* ---- keys ---- */

static struct str key_str(const struct auth_key *k)
{
    return str_of(k->byte, sizeof k->byte);
}

static void derive(struct str from, const char *label, struct str name, struct auth_key *ret)
{
    const struct str parts[] = { STR("muster-key 1 "), str_from(label), str_of("", 1), name };
    hmac_sha256(from, parts, COUNT_OF(parts), ret->byte);
}

void auth_instance_key(struct str secret, struct str name, struct auth_key *ret)
{
    derive(secret, "instance", name, ret);
}

void auth_join_keys(struct str secret, struct str name, struct auth_key *ret_token,
                    struct auth_key *ret_seed)
{
    derive(secret, "join-token", name, ret_token);
    derive(secret, "join", (struct str){ 0 }, ret_seed);
}

static bool after(struct str id, const char *prefix, struct str *ret)
{
    struct str p = str_from(prefix);
    if (!str_starts(id, p)) return false;
    *ret = str_of(id.data + p.len, id.len - p.len);
    return true;
}

/* Returns the owner in ticket/EPOCH/UNTIL/TENANT/OWNER/READER; empty for an id that is no ticket. */
static struct str ticket_owner(struct str id)
{
    struct str rest;
    if (!after(id, TICKET, &rest)) return (struct str){ 0 };
    for (int i = 0; i < 3; i++)
        str_cut(&rest, '/');
    return str_cut(&rest, '/');
}

/* Returns the owner in weights/OWNER/READER; empty for another id. */
static struct str weights_owner(struct str id)
{
    struct str rest;
    if (!after(id, "weights/", &rest)) return (struct str){ 0 };
    struct str owner = str_cut(&rest, '/');
    return rest.len > 0 ? owner : (struct str){ 0 };
}

int auth_key_of(struct str secret, struct str id, struct auth_key *ret)
{
    struct auth_key instance;
    struct str name;
    if (str_eq(id, STR("router")) || str_eq(id, STR("cli")) || str_starts(id, STR("cli/"))) {
        derive(secret, "role", id, ret);
        return 0;
    }
    if (!after(id, "agent/", &name) && !after(id, "engine/", &name)) {
        name = weights_owner(id);
        if (name.len == 0 && !str_starts(id, STR(TICKET))) return -ENOENT;
        if (name.len == 0) name = ticket_owner(id);
    }
    auth_instance_key(secret, name, &instance);
    return auth_instance_key_of(&instance, name, id, ret);
}

int auth_instance_key_of(const struct auth_key *instance, struct str name, struct str id,
                         struct auth_key *ret)
{
    struct str named, none = { 0 };
    bool is_agent = after(id, "agent/", &named), is_engine = after(id, "engine/", &named);
    if (is_agent || is_engine) {
        if (!str_eq(named, name)) return -ENOENT;
        derive(key_str(instance), is_agent ? "agent" : "engine", none, ret);
        return 0;
    }
    struct str owner = weights_owner(id);
    if (owner.len > 0) {
        if (!str_eq(owner, name)) return -ENOENT;
        derive(key_str(instance), "weights", id, ret);
        return 0;
    }
    if (!str_starts(id, STR(TICKET)) || !str_eq(ticket_owner(id), name)) return -ENOENT;
    struct auth_key engine;
    derive(key_str(instance), "engine", none, &engine);
    derive(key_str(&engine), "ticket", id, ret);
    return 0;
}

/* ---- tickets ---- */

int auth_ticket_print(const struct auth_ticket *t, char ret[AUTH_ID_BYTES_MAX])
{
    char tenant[2 * AUTH_TENANT_BYTES_MAX + 1] = "";
    if (t->tenant.len > AUTH_TENANT_BYTES_MAX) return -E2BIG;
    hex_from((const uint8_t *)t->tenant.data, t->tenant.len, tenant);
    int n = snprintf(ret, AUTH_ID_BYTES_MAX, TICKET "%016llx/%lld/%s/" STR_FMT "/" STR_FMT,
                     (unsigned long long)t->epoch, (long long)t->until_us, tenant,
                     STR_ARG(t->owner), STR_ARG(t->reader));
    return n < AUTH_ID_BYTES_MAX ? 0 : -E2BIG;
}

static int hex64(struct str s, uint64_t *ret)
{
    uint8_t byte[8];
    if (hex_to(s, byte, sizeof byte) < 0) return -EINVAL;
    *ret = 0;
    for (size_t i = 0; i < sizeof byte; i++)
        *ret = *ret << 8 | byte[i];
    return 0;
}

int auth_ticket_parse(struct str id, char tenant[AUTH_TENANT_BYTES_MAX], struct auth_ticket *ret)
{
    struct str rest;
    if (!after(id, TICKET, &rest)) return -EINVAL;
    struct str epoch = str_cut(&rest, '/'), until = str_cut(&rest, '/'), hex = str_cut(&rest, '/');
    if (hex64(epoch, &ret->epoch) < 0 || str_to_i64(until, &ret->until_us) < 0) return -EINVAL;
    if (hex.len > 2 * AUTH_TENANT_BYTES_MAX || hex_to(hex, (uint8_t *)tenant, hex.len / 2) < 0)
        return -EINVAL;
    ret->owner = str_cut(&rest, '/');
    if (!rest.data) return -EINVAL;
    ret->reader = rest;
    ret->tenant = str_of(tenant, hex.len / 2);
    return 0;
}

/* ---- the mac ---- */

/* Returns true if an id has a valid length and no byte that could end a field or a header. */
static bool id_is_plain(struct str id)
{
    for (size_t i = 0; i < id.len; i++) {
        char c = id.data[i];
        if (c <= ' ' || c > '~' || c == ',' || c == '"' || c == '\\') return false;
    }
    return id.len > 0 && id.len <= AUTH_ID_BYTES_MAX;
}

static void request_mac(const struct auth_key *key, struct str covered, struct str method,
                        struct str target, uint8_t ret[SHA256_BYTES])
{
    const struct str parts[] = {
        STR("muster-request 1\n"), covered, STR("\n"), method, STR("\n"), target
    };
    hmac_sha256(key_str(key), parts, COUNT_OF(parts), ret);
}

static void reply_mac(const struct auth_key *key, const uint8_t request[SHA256_BYTES], int status,
                      struct str covered, uint8_t ret[SHA256_BYTES])
{
    char number[16];
    snprintf(number, sizeof number, "\n%d\n", status);
    const struct str parts[] = { STR("muster-reply 1\n"), str_of(request, SHA256_BYTES),
                                 str_from(number), covered };
    hmac_sha256(key_str(key), parts, COUNT_OF(parts), ret);
}

static void put_mac(char text[AUTH_TEXT_BYTES_MAX], int covered, const uint8_t mac[SHA256_BYTES])
{
    char hex[MAC_HEX + 1];
    hex_from(mac, SHA256_BYTES, hex);
    snprintf(text + covered, AUTH_TEXT_BYTES_MAX - (size_t)covered, ", mac=%s", hex);
}

/* ---- reading ---- */

/* Takes the field `name` off the front of *rest. */
static int take(struct str *rest, const char *name, struct str *ret)
{
    struct str want = str_from(name);
    if (!str_starts(*rest, want)) return -EINVAL;
    *rest = str_of(rest->data + want.len, rest->len - want.len);
    *ret = str_cut(rest, ',');
    if (!rest->data) return 0;
    if (rest->len == 0 || rest->data[0] != ' ') return -EINVAL;
    *rest = str_of(rest->data + 1, rest->len - 1);
    return 0;
}

/* Takes the last field, the mac: nothing may follow it, and `covered` ends before its comma. */
static int take_mac(struct str header, struct str *rest, struct str *ret_covered,
                    uint8_t ret[SHA256_BYTES])
{
    struct str mac;
    if (!rest->data) return -EINVAL;
    size_t before = (size_t)(rest->data - header.data) - 2;
    if (take(rest, "mac=", &mac) < 0 || rest->data) return -EINVAL;
    *ret_covered = str_of(header.data, before);
    return hex_to(mac, ret, SHA256_BYTES);
}

static int take_number(struct str *rest, const char *name, int64_t *ret)
{
    struct str text;
    return take(rest, name, &text) < 0 ? -EINVAL : str_to_i64(text, ret);
}

bool auth_is_request(struct str header)
{
    struct str scheme = STR(AUTH_SCHEME " ");
    return header.len >= scheme.len && str_eq_nocase(str_of(header.data, scheme.len), scheme);
}

int auth_request_parse(struct str header, struct auth_request *ret)
{
    struct str epoch, nonce, body;
    if (!auth_is_request(header)) return -EINVAL;
    size_t skip = sizeof AUTH_SCHEME;
    struct str rest = str_of(header.data + skip, header.len - skip);
    if (take(&rest, "id=", &ret->id) < 0 || take(&rest, "epoch=", &epoch) < 0 ||
        take(&rest, "nonce=", &nonce) < 0 || take_number(&rest, "time=", &ret->time_us) < 0 ||
        take(&rest, "body=", &body) < 0 || take_mac(header, &rest, &ret->covered, ret->mac) < 0)
        return -EINVAL;
    struct str counter = nonce, session = str_cut(&counter, '-');
    bool good = id_is_plain(ret->id) && hex64(epoch, &ret->epoch) == 0 &&
                hex64(session, &ret->session) == 0 && hex64(counter, &ret->counter) == 0 &&
                hex_to(body, ret->body, sizeof ret->body) == 0;
    return good ? 0 : -EINVAL;
}

/* ---- the sending side ---- */

int auth_sign(struct auth_sender *s, const struct auth_peer *peer, struct str id,
              const struct auth_key *key, const struct auth_message *m, int64_t now_us,
              char ret_text[AUTH_TEXT_BYTES_MAX], struct auth_sent *ret)
{
    uint8_t digest[SHA256_BYTES];
    char body[SHA256_HEX + 1];
    if (id.len > AUTH_ID_BYTES_MAX) return -E2BIG;
    if (!id_is_plain(id)) return -EINVAL;
    sha256(m->body.data, m->body.len, digest);
    hex_from(digest, sizeof digest, body);
    int n = snprintf(ret_text, AUTH_TEXT_BYTES_MAX,
                     AUTH_SCHEME " id=" STR_FMT ", epoch=%016llx, nonce=%016llx-%016llx, "
                                 "time=%lld, body=%s",
                     STR_ARG(id), (unsigned long long)peer->epoch, (unsigned long long)s->session,
                     (unsigned long long)++s->counter,
                     (long long)(peer->epoch ? now_us + peer->ahead_us : 0), body);
    if (n < 0 || (size_t)n + sizeof ", mac=" + MAC_HEX > AUTH_TEXT_BYTES_MAX) return -E2BIG;
    ret->key = *key;
    request_mac(key, str_of(ret_text, (size_t)n), m->method, m->target, ret->mac);
    put_mac(ret_text, n, ret->mac);
    return 0;
}

int auth_reply_check(const struct auth_sent *sent, int status, struct str header,
                     struct auth_reply *ret)
{
    struct str rest = header, epoch, body, covered;
    uint8_t theirs[SHA256_BYTES], mine[SHA256_BYTES];
    if (take(&rest, "epoch=", &epoch) < 0 || hex64(epoch, &ret->epoch) < 0 ||
        take_number(&rest, "time=", &ret->time_us) < 0 || take(&rest, "body=", &body) < 0 ||
        take_mac(header, &rest, &covered, theirs) < 0)
        return -EINVAL;
    ret->is_stream = str_eq(body, STR("stream"));
    if (!ret->is_stream && hex_to(body, ret->body, sizeof ret->body) < 0) return -EINVAL;
    reply_mac(&sent->key, sent->mac, status, covered, mine);
    return equal_constant_time(mine, theirs, sizeof mine) ? 0 : -EACCES;
}

/* ---- the receiving side ---- */

struct session_key {
    uint64_t id, session;
};

/* A session's newest counter, and a bit for each counter up to it that has come: bit 0 is `top`. */
struct session {
    uint64_t top;
    int64_t heard_us;
    uint64_t seen[AUTH_SEEN_BITS / 64];
};

void auth_receiver_init(struct auth_receiver *r, uint64_t epoch, int64_t now_us)
{
    *r = (struct auth_receiver){ .epoch = epoch ? epoch : 1, .born_us = now_us };
    lock_init(&r->lock);
    map_init(&r->sessions, sizeof(struct session_key), sizeof(struct session), AUTH_SESSIONS_MAX,
             MAP_FOREIGN);
}

void auth_receiver_fini(struct auth_receiver *r)
{
    if (r->epoch == 0) return;
    map_fini(&r->sessions);
    lock_fini(&r->lock);
    r->epoch = 0;
}

int64_t auth_receiver_time(const struct auth_receiver *r, int64_t now_us)
{
    return now_us - r->born_us + 1; /* never 0: a sender writes 0 if it does not know the time */
}

uint64_t auth_receiver_forgets(struct auth_receiver *r)
{
    lock_take(&r->lock);
    uint64_t forgets = r->forgets;
    lock_drop(&r->lock);
    return forgets;
}

static void shift(struct session *s, uint64_t by)
{
    const size_t words = COUNT_OF(s->seen);
    size_t whole = by / 64, bits = by % 64;
    for (size_t i = words; i-- > 0;) {
        uint64_t low = i >= whole + 1 && bits ? s->seen[i - whole - 1] >> (64 - bits) : 0;
        uint64_t high = i >= whole ? s->seen[i - whole] << bits : 0;
        s->seen[i] = high | low;
    }
}

/* Returns true the first time that a counter comes, unless it is too far behind the newest. */
static bool is_first(struct session *s, uint64_t counter, bool is_new)
{
    if (is_new) s->top = counter;
    if (counter > s->top) {
        uint64_t by = counter - s->top;
        if (by >= AUTH_SEEN_BITS)
            memset(s->seen, 0, sizeof s->seen);
        else
            shift(s, by);
        s->top = counter;
    }
    uint64_t back = s->top - counter;
    if (back >= AUTH_SEEN_BITS) return false;
    uint64_t bit = (uint64_t)1 << (back % 64);
    if (s->seen[back / 64] & bit) return false;
    s->seen[back / 64] |= bit;
    return true;
}

/* Drops sessions from which every request would be too old by now. When that frees no room it drops all
 * sessions, and from then on refuses requests of unknown sessions that are as old as the dropped ones. */
static void make_room(struct auth_receiver *r, int64_t time_us)
{
    lock_assert_held(&r->lock);
    struct session_key gone[64];
    for (;;) {
        size_t cursor = 0, count = 0;
        const void *key;
        void *value;
        while (count < COUNT_OF(gone) && map_next(&r->sessions, &cursor, &key, &value)) {
            const struct session *s = value;
            if (time_us - s->heard_us > 2 * (int64_t)AUTH_WINDOW_US)
                memcpy(&gone[count++], key, sizeof gone[0]);
        }
        for (size_t i = 0; i < count; i++)
            map_remove(&r->sessions, &gone[i]);
        if (count < COUNT_OF(gone)) break;
    }
    if (r->sessions.count < AUTH_SESSIONS_MAX) return;
    size_t cursor = 0;
    const void *key;
    void *value;
    while (map_next(&r->sessions, &cursor, &key, &value)) {
        const struct session *s = value;
        if (s->heard_us >= r->forgotten_us) r->forgotten_us = s->heard_us + 1;
    }
    map_fini(&r->sessions);
    map_init(&r->sessions, sizeof(struct session_key), sizeof(struct session), AUTH_SESSIONS_MAX,
             MAP_FOREIGN);
    r->forgets++;
}

static enum auth_verdict judge(struct auth_receiver *r, const struct auth_request *a,
                               int64_t time_us)
{
    lock_assert_held(&r->lock);
    if (a->epoch != r->epoch) return AUTH_STALE;
    if (a->time_us < time_us - AUTH_WINDOW_US || a->time_us > time_us + AUTH_WINDOW_US)
        return AUTH_STALE;
    struct session_key key = { hash64(a->id.data, a->id.len, 0), a->session };
    struct session *s = map_get(&r->sessions, &key);
    bool is_new = !s;
    if (is_new) {
        if (r->sessions.count >= AUTH_SESSIONS_MAX) make_room(r, time_us);
        if (a->time_us < r->forgotten_us) return AUTH_STALE;
        s = map_put(&r->sessions, &key, NULL);
        if (!s) return AUTH_STALE; /* no memory: a request that is not remembered is refused */
    }
    if (!is_first(s, a->counter, is_new)) return AUTH_STALE;
    if (a->time_us > s->heard_us) s->heard_us = a->time_us;
    return AUTH_FRESH;
}

enum auth_verdict auth_receive(struct auth_receiver *r, const struct auth_request *a,
                               const struct auth_key *key, struct str method, struct str target,
                               int64_t now_us)
{
    uint8_t mine[SHA256_BYTES];
    request_mac(key, a->covered, method, target, mine);
    if (!equal_constant_time(mine, a->mac, sizeof mine)) return AUTH_FOREIGN;
    lock_take(&r->lock);
    enum auth_verdict verdict = judge(r, a, auth_receiver_time(r, now_us));
    lock_drop(&r->lock);
    return verdict;
}

void auth_reply_sign(const struct auth_receiver *r, const struct auth_request *a,
                     const struct auth_key *key, int status, const struct str *body, int64_t now_us,
                     char ret_text[AUTH_TEXT_BYTES_MAX])
{
    uint8_t digest[SHA256_BYTES], mac[SHA256_BYTES];
    char hex[SHA256_HEX + 1] = "stream";
    if (body) {
        sha256(body->data, body->len, digest);
        hex_from(digest, sizeof digest, hex);
    }
    int n = snprintf(ret_text, AUTH_TEXT_BYTES_MAX, "epoch=%016llx, time=%lld, body=%s",
                     (unsigned long long)r->epoch, (long long)auth_receiver_time(r, now_us), hex);
    reply_mac(key, a->mac, status, str_of(ret_text, (size_t)n), mac);
    put_mac(ret_text, n, mac);
}
