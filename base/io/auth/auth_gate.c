/* auth_gate.c - checks signatures of requests and signs replies, with one gate per server. */
#include "base/io/auth/auth_gate.h"

#include "base/core/bits.h"

void auth_gate_init(struct auth_gate *g, const struct credentials *held, const char *const *ids,
                    uint64_t epoch, int64_t now_us)
{
    *g = (struct auth_gate){ .held = held, .ids = ids };
    auth_receiver_init(&g->receiver, epoch, now_us);
}

void auth_gate_fini(struct auth_gate *g)
{
    auth_receiver_fini(&g->receiver);
}

void auth_gate_meters(struct auth_gate *g, struct metrics *metrics, uint32_t verdicts)
{
    g->metrics = metrics;
    g->verdicts = verdicts;
    const struct str known[] = { STR("fresh"), STR("stale"), STR("foreign") };
    for (size_t i = 0; i < COUNT_OF(known); i++)
        metric_series(metrics, verdicts, &known[i]); /* a rate needs a zero */
}

static void count(const struct auth_gate *g, struct str verdict)
{
    if (g->metrics) metric_inc(metric_series(g->metrics, g->verdicts, &verdict));
}

struct str auth_bearer(const struct http_request *req)
{
    struct str rest = str_trim(http_request_header(req, "authorization"));
    struct str scheme = str_cut(&rest, ' ');
    return str_eq_nocase(scheme, STR("bearer")) ? str_trim(rest) : (struct str){ 0 };
}

struct str auth_key(const struct http_request *req)
{
    if (http_request_header(req, "authorization").len > 0) return auth_bearer(req);
    return str_trim(http_request_header(req, "x-api-key"));
}

struct str auth_gate_id(const struct http_request *req)
{
    struct auth_request a;
    struct str header = http_request_header(req, "authorization");
    return auth_request_parse(header, &a) == 0 ? a.id : (struct str){ 0 };
}

static bool may_come(const struct auth_gate *g, struct str id)
{
    for (const char *const *want = g->ids; *want; want++) {
        struct str w = str_from(*want);
        if (str_ends(w, STR("/")) ? str_starts(id, w) : str_eq(id, w)) return true;
    }
    return false;
}

/* Reads the request's signature and derives the key of its id; -ENOENT: no such key is accepted here. */
static int read_signature(const struct auth_gate *g, const struct http_request *req,
                          struct auth_request *ret, struct auth_key *ret_key)
{
    struct str header = http_request_header(req, "authorization");
    if (auth_request_parse(header, ret) < 0 || !may_come(g, ret->id)) return -ENOENT;
    return credentials_key(g->held, ret->id, ret_key);
}

enum auth_identity auth_gate_head(struct auth_gate *g, struct http_exchange *x,
                                  struct auth_note *note, int64_t now_us)
{
    const struct http_request *req = http_exchange_request(x);
    struct auth_request a;
    struct auth_key key;
    *note = (struct auth_note){ .who = AUTH_NOBODY };
    if (!auth_is_request(http_request_header(req, "authorization"))) {
        if (credentials_is_secret(g->held, auth_bearer(req))) note->who = AUTH_PERSON;
        return (enum auth_identity)note->who;
    }
    if (read_signature(g, req, &a, &key) < 0) {
        count(g, STR("foreign"));
        return AUTH_NOBODY;
    }
    uint64_t forgets = auth_receiver_forgets(&g->receiver);
    enum auth_verdict verdict =
        auth_receive(&g->receiver, &a, &key, req->method, req->target, now_us);
    if (auth_receiver_forgets(&g->receiver) != forgets) count(g, STR("forgotten"));
    count(g, verdict == AUTH_FRESH   ? STR("fresh")
             : verdict == AUTH_STALE ? STR("stale")
                                     : STR("foreign"));
    if (verdict == AUTH_FOREIGN) return AUTH_NOBODY;
    memcpy(note->body, a.body, sizeof note->body);
    note->is_signed = true;
    note->who = verdict == AUTH_FRESH ? AUTH_PART : AUTH_ASKED_AGAIN;
    return (enum auth_identity)note->who;
}

bool auth_gate_body(const struct auth_note *note, const struct http_request *req)
{
    uint8_t digest[SHA256_BYTES];
    if (!note->is_signed) return true;
    sha256(req->body.data, req->body.len, digest);
    return equal_constant_time(digest, note->body, sizeof digest);
}

void auth_gate_reply(struct auth_gate *g, struct http_exchange *x, const struct auth_note *note,
                     int status, const struct str *body, int64_t now_us)
{
    struct auth_request a;
    struct auth_key key;
    char text[AUTH_TEXT_BYTES_MAX];
    if (!note->is_signed || read_signature(g, http_exchange_request(x), &a, &key) < 0) return;
    auth_reply_sign(&g->receiver, &a, &key, status, body, now_us, text);
    (void)http_reply_header(x, AUTH_REPLY_HEADER, str_from(text)); /* plain text always fits */
}
