/* t_hash.c - tests digests and block key chains against published values, random numbers, and fault
 * points. */
#include "base/core/block_key.h"
#include "base/core/err.h"
#include "base/core/fault.h"
#include "base/core/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- published digests, hexadecimal, block key chains ---- */

static void published_digests(void **state)
{
    (void)state;
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX + 1];
    sha256("abc", 3, digest); /* FIPS 180-2, example B.1 */
    hex_from(digest, sizeof digest, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256(NULL, 0, digest);
    hex_from(digest, sizeof digest, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    /* XXH3 of nothing, seed 0, as xxHash's own test lists. Keys are stored by peers: the function
     * behind them may never change unnoticed. */
    assert_true(hash64(NULL, 0, 0) == 0x2d06800538d394c2u);
    struct hash128 h = hash128(NULL, 0, 0);
    assert_true(h.lo == 0x6001c324468d497fu && h.hi == 0x99aa06d3014798d8u);
    assert_true(hash64("a", 1, 1) != hash64("a", 1, 2));
}

/* Values of the reference implementation: key 0, 1 .. 15, message 0, 1 .. len - 1. */
static void published_siphash(void **state)
{
    (void)state;
    static const struct {
        size_t len;
        uint64_t hash;
    } rows[] = {
        { 0, 0x726fdb47dd0e0e31u },  { 1, 0x74f839c593dc67fdu },  { 2, 0x0d6c8009d9a94f5au },
        { 3, 0x85676696d7fb7e2du },  { 4, 0xcf2794e0277187b7u },  { 5, 0x18765564cd99a68du },
        { 6, 0xcbc9466e58fee3ceu },  { 7, 0xab0200f58b01d137u },  { 8, 0x93f5f5799a932462u },
        { 9, 0x9e0082df0ba9e4b0u },  { 15, 0xa129ca6149be45e5u }, { 16, 0x3f2acc7f57c29bdbu },
        { 31, 0x32d892fad841c342u }, { 63, 0x958a324ceb064572u },
    };
    char bytes[64];
    struct hash_key key = { { 0x0706050403020100u, 0x0f0e0d0c0b0a0908u } };
    for (int i = 0; i < 64; i++)
        bytes[i] = (char)i;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_true(siphash(&key, bytes, rows[i].len) == rows[i].hash);

    uint64_t before = hash_keyed(bytes, 9);
    hash_key_set(&(struct hash_key){ { 1, 2 } });
    assert_true(hash_keyed(bytes, 9) != before);
    hash_key_set(&key);
    assert_true(hash_keyed(bytes, 9) == rows[9].hash);
}

static void hexadecimal(void **state)
{
    (void)state;
    uint8_t bytes[2] = { 7, 7 };
    assert_int_equal(hex_to(STR("00fF"), bytes, 2), 0);
    assert_true(bytes[0] == 0 && bytes[1] == 0xff);
    static const char *const bad[] = { "", "00f", "00fff", "00fg", "0x00", "00 f" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bytes[0] = 7;
        assert_int_equal(hex_to(str_from(bad[i]), bytes, 2), -EINVAL);
        assert_int_equal(bytes[0], 7);
    }
    assert_true(equal_constant_time("ab", "ab", 2));
    assert_false(equal_constant_time("ab", "aB", 2));
    assert_true(equal_constant_time("a", "b", 0));
}

static void chains(void **state)
{
    (void)state;
    uint32_t ids[3 * BLOCK_TOKENS + 5];
    for (uint32_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        ids[i] = i * 31;
    struct block_key salt = block_salt(9, STR("digest"), STR(""), STR("alice"));
    struct block_key key[4], again[4];

    assert_int_equal(block_keys(9, salt, ids, BLOCK_TOKENS - 1, key, 4), 0);
    assert_int_equal(block_keys(9, salt, ids, 3 * BLOCK_TOKENS + 5, key, 4), 3);
    assert_int_equal(block_keys(9, salt, ids, 3 * BLOCK_TOKENS + 5, again, 2), 2);
    assert_true(block_key_eq(key[1], again[1]));
    assert_true(block_key_eq(key[2], block_key_next(9, key[1], ids + 2 * BLOCK_TOKENS)));

    ids[0]++; /* one early token changes every later key */
    assert_int_equal(block_keys(9, salt, ids, 3 * BLOCK_TOKENS, again, 4), 3);
    for (int i = 0; i < 3; i++)
        assert_false(block_key_eq(key[i], again[i]));
    ids[0]--;
    block_keys(10, salt, ids, 3 * BLOCK_TOKENS, again, 4); /* so does the seed */
    assert_false(block_key_eq(key[0], again[0]));

    assert_false(block_key_eq(salt, block_salt(9, STR("digest"), STR(""), STR("bob"))));
    assert_false(block_key_eq(block_salt(9, STR("ab"), STR("c"), STR("")),
                              block_salt(9, STR("a"), STR("bc"), STR(""))));
}

static void key_text(void **state)
{
    (void)state;
    struct block_key k = { 0x0123456789abcdefu, 0xfedcba9876543210u }, back = { 0 };
    char hex[BLOCK_KEY_HEX + 1];
    block_key_hex(k, hex);
    assert_int_equal(strlen(hex), BLOCK_KEY_HEX);
    assert_int_equal(block_key_parse(str_from(hex), &back), 0);
    assert_true(block_key_eq(k, back));
    assert_int_equal(block_key_parse(STR("12"), &back), -EINVAL);
}

static int hash_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_digests), cmocka_unit_test(published_siphash),
        cmocka_unit_test(hexadecimal),       cmocka_unit_test(chains),
        cmocka_unit_test(key_text),
    };
    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}

/* ---- random numbers: published values, uniformity, separate streams; fault points ---- */

/* The authors' C code (public domain) prints these for the state 1, 2, 3, 4, and for splitmix64
 * seeded with 1234567. */
static void reference_values(void **state)
{
    (void)state;
    struct rng r = { .s = { 1, 2, 3, 4 } };
    static const uint64_t want[] = { 11520u, 0u, 1509978240u, 1215971899390074240u };
    for (size_t i = 0; i < 4; i++)
        assert_true(rng_u64(&r) == want[i]);
    rng_seed(&r, 1234567);
    assert_true(r.s[0] == 6457827717110365317u);
    assert_true(r.s[1] == 3203168211198807973u);
}

static void below_is_uniform(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 3);
    assert_true(rng_below(&r, 0) == 0);
    assert_true(rng_below(&r, 1) == 0);
    uint32_t seen[7] = { 0 };
    for (int i = 0; i < 70000; i++) {
        uint64_t v = rng_below(&r, 7);
        assert_true(v < 7);
        seen[v]++;
    }
    double chi2 = 0;
    for (int i = 0; i < 7; i++)
        chi2 += (seen[i] - 10000.0) * (seen[i] - 10000.0) / 10000.0;
    assert_true(chi2 < 22.5); /* 6 degrees of freedom: 0.1 % */
    for (int i = 0; i < 1000; i++)
        assert_true(rng_below(&r, UINT64_MAX) < UINT64_MAX);
}

static void moments(void **state)
{
    (void)state;
    enum { N = 200000 };
    struct rng r;
    rng_seed(&r, 5);
    double unit = 0, expo = 0, sum = 0, square = 0;
    for (int i = 0; i < N; i++) {
        double u = rng_f64(&r);
        assert_true(u >= 0 && u < 1);
        double e = rng_exp(&r, 3);
        assert_true(e >= 0 && isfinite(e));
        double z = rng_normal(&r);
        unit += u, expo += e, sum += z, square += z * z;
    }
    /* The bounds are four standard errors each. */
    assert_true(fabs(unit / N - 0.5) < 4 * 0.2887 / sqrt(N));
    assert_true(fabs(expo / N - 3) < 4 * 3 / sqrt(N));
    assert_true(fabs(sum / N) < 4 / sqrt(N));
    assert_true(fabs(square / N - 1) < 4 * 1.4142 / sqrt(N));
}

static void positions_are_apart(void **state)
{
    (void)state;
    assert_true(rng_at(1, 2) == rng_at(1, 2));
    /* A plain sum or xor of seed and position would give these pairs equal numbers. */
    assert_true(rng_at(1, 2) != rng_at(2, 1));
    assert_true(rng_at(0, 0) != rng_at(1, 1));
    assert_true(rng_at(0, 1) != rng_at(0x9e3779b97f4a7c15u, 0));
    double sum = 0;
    for (uint64_t p = 0; p < 100000; p++) {
        double u = rng_at_f64(42, p);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 4 * 0.2887 / sqrt(100000));
    struct rng a, b, c;
    rng_stream(&a, 1, 2, 3);
    rng_stream(&b, 1, 2, 3);
    rng_stream(&c, 1, 3, 2);
    assert_memory_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &c, sizeof a);
}

static bool point_a(void)
{
    return FAULT("t.a");
}

static bool point_b(void)
{
    return FAULT("t.b");
}

static void faults_fire_once(void **state)
{
    (void)state;
    assert_false(point_a());
    fault_arm("t.a", 2);
    assert_false(point_b()); /* hits of another point do not count */
    assert_false(point_a());
    assert_true(point_a());
    assert_false(point_a());
    assert_true(fault_hits() == 3);
    fault_arm(NULL, 2); /* any point; counts from zero */
    assert_true(fault_hits() == 0);
    assert_false(point_b());
    assert_true(point_a());
    fault_disarm();
    assert_false(point_a());
    assert_true(fault_hits() == 2); /* nothing is counted while disarmed */
}

static int rng_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_values), cmocka_unit_test(below_is_uniform),
        cmocka_unit_test(moments),          cmocka_unit_test(positions_are_apart),
        cmocka_unit_test(faults_fire_once),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}

int main(void)
{
    return hash_tests() + rng_tests();
}
