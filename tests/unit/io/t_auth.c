/* t_auth.c - tests signatures: vectors computed by Python's hmac, replays, windows, changes,
 * tickets. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "base/io/auth/auth.h"
#include "base/io/auth/key_file.h"
#include "base/io/file.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SECRET "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define TARGET "/api/v1/agents/report?x=1"
#define BODY "{\"v\":1}"
#define EPOCH 0xaa

static void expect_key(const char *id, const char *hex)
{
    struct auth_key k;
    char got[2 * AUTH_KEY_BYTES + 1];
    assert_int_equal(auth_key_of(STR(SECRET), str_from(id), &k), 0);
    hex_from(k.byte, sizeof k.byte, got);
    assert_string_equal(got, hex);
}

static void hmac_is_that_of_rfc_4231(void **state)
{
    (void)state;
    char key[131], hex[SHA256_HEX + 1];
    uint8_t mac[SHA256_BYTES];
    memset(key, 0xaa, sizeof key);
    const struct str parts[] = { STR("Test Using Larger Than "),
                                 STR("Block-Size Key - Hash Key First") };
    hmac_sha256(str_of(key, sizeof key), parts, COUNT_OF(parts), mac);
    hex_from(mac, sizeof mac, hex);
    assert_string_equal(hex, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    const struct str one = STR("what do ya want for nothing?");
    hmac_sha256(STR("Jefe"), &one, 1, mac);
    hex_from(mac, sizeof mac, hex);
    assert_string_equal(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

static void keys_follow_from_the_secret(void **state)
{
    (void)state;
    struct auth_key instance, mine, k;
    expect_key("agent/i-7", "919947f99a2c1e6ee99c95b31035777f79fb5ad3e99ce306259414b5d7f3ee89");
    expect_key("engine/i-7", "d308d4816a3f91a61432fc74ae02441f4d61764dba59fbee918c27fc0f651ae5");
    expect_key("router", "2481506e651e1a265b969446def4bbee82db2fe9ba29a5ea348314d57b5f2d00");
    expect_key("cli", "d70e2b4468a99e76c7033f3e21419181235cfac2476d41b10f5bebd5717b0dbe");
    expect_key("ticket/00000000000000aa/5000000/6f6e65/i-7/i-9",
               "07a4f8f72828cc33e2449dd09312a6be5945204cecf78fe0a4bc2bbec1a82262");
    assert_int_equal(auth_key_of(STR(SECRET), STR("controller"), &k), -ENOENT);
    assert_int_equal(auth_key_of(STR(SECRET), STR(""), &k), -ENOENT);

    /* An instance's key gives the same keys for its own ids, and none for other ids. */
    auth_instance_key(STR(SECRET), STR("i-7"), &instance);
    assert_int_equal(auth_instance_key_of(&instance, STR("i-7"), STR("engine/i-7"), &mine), 0);
    assert_int_equal(auth_key_of(STR(SECRET), STR("engine/i-7"), &k), 0);
    assert_memory_equal(&mine, &k, sizeof k);
    static const char *const others[] = { "engine/i-8", "agent/i-8", "router", "cli",
                                          "ticket/00000000000000aa/5000000/6f6e65/i-8/i-7" };
    for (size_t i = 0; i < COUNT_OF(others); i++)
        assert_int_equal(auth_instance_key_of(&instance, STR("i-7"), str_from(others[i]), &mine),
                         -ENOENT);
}

/* A sender and a receiver. */
struct pair {
    struct auth_receiver receiver;
    struct auth_sender sender;
    struct auth_peer peer;
    struct auth_key key;
    struct auth_sent sent;
    char text[AUTH_TEXT_BYTES_MAX];
};

static void pair_init(struct pair *p)
{
    *p = (struct pair){ .sender = { .session = 0x42 }, .peer = { EPOCH, 1000 } };
    auth_receiver_init(&p->receiver, EPOCH, 0);
    assert_int_equal(auth_key_of(STR(SECRET), STR("agent/i-7"), &p->key), 0);
}

static const struct auth_message message = { { "POST", 4 },
                                             { TARGET, sizeof TARGET - 1 },
                                             { BODY, sizeof BODY - 1 } };

static void sign(struct pair *p, int64_t now_us)
{
    assert_int_equal(auth_sign(&p->sender, &p->peer, STR("agent/i-7"), &p->key, &message, now_us,
                               p->text, &p->sent),
                     0);
}

static enum auth_verdict receive(struct pair *p, const char *text, int64_t now_us)
{
    struct auth_request a;
    if (auth_request_parse(str_from(text), &a) < 0) return AUTH_FOREIGN;
    return auth_receive(&p->receiver, &a, &p->key, STR("POST"), STR(TARGET), now_us);
}

#define SIGNED                                                                \
    "Muster-HMAC id=agent/i-7, epoch=00000000000000aa, "                      \
    "nonce=0000000000000042-0000000000000001, time=1500, "                    \
    "body=afbf9d0f3560b0fd7795e81c42a0a79ee6b6fc67e064f77826aee642cad28d91, " \
    "mac=7de1c8a6b656b409504532e9b01fbcfda2f8ba098b3fe911c659d71ae82c38ed"
#define REPLY                                                                 \
    "epoch=00000000000000aa, time=501, "                                      \
    "body=4062edaf750fb8074e7e83e0c9028c94e32468a8b6f1614774328ef045150f93, " \
    "mac=c6f6ca9ca09e1b39a71afd2cb2900d404cd16a5c5726a537eb11c6b18028f59b"

static void a_request_and_its_reply_are_these_bytes(void **state)
{
    (void)state;
    struct pair p;
    struct auth_request a;
    struct auth_reply r;
    char reply[AUTH_TEXT_BYTES_MAX];
    const struct str body = STR("{\"ok\":true}");
    pair_init(&p);
    sign(&p, 500);
    assert_string_equal(p.text, SIGNED);
    assert_int_equal(receive(&p, p.text, 500), AUTH_FRESH);
    assert_int_equal(auth_request_parse(STR(SIGNED), &a), 0);
    auth_reply_sign(&p.receiver, &a, &p.key, 200, &body, 500, reply);
    assert_string_equal(reply, REPLY);
    assert_int_equal(auth_reply_check(&p.sent, 200, STR(REPLY), &r), 0);
    assert_true(r.epoch == EPOCH && r.time_us == 501 && !r.is_stream);
    assert_int_equal(auth_reply_check(&p.sent, 401, STR(REPLY), &r), -EACCES); /* another status */
    sign(&p, 500);
    assert_int_equal(auth_reply_check(&p.sent, 200, STR(REPLY), &r), -EACCES); /* another's */
    auth_reply_sign(&p.receiver, &a, &p.key, 200, NULL, 500, reply);
    assert_non_null(strstr(reply, "body=stream"));
    auth_receiver_fini(&p.receiver);
}

/* A change of any byte is noticed. */
static void whatever_is_changed_is_noticed(void **state)
{
    (void)state;
    struct pair p;
    struct auth_request a;
    struct auth_reply r;
    char text[sizeof SIGNED], reply[sizeof REPLY];
    pair_init(&p);
    sign(&p, 500);
    for (size_t i = 0; i < sizeof SIGNED - 1; i++) {
        memcpy(text, SIGNED, sizeof text);
        text[i] = text[i] == '1' ? '2' : '1';
        assert_int_equal(receive(&p, text, 500), AUTH_FOREIGN);
    }
    for (size_t i = 0; i < sizeof REPLY - 1; i++) {
        memcpy(reply, REPLY, sizeof reply);
        reply[i] = reply[i] == '1' ? '2' : '1';
        assert_true(auth_reply_check(&p.sent, 200, str_from(reply), &r) < 0);
    }
    assert_int_equal(auth_request_parse(STR(SIGNED), &a), 0);
    struct auth_key other = p.key;
    other.byte[31] ^= 1;
    const struct {
        const char *method, *target;
        const struct auth_key *key;
    } rows[] = { { "GET", TARGET, &p.key },
                 { "POST", "/api/v1/agents/report", &p.key },
                 { "POST", TARGET "2", &p.key },
                 { "POST", TARGET, &other } };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_int_equal(auth_receive(&p.receiver, &a, rows[i].key, str_from(rows[i].method),
                                      str_from(rows[i].target), 500),
                         AUTH_FOREIGN);
    assert_int_equal(receive(&p, SIGNED, 500), AUTH_FRESH); /* no refused request was remembered */
    auth_receiver_fini(&p.receiver);
}

static void only_one_form_is_read(void **state)
{
    (void)state;
    struct auth_request a;
    static const char *const odd[] = {
        "",
        "Muster-HMAC",
        "Muster-HMAC ",
        "Bearer x",
        "Muster-HMAC id=a",
        "Muster-HMAC id=a, epoch=1, nonce=1-1, time=1, body=1, mac=1",
        "Muster-HMAC  id=agent/i-7, epoch=00000000000000aa",
        SIGNED ", more=1",
        SIGNED ",",
        SIGNED " ",
        SIGNED "0",
        "Muster-HMAC epoch=00000000000000aa, id=agent/i-7",
    };
    for (size_t i = 0; i < COUNT_OF(odd); i++)
        if (auth_request_parse(str_from(odd[i]), &a) == 0) fail_msg("taken: %s", odd[i]);
    /* Every proper prefix is refused. */
    for (size_t len = 0; len < sizeof SIGNED - 1; len++)
        assert_int_equal(auth_request_parse(str_of(SIGNED, len), &a), -EINVAL);
    assert_int_equal(auth_request_parse(STR(SIGNED), &a), 0);
}

static void a_request_is_let_in_once(void **state)
{
    (void)state;
    struct pair p;
    char kept[3][AUTH_TEXT_BYTES_MAX];
    pair_init(&p);
    for (int i = 0; i < 3; i++) {
        sign(&p, 500);
        memcpy(kept[i], p.text, sizeof kept[i]);
    }
    /* Requests may arrive in any order. */
    assert_int_equal(receive(&p, kept[2], 500), AUTH_FRESH);
    assert_int_equal(receive(&p, kept[0], 500), AUTH_FRESH);
    assert_int_equal(receive(&p, kept[1], 500), AUTH_FRESH);
    for (int i = 0; i < 3; i++)
        assert_int_equal(receive(&p, kept[i], 500), AUTH_STALE);
    /* A request too far behind the newest may be a replay, so it is refused. */
    p.sender.counter += AUTH_SEEN_BITS;
    sign(&p, 500);
    memcpy(kept[0], p.text, sizeof kept[0]);
    p.sender.counter -= AUTH_SEEN_BITS;
    assert_int_equal(receive(&p, kept[0], 500), AUTH_FRESH);
    sign(&p, 500); /* the newest less AUTH_SEEN_BITS - 1 */
    assert_int_equal(receive(&p, p.text, 500), AUTH_FRESH);
    p.sender.counter -= 2;
    sign(&p, 500);
    assert_int_equal(receive(&p, p.text, 500), AUTH_STALE);
    /* The next receiver refuses requests that were recorded before its start. */
    struct auth_receiver next;
    struct auth_request a;
    auth_receiver_init(&next, EPOCH + 1, 0);
    p.sender.counter += 5000;
    sign(&p, 500);
    assert_int_equal(auth_request_parse(str_from(p.text), &a), 0);
    assert_int_equal(auth_receive(&next, &a, &p.key, STR("POST"), STR(TARGET), 500), AUTH_STALE);
    auth_receiver_fini(&next);
    auth_receiver_fini(&p.receiver);
}

/* The window agrees with the slow reference: a list of all requests heard. */
static void the_window_agrees_with_a_list(void **state)
{
    (void)state;
    struct pair p;
    enum { MOST = 4000 };
    static bool heard[MOST];
    uint64_t top = 0;
    pair_init(&p);
    struct rng rng;
    rng_seed(&rng, 7);
    memset(heard, 0, sizeof heard);
    for (int i = 0; i < 20000; i++) {
        int64_t near = (int64_t)top + (int64_t)(rng_u64(&rng) % 1600) - 1300;
        uint64_t counter = near < 1 ? 1 : near >= MOST ? MOST - 1 : (uint64_t)near;
        p.sender.counter = counter - 1;
        sign(&p, 500);
        if (top == 0) top = counter;
        bool old = counter + AUTH_SEEN_BITS <= top;
        bool want = !old && !heard[counter];
        assert_int_equal(receive(&p, p.text, 500), want ? AUTH_FRESH : AUTH_STALE);
        heard[counter] |= want;
        if (counter > top) top = counter;
    }
    auth_receiver_fini(&p.receiver);
}

static void time_is_the_receiver_s(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p);
    p.peer.ahead_us = 0;
    const int64_t late = 1000 + (int64_t)AUTH_WINDOW_US;
    sign(&p, 1000);
    assert_int_equal(receive(&p, p.text, late + 1), AUTH_STALE);
    sign(&p, late + 10);
    assert_int_equal(receive(&p, p.text, 5), AUTH_STALE); /* from the future */
    /* The sender learns the time from the reply, and is let in. */
    p.peer.ahead_us = auth_receiver_time(&p.receiver, 5) - (late + 10);
    sign(&p, late + 10);
    assert_int_equal(receive(&p, p.text, 5), AUTH_FRESH);
    /* A sender that knows nothing of the receiver sends zeros. */
    p.peer = (struct auth_peer){ 0 };
    sign(&p, 500);
    assert_non_null(strstr(p.text, "epoch=0000000000000000, "));
    assert_non_null(strstr(p.text, "time=0, "));
    assert_int_equal(receive(&p, p.text, 5), AUTH_STALE);
    auth_receiver_fini(&p.receiver);
}

/* With more senders than are remembered, requests of a forgotten sender cannot come again. */
static void what_is_forgotten_is_not_let_in_again(void **state)
{
    (void)state;
    struct pair p;
    static char first[AUTH_TEXT_BYTES_MAX];
    pair_init(&p);
    p.peer.ahead_us = 0;
    sign(&p, 500);
    memcpy(first, p.text, sizeof first);
    assert_int_equal(receive(&p, first, 500), AUTH_FRESH);
    for (uint64_t i = 0; i < AUTH_SESSIONS_MAX; i++) {
        p.sender = (struct auth_sender){ .session = 1000 + i };
        sign(&p, 600);
        enum auth_verdict v = receive(&p, p.text, 600);
        /* The sender for which another was forgotten must ask again, with a later time. */
        if (v == AUTH_STALE) {
            sign(&p, 602);
            v = receive(&p, p.text, 602);
        }
        assert_int_equal(v, AUTH_FRESH);
    }
    assert_int_equal(p.receiver.forgets, 1);
    assert_int_equal(receive(&p, first, 700), AUTH_STALE);
    assert_true(p.receiver.sessions.count <= AUTH_SESSIONS_MAX);
    /* Expired senders give up their places without a fresh request being refused. */
    int64_t later = 600 + 3 * (int64_t)AUTH_WINDOW_US;
    for (uint64_t i = 0; i < AUTH_SESSIONS_MAX + 10; i++) {
        p.sender = (struct auth_sender){ .session = 100000 + i };
        sign(&p, later);
        assert_int_equal(receive(&p, p.text, later),
                         i < AUTH_SESSIONS_MAX ? AUTH_FRESH : AUTH_STALE);
        if (i >= AUTH_SESSIONS_MAX) break;
    }
    auth_receiver_fini(&p.receiver);
}

static void tickets_name_what_they_open(void **state)
{
    (void)state;
    struct auth_ticket t = { STR("i-7"), STR("i-9"), EPOCH, 5000000, STR("one") }, back;
    char text[AUTH_ID_BYTES_MAX], tenant[AUTH_TENANT_BYTES_MAX], many[AUTH_TENANT_BYTES_MAX + 1];
    assert_int_equal(auth_ticket_print(&t, text), 0);
    assert_string_equal(text, "ticket/00000000000000aa/5000000/6f6e65/i-7/i-9");
    assert_int_equal(auth_ticket_parse(str_from(text), tenant, &back), 0);
    assert_true(str_eq(back.owner, t.owner) && str_eq(back.reader, t.reader));
    assert_true(str_eq(back.tenant, t.tenant) && back.epoch == EPOCH && back.until_us == 5000000);
    memset(many, 1, sizeof many);
    t.tenant = str_of(many, AUTH_TENANT_BYTES_MAX);
    assert_int_equal(auth_ticket_print(&t, text), 0);
    assert_int_equal(auth_ticket_parse(str_from(text), tenant, &back), 0);
    assert_int_equal(back.tenant.len, AUTH_TENANT_BYTES_MAX);
    t.tenant.len++;
    assert_int_equal(auth_ticket_print(&t, text), -E2BIG);
    static const char *const odd[] = { "",
                                       "ticket/",
                                       "ticket/1/2/3/4/5",
                                       "engine/i-7",
                                       "ticket/00000000000000aa/x/6f/i/j",
                                       "ticket/00000000000000aa/1/6/i/j",
                                       "ticket/00000000000000aa/1/6f/i" };
    for (size_t i = 0; i < COUNT_OF(odd); i++)
        assert_int_equal(auth_ticket_parse(str_from(odd[i]), tenant, &back), -EINVAL);
}

static void a_file_of_keys_opens_to_its_keys(void **state)
{
    (void)state;
    char path[] = "/tmp/t_auth.XXXXXX", many[KEY_FILE_KEYS_MAX * 10 + 20] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (int i = 0; i <= KEY_FILE_KEYS_MAX; i++)
        snprintf(many + strlen(many), 11, "key-%05u\n", (unsigned)i % 100000);
    const struct {
        const char *text, *key, *no_key;
        int rc;
        const char *why;
    } rows[] = {
        { "one-key-of-ours\n", "one-key-of-ours", "one-key-of-our", 0, "a key" },
        { "one-key-of-ours", "one-key-of-ours", "one-key-of-ours\n", 0, "no newline at the end" },
        { "# ours\n\n  first-key \r\nsecond-key\r\n", "second-key", "# ours", 0,
          "blanks, comments" },
        { "first-key\nsecond-key\n", "first-key", "", 0, "no key is presented" },
        { "short\n", NULL, NULL, -EINVAL, "a key that can be guessed" },
        { "# nothing\n", NULL, NULL, -EINVAL, "no key" },
        { many, NULL, NULL, -EINVAL, "too many" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct key_file k = { 0 };
        struct err err = { 0 };
        assert_int_equal(file_write_atomic(path, str_from(rows[i].text), 0600, NULL), 0);
        int rc = key_file_load(str_from(path), &k, &err);
        if (rc != rows[i].rc) fail_msg("%s: %d %s", rows[i].why, rc, err.text);
        if (rc < 0 && !strstr(err.text, path)) fail_msg("%s: %s", rows[i].why, err.text);
        if (rc == 0 && !key_file_has(&k, str_from(rows[i].key))) fail_msg("%s", rows[i].why);
        if (rc == 0 && key_file_has(&k, str_from(rows[i].no_key))) fail_msg("%s", rows[i].why);
        key_file_fini(&k);
    }
    struct key_file none = { 0 };
    assert_int_equal(key_file_load((struct str){ 0 }, &none, NULL), 0);
    assert_false(key_file_has(&none, STR("one-key-of-ours")));
    assert_false(key_file_has(NULL, STR("one-key-of-ours")));
    unlink(path);
    assert_int_equal(key_file_load(str_from(path), &none, NULL), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hmac_is_that_of_rfc_4231),
        cmocka_unit_test(keys_follow_from_the_secret),
        cmocka_unit_test(a_request_and_its_reply_are_these_bytes),
        cmocka_unit_test(whatever_is_changed_is_noticed),
        cmocka_unit_test(only_one_form_is_read),
        cmocka_unit_test(a_request_is_let_in_once),
        cmocka_unit_test(the_window_agrees_with_a_list),
        cmocka_unit_test(time_is_the_receiver_s),
        cmocka_unit_test(what_is_forgotten_is_not_let_in_again),
        cmocka_unit_test(tickets_name_what_they_open),
        cmocka_unit_test(a_file_of_keys_opens_to_its_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
