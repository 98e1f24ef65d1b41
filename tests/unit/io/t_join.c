/* t_join.c - tests HPKE against RFC 9180 (A.2.2), and what an agent and a controller say when it joins. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/auth/join.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>

#define SECRET "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define NAME "i-0123456789ab"

static struct hpke_key key(const char *hex)
{
    struct hpke_key k;
    assert_int_equal(hex_to(str_from(hex), k.byte, sizeof k.byte), 0);
    return k;
}

static void expect(const void *bytes, size_t len, const char *hex)
{
    char got[512];
    assert_true(2 * len < sizeof got);
    hex_from(bytes, len, got);
    assert_string_equal(got, hex);
}

/* ---- HPKE ---- */

#define SEALED \
    "4a177f9c0d6f15cfdf533fb65bf84aecdc6ab16b8b85b4cf65a370e07fc1d78d28fb073214525276f4a89608ff"

static struct hpke_known known_of_rfc(void)
{
    return (struct hpke_known){
        .psk = key("0247fd33b913760fa1fa51e1892d9f307fbe65eb171e8132c2af18555a738b82"),
        .psk_id = STR("Ennyn Durin aran Moria"),
        .info = STR("Ode on a Grecian Urn"),
    };
}

static void hpke_is_that_of_rfc_9180(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf sealed = { 0 };
    CLEANUP(buf_fini) struct buf opened = { 0 };
    const struct hpke_known known = known_of_rfc();
    const struct hpke_key ikm_r =
        key("26b923eade72941c8a85b09986cdfa3f1296852261adedc52d58d2930269812b");
    const struct hpke_key ikm_e =
        key("35706a0b09fb26fb45c39c2f5079c709c7cf98e43afa973f14d88ece7e29c2e3");
    struct hpke_key secret, receiver, enc, out;
    struct hpke sends, hears;
    assert_int_equal(hpke_key_pair(&ikm_r, &secret, &receiver), 0);
    expect(&secret, 32, "77d114e0212be51cb1d76fa99dd41cfd4d0166b08caa09074430a6c59ef17879");
    expect(&receiver, 32, "13640af826b722fc04feaa4de2f28fbd5ecc03623b317834e7ff4120dbe73062");
    assert_int_equal(hpke_send(&receiver, &known, &ikm_e, &enc, &sends), 0);
    expect(&enc, 32, "2261299c3f40a9afc133b969a97f05e95be2c514e54f3de26cbe5644ac735b04");
    expect(&sends.key, 32, "600d2fdb0313a7e5c86a9ce9221cd95bed069862421744cfb4ab9d7203a9c019");
    expect(sends.nonce, 12, "112e0465562045b7368653e7");
    expect(&sends.exporter, 32, "73b506dc8b6b4269027f80b0362def5cbb57ee50eed0c2873dac9181f453c5ac");
    const struct {
        struct str context;
        const char *value;
    } exports[] = {
        { STR(""), "813c1bfc516c99076ae0f466671f0ba5ff244a41699f7b2417e4c59d46d39f40" },
        { STR("\x00"), "2745cf3d5bb65c333658732954ee7af49eb895ce77f8022873a62a13c94cb4e1" },
        { STR("TestContext"), "ad40e3ae14f21c99bfdebc20ae14ab86f4ca2dc9a4799d200f43a25f99fa78ae" },
    };
    for (size_t i = 0; i < COUNT_OF(exports); i++) {
        hpke_export(&sends, exports[i].context, &out);
        expect(&out, 32, exports[i].value);
    }
    assert_int_equal(
        hpke_seal(&sends, STR("Count-0"), STR("Beauty is truth, truth beauty"), &sealed), 0);
    expect(sealed.data, sealed.len, SEALED);
    assert_int_equal(hpke_receive(&secret, &known, &enc, &hears), 0);
    assert_memory_equal(&hears, &sends, sizeof hears);
    assert_int_equal(hpke_open(&hears, STR("Count-0"), buf_view(&sealed), &opened), 0);
    assert_string_equal(opened.data, "Beauty is truth, truth beauty");
}

/* Each bit of what was sealed counts, and so do its length and the text beside it. */
static void a_changed_seal_does_not_open(void **state)
{
    (void)state;
    const struct hpke h = { .key = key(SECRET), .nonce = { 7 } };
    CLEANUP(buf_fini) struct buf sealed = { 0 };
    assert_int_equal(hpke_seal(&h, STR("a"), STR("text"), &sealed), 0);
    for (size_t bit = 0; bit < 8 * sealed.len; bit++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        sealed.data[bit / 8] ^= (char)(1u << bit % 8);
        assert_int_equal(hpke_open(&h, STR("a"), buf_view(&sealed), &out), -EBADMSG);
        assert_int_equal(out.len, 0);
        sealed.data[bit / 8] ^= (char)(1u << bit % 8);
    }
    CLEANUP(buf_fini) struct buf out = { 0 };
    for (size_t len = 0; len < sealed.len; len++)
        assert_int_equal(hpke_open(&h, STR("a"), str_of(sealed.data, len), &out), -EBADMSG);
    assert_int_equal(hpke_open(&h, STR("b"), buf_view(&sealed), &out), -EBADMSG);
    assert_int_equal(hpke_open(&h, STR("a"), buf_view(&sealed), &out), 0);
    assert_string_equal(out.data, "text");
}

static void a_key_of_low_order_is_refused(void **state)
{
    (void)state;
    static const char *const points[] = {
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    };
    const struct hpke_known known = known_of_rfc();
    const struct hpke_key secret = key(SECRET);
    struct hpke h;
    for (size_t i = 0; i < COUNT_OF(points); i++) {
        const struct hpke_key enc = key(points[i]);
        assert_int_equal(hpke_receive(&secret, &known, &enc, &h), -EINVAL);
    }
}

/* ---- joining ---- */

struct scene {
    struct join_token token;
    struct hpke_key seed, nonce;
    struct join agent, controller;
    struct buf file, seal;
};

static void open_scene(struct scene *s)
{
    *s = (struct scene){ .seed = key(SECRET), .nonce = key(SECRET) };
    assert_int_equal(join_token_print(STR(SECRET), STR(NAME), &s->file), 0);
    assert_int_equal(join_token_parse(buf_view(&s->file), &s->token), 0);
    assert_int_equal(join_ask(&s->token, &s->seed, &s->agent, &s->seal), 0);
}

static void close_scene(struct scene *s)
{
    buf_fini(&s->file);
    buf_fini(&s->seal);
}

static int hear(struct scene *s, const char *secret, const char *name)
{
    return join_hear(str_from(secret), str_from(name), &s->agent.enc, buf_view(&s->seal),
                     &s->controller);
}

static void an_agent_gets_its_key(void **state)
{
    (void)state;
    struct scene s;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf got = { 0 };
    CLEANUP(buf_fini) struct buf want = { 0 };
    open_scene(&s);
    assert_string_equal(s.token.instance, NAME);
    assert_int_equal(hear(&s, SECRET, NAME), 0);
    assert_int_equal(join_welcome(&s.controller, &s.nonce, STR(SECRET), STR(NAME), &reply), 0);
    assert_int_equal(join_read(&s.agent, &s.nonce, buf_view(&reply), &got), 0);
    credentials_print_instance(STR(SECRET), STR(NAME), &want);
    assert_string_equal(got.data, want.data);
    /* neither message has the token or the key in it */
    char token[2 * HPKE_KEY_BYTES + 1];
    hex_from(s.token.token.byte, HPKE_KEY_BYTES, token);
    assert_non_null(strstr(s.file.data, token));
    assert_true(str_find(buf_view(&s.seal), str_of(s.token.token.byte, 8)) == SIZE_MAX);
    assert_true(str_find(buf_view(&reply), STR("key ")) == SIZE_MAX);
    close_scene(&s);
}

/* The same seed says the same, and has the same mark; another seed has another, and cannot read the first one's
 * reply. */
static void a_mark_tells_agents_apart(void **state)
{
    (void)state;
    struct scene first, thief;
    char mark[JOIN_MARK_BYTES], again[JOIN_MARK_BYTES], other[JOIN_MARK_BYTES];
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf got = { 0 };
    CLEANUP(buf_fini) struct buf seal = { 0 };
    open_scene(&first);
    open_scene(&thief);
    thief.seed.byte[0] ^= 1;
    assert_int_equal(join_ask(&thief.token, &thief.seed, &thief.agent, &seal), 0);
    assert_int_equal(hear(&first, SECRET, NAME), 0);
    join_mark(&first.controller, mark);
    join_mark(&first.agent, again);
    join_mark(&thief.agent, other);
    assert_string_equal(mark, again);
    assert_string_not_equal(mark, other);
    assert_int_equal(join_welcome(&first.controller, &first.nonce, STR(SECRET), STR(NAME), &reply),
                     0);
    assert_int_equal(join_read(&thief.agent, &first.nonce, buf_view(&reply), &got), -EBADMSG);
    close_scene(&first);
    close_scene(&thief);
}

static void a_refusal_is_the_controllers(void **state)
{
    (void)state;
    struct scene s;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf got = { 0 };
    open_scene(&s);
    assert_int_equal(hear(&s, SECRET, NAME), 0);
    assert_int_equal(join_refuse(&s.controller, &s.nonce, "too late", &reply), 0);
    assert_int_equal(join_read(&s.agent, &s.nonce, buf_view(&reply), &got), -EACCES);
    assert_string_equal(got.data, "too late");
    s.nonce.byte[3] ^= 1; /* a reply under another nonce is another's */
    assert_int_equal(join_read(&s.agent, &s.nonce, buf_view(&reply), &got), -EBADMSG);
    close_scene(&s);
}

static void a_token_is_of_one_instance_and_fleet(void **state)
{
    (void)state;
    struct scene s;
    open_scene(&s);
    assert_int_equal(hear(&s, SECRET, "i-ba9876543210"), -EACCES);
    assert_int_equal(hear(&s, "another secret", NAME), -EACCES);
    s.agent.enc.byte[0] ^= 1;
    assert_int_equal(hear(&s, SECRET, NAME), -EACCES);
    s.agent.enc.byte[0] ^= 1;
    s.seal.len--;
    assert_int_equal(hear(&s, SECRET, NAME), -EACCES);
    /* Another agent who changed the name in its token: the token is not that instance's. */
    s.token.instance[3] = 'f';
    buf_clear(&s.seal);
    assert_int_equal(join_ask(&s.token, &s.seed, &s.agent, &s.seal), 0);
    assert_int_equal(hear(&s, SECRET, s.token.instance), -EACCES);
    close_scene(&s);
}

static void a_damaged_token_is_refused(void **state)
{
    (void)state;
    struct scene s;
    struct join_token t;
    open_scene(&s);
    for (size_t len = 0; len + 1 < s.file.len; len++)
        assert_int_equal(join_token_parse(str_of(s.file.data, len), &t), -EINVAL);
    assert_int_equal(join_token_parse(STR("muster-instance-key 1\ninstance x\n"), &t), -EINVAL);
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hpke_is_that_of_rfc_9180),
        cmocka_unit_test(a_changed_seal_does_not_open),
        cmocka_unit_test(a_key_of_low_order_is_refused),
        cmocka_unit_test(an_agent_gets_its_key),
        cmocka_unit_test(a_mark_tells_agents_apart),
        cmocka_unit_test(a_refusal_is_the_controllers),
        cmocka_unit_test(a_token_is_of_one_instance_and_fleet),
        cmocka_unit_test(a_damaged_token_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
