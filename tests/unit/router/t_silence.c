/* t_silence.c - which silence ends an attempt: rows of what an engine said and when. */
#include "base/core/bits.h"
#include "router/core/silence.h"
#include "tests/unit/unit.h"

#define SECOND ((int64_t)1000000)

static const struct silence_config config = {
    .head_us = 30 * SECOND,
    .gap_us = 10 * SECOND,
    .other_first_us = 120 * SECOND,
    .other_gap_us = 60 * SECOND,
};

struct row {
    bool ours, streams;
    int64_t head_s, beat_ms; /* head_s 0: none came */
    int64_t bytes_s;         /* the last byte; 0: none came */
    int64_t silent_s;        /* since the call began; 0: never */
    const char *why;
};

/* When the silence is noticed by one who looks when told to. */
static int64_t noticed_s(struct silence *s, int64_t from_s)
{
    while (s->look_us != INT64_MAX) {
        int64_t at_us = s->look_us;
        if (silence_look(s, &config, at_us)) return at_us / SECOND - from_s;
        assert_true(s->look_us > at_us);
    }
    return 0;
}

static void limits_are_as_said(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { true, true, 0, 0, 0, 30, "ours: no head" },
        { true, false, 0, 0, 0, 30, "ours: frames, whatever the client asked for" },
        { true, true, 5, 1000, 0, 15, "ours: nothing behind the head" },
        { true, true, 5, 1000, 300, 310, "ours: beats, then silence" },
        { true, true, 5, 5000, 8, 28, "ours: a slow beat has four chances" },
        { true, true, 5, 0, 8, 0, "ours, and older: it names no beat" },
        { false, true, 0, 0, 0, 120, "another: its queue is silent" },
        { false, true, 1, 0, 0, 121, "another: a head is no token" },
        { false, true, 1, 0, 7, 67, "another: between tokens" },
        { false, false, 0, 0, 0, 0, "another: a whole answer comes at its end" },
        { false, false, 1, 0, 3, 0, "another: a whole answer" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct row *r = &rows[i];
        struct silence s;
        int64_t from = 1000 * SECOND;
        silence_begin(&s, &config, r->ours, r->streams, from);
        if (r->head_s) silence_head(&s, &config, r->beat_ms * 1000, from + r->head_s * SECOND);
        for (int64_t t = r->head_s + 1; t <= r->bytes_s; t++) {
            silence_heard(&s, &config, from + t * SECOND);
            if (s.look_us <= from + t * SECOND)
                assert_false(silence_look(&s, &config, from + t * SECOND));
        }
        int64_t got = noticed_s(&s, 1000);
        if (got != r->silent_s) fail_msg("%s: %ld", r->why, (long)got);
    }
}

/* What came meanwhile lies unread, or was never asked for. */
static void a_late_look_proves_nothing(void **state)
{
    (void)state;
    struct silence s;
    silence_begin(&s, &config, true, true, SECOND);
    silence_head(&s, &config, SECOND, SECOND);
    int64_t late = s.look_us + 100 * SECOND;
    assert_false(silence_look(&s, &config, late));
    assert_int_equal(s.look_us, late + config.gap_us);
    assert_true(silence_look(&s, &config, s.look_us));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_as_said),
        cmocka_unit_test(a_late_look_proves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
