/* f_auth.c - reads any text as the header of a signed request or reply and as a ticket: each is read
 * in one form or refused, and never believed without the key. */
#include "base/io/auth/auth.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

const struct fuzz_cost fuzz_cost = { .flat = 4000, .per_byte = 64 };

static void as_request(struct str text, const struct auth_key *key)
{
    struct auth_request a;
    if (auth_request_parse(text, &a) < 0) return;
    must(auth_is_request(text) && a.id.len > 0 && a.id.len <= AUTH_ID_BYTES_MAX);
    must(a.covered.data == text.data && a.covered.len < text.len);
    struct auth_receiver r;
    auth_receiver_init(&r, a.epoch, 0);
    must(auth_receive(&r, &a, key, STR("GET"), STR("/"), 0) == AUTH_FOREIGN);
    must(r.sessions.count == 0); /* a stranger leaves nothing behind */
    auth_receiver_fini(&r);
    struct auth_key k;
    (void)auth_key_of(STR("secret"), a.id, &k);
    (void)auth_instance_key_of(key, STR("i"), a.id, &k);
}

static void as_ticket(struct str text)
{
    char tenant[AUTH_TENANT_BYTES_MAX], again[AUTH_TENANT_BYTES_MAX], id[AUTH_ID_BYTES_MAX];
    struct auth_ticket t, back;
    if (auth_ticket_parse(text, tenant, &t) < 0) return;
    must(t.tenant.len <= sizeof tenant);
    if (auth_ticket_print(&t, id) < 0) return;
    must(auth_ticket_parse(str_from(id), again, &back) == 0);
    must(back.epoch == t.epoch && back.until_us == t.until_us && str_eq(back.tenant, t.tenant));
}

void fuzz_one(const uint8_t *data, size_t len)
{
    struct str text = str_of(data, len);
    const struct auth_sent sent = { .mac = { 1 } };
    struct auth_key key;
    struct auth_reply reply;
    memset(&key, 7, sizeof key);
    as_request(text, &key);
    must(auth_reply_check(&sent, 200, text, &reply) < 0);
    as_ticket(text);
}
