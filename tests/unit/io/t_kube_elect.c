/* t_kube_elect.c - runs candidates for one Lease in a simulated world: a server that compares versions, calls that
 * take time and get lost, candidates that stand still and whose clocks run at unlike rates. At no moment may two
 * of them believe that they lead, and every epoch has one leader.
 *
 * Mutants of the configuration and of the world show that the check would see a defect. */
#include "base/core/bits.h"
#include "base/core/heap.h"
#include "base/core/own.h"
#include "base/io/kube/kube_elect.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

#define CANDIDATES 3
#define WORLD_US 600000000
#define TICK_US 50000 /* between looks at who believes what */
#define EPOCHS_MAX 4096
#define EPOCH_DATE_US 1767225600000000 /* epochs of Leases that candidates make count from here */

struct candidate {
    struct kube_elect elect;
    double rate;       /* of its clock, per unit of true time */
    int64_t offset_us; /* its clocks have nothing in common */
    int64_t date_skew_us;
    int64_t stopped_until_us;
    struct heap_node wake;
    struct heap_node answer; /* of the call under way */
    int rc;
    enum kube_elect_act act;
    struct kube_lease_record write, read;
    struct heap_node apply; /* the server carries it out */
};

/* What happens to a world, and what is wrong with it. */
struct mishaps {
    bool pauses, losses, deletes;
    bool no_versions; /* mutant: the server does not compare them */
    bool late_belief; /* mutant: a belief counts from the answer */
    bool recreate;    /* mutant: a Lease that was made anew leads at once */
};

struct world {
    struct rng rng;
    struct mishaps is;
    struct heap events;
    int64_t now_us;
    struct candidate candidate[CANDIDATES];
    struct kube_lease_record lease; /* the truth */
    uint64_t version;
    int leader_of[EPOCHS_MAX]; /* 1 + candidate */
    uint64_t changes;          /* of the holder */
    uint64_t both; /* moments with two leaders, with a leader of an old epoch, or of another's */
    int64_t epoch_top; /* of a leader so far */
};

static int64_t local_us(const struct world *w, const struct candidate *c)
{
    return c->offset_us + (int64_t)((double)w->now_us * c->rate);
}

/* Returns the true time at which the candidate's clock shows `local`. */
static int64_t true_us(const struct candidate *c, int64_t local)
{
    if (local == INT64_MAX) return INT64_MAX;
    return (int64_t)((double)(local - c->offset_us) / c->rate) + 1;
}

static void schedule(struct world *w, struct heap_node *n, int64_t at_us)
{
    if (heap_has(n)) heap_remove(&w->events, n);
    if (at_us != INT64_MAX) assert_int_equal(heap_push(&w->events, n, at_us), 0);
}

/* ---- the server ---- */

static void new_version(struct world *w, struct kube_lease_record *r)
{
    snprintf(r->version, sizeof r->version, "%lu", (unsigned long)++w->version);
}

static void serve(struct world *w, struct candidate *c)
{
    bool same = w->is.no_versions || strcmp(c->write.version, w->lease.version) == 0;
    c->rc = 0;
    if (c->act == KUBE_ELECT_READ) {
        c->read = w->lease;
    } else if (c->act == KUBE_ELECT_CREATE ? w->lease.exists : !w->lease.exists) {
        c->rc = w->lease.exists ? -EEXIST : -ENOENT;
    } else if (c->act == KUBE_ELECT_WRITE && !same) {
        c->rc = -ESTALE;
    } else {
        w->changes += strcmp(w->lease.holder, c->write.holder) != 0;
        w->lease = c->write;
        new_version(w, &w->lease);
        c->read = w->lease;
    }
    /* The answer may be lost after the write was carried out. */
    if (w->is.losses && rng_below(&w->rng, 20) == 0) c->rc = -ETIMEDOUT;
    int64_t back_us = (int64_t)rng_exp(&w->rng, 30000);
    schedule(w, &c->answer, max_i64(w->now_us + back_us, c->stopped_until_us));
}

/* ---- a candidate ---- */

static void call(struct world *w, struct candidate *c, enum kube_elect_act act)
{
    if (w->is.recreate) c->elect.quiet_us = 0;
    kube_elect_begin(&c->elect, act, local_us(w, c), EPOCH_DATE_US + w->now_us + c->date_skew_us,
                     &c->write);
    c->act = act;
    /* Mostly milliseconds; some calls hang for many seconds and are carried out in the end. */
    double mean_us = w->is.losses && rng_below(&w->rng, 25) == 0 ? 8000000 : 20000;
    schedule(w, &c->apply, w->now_us + (int64_t)rng_exp(&w->rng, mean_us));
}

static void wake(struct world *w, struct candidate *c)
{
    int64_t at_us;
    if (w->now_us < c->stopped_until_us) {
        schedule(w, &c->wake, c->stopped_until_us);
        return;
    }
    enum kube_elect_act act = kube_elect_next(&c->elect, local_us(w, c), &at_us);
    if (act != KUBE_ELECT_WAIT) {
        call(w, c, act);
        kube_elect_next(&c->elect, local_us(w, c), &at_us);
    }
    schedule(w, &c->wake, true_us(c, at_us));
}

static void answer(struct world *w, struct candidate *c)
{
    int64_t now_us = local_us(w, c);
    if (c->act == KUBE_ELECT_READ) {
        kube_elect_read(&c->elect, c->rc, &c->read, now_us, &w->rng);
    } else {
        if (w->is.recreate) c->act = c->elect.busy = KUBE_ELECT_WRITE;
        kube_elect_wrote(&c->elect, c->rc, c->read.version, now_us, &w->rng);
        if (w->is.late_belief && c->rc == 0) c->elect.until_us = now_us + c->elect.config.renew_us;
    }
    wake(w, c);
}

/* Sometimes a candidate stands still, or the Lease is deleted behind everybody's back. */
static void mishap(struct world *w)
{
    if (w->is.pauses && rng_below(&w->rng, 400) == 0) {
        struct candidate *c = &w->candidate[rng_below(&w->rng, CANDIDATES)];
        c->stopped_until_us = w->now_us + (int64_t)rng_exp(&w->rng, 10000000);
        if (heap_has(&c->answer))
            schedule(w, &c->answer, max_i64(c->answer.key, c->stopped_until_us));
    }
    if (w->is.deletes && rng_below(&w->rng, 1000) == 0 && w->now_us > 60000000) {
        w->lease = (struct kube_lease_record){ 0 };
    }
}

/* ---- the check ---- */

/* Counts the candidates that believe to lead, as they would find when they ask now. */
static void look(struct world *w)
{
    int leaders = 0;
    for (int i = 0; i < CANDIDATES; i++) {
        const struct candidate *c = &w->candidate[i];
        if (!kube_elect_leads(&c->elect, local_us(w, c))) continue;
        leaders++;
        int64_t epoch = c->elect.epoch;
        assert_true(epoch > 0 && epoch < EPOCHS_MAX);
        if (w->leader_of[epoch] == 0) w->leader_of[epoch] = 1 + i;
        w->both += w->leader_of[epoch] != 1 + i || epoch < w->epoch_top;
        w->epoch_top = max_i64(w->epoch_top, epoch);
    }
    w->both += leaders > 1;
}

/* Runs a world of that seed and returns it. */
static struct world *world_run(uint64_t seed, const struct kube_elect_config *config,
                               struct mishaps is, bool made)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->is = is;
    rng_seed(&w->rng, seed);
    heap_init(&w->events, 64);
    if (made) {
        w->lease.exists = true;
        new_version(w, &w->lease);
    }
    for (int i = 0; i < CANDIDATES; i++) {
        struct candidate *c = &w->candidate[i];
        char name[16];
        snprintf(name, sizeof name, "c-%d", i);
        assert_int_equal(kube_elect_init(&c->elect, config, str_from(name), NULL), 0);
        c->rate = 0.9 + 0.2 * rng_f64(&w->rng);
        c->offset_us = 1000000 + (int64_t)rng_below(&w->rng, 1000000000000);
        c->date_skew_us = (int64_t)rng_below(&w->rng, 4000000) - 2000000;
        schedule(w, &c->wake, 1);
    }
    for (int64_t look_us = 0; w->now_us < WORLD_US;) {
        struct heap_node *n = heap_peek(&w->events);
        int64_t next_us = n ? min_i64(n->key, look_us) : look_us;
        w->now_us = max_i64(w->now_us, next_us);
        if (!n || look_us <= n->key) {
            look(w);
            mishap(w);
            look_us += TICK_US;
            continue;
        }
        heap_pop(&w->events);
        for (int i = 0; i < CANDIDATES; i++) {
            struct candidate *c = &w->candidate[i];
            if (n == &c->wake) wake(w, c);
            if (n == &c->apply) serve(w, c);
            if (n == &c->answer) answer(w, c);
        }
        look(w); /* at every step, not only at ticks */
    }
    heap_fini(&w->events);
    return w;
}

/* ---- claims ---- */

static void there_are_never_two_leaders(void **state)
{
    (void)state;
    const struct kube_elect_config config = { 0 };
    uint64_t changes = 0;
    /* 2229: a create that was under way for long was found, and led in an epoch of before. */
    for (uint64_t seed = 0; seed <= 2229; seed = seed == 999 ? 2229 : seed + 1) {
        bool rough = seed % 4 != 0;
        const struct mishaps is = { .pauses = rough, .losses = rough, .deletes = seed % 3 == 0 };
        struct world *w = world_run(seed, &config, is, seed % 5 != 0);
        if (w->both > 0) fail_msg("seed %d: two leaders at %d moments", (int)seed, (int)w->both);
        changes += w->changes;
        free(w);
    }
    assert_true(changes > 400); /* leadership did move */
}

static void without_mishaps_the_first_leads_to_the_end(void **state)
{
    (void)state;
    const struct kube_elect_config config = { 0 };
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct world *w = world_run(seed, &config, (struct mishaps){ 0 }, true);
        int leaders = 0;
        for (int i = 0; i < CANDIDATES; i++)
            leaders += kube_elect_leads(&w->candidate[i].elect, local_us(w, &w->candidate[i]));
        if (w->changes != 1 || w->both != 0 || leaders != 1) fail_msg("seed %d", (int)seed);
        free(w);
    }
}

static void the_check_sees_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        struct mishaps is;
        int64_t renew_us;
    } rows[] = {
        { "a server that does not compare versions", { .no_versions = true }, 0 },
        { "a belief that counts from the answer", { .late_belief = true }, 12000000 },
        { "a Lease that was made anew and leads at once",
          { .recreate = true, .deletes = true },
          0 },
        { "no margin for clocks of unlike rates", { 0 }, 14900000 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct kube_elect_config config = { .renew_us = rows[i].renew_us };
        struct mishaps is = rows[i].is;
        uint32_t caught = 0;
        is.pauses = is.losses = true;
        for (uint64_t seed = 0; seed < 200; seed++) {
            struct world *w = world_run(seed, &config, is, true);
            caught += w->both > 0;
            free(w);
        }
        if (caught == 0) fail_msg("not seen: %s", rows[i].why);
        print_message("%s: seen in %u of 200 worlds\n", rows[i].why, caught);
    }
}

/* ---- steps by hand ---- */

static struct kube_lease_record record(const char *holder, const char *version, int64_t transitions)
{
    struct kube_lease_record r = { .exists = true,
                                   .lease_us = KUBE_LEASE_US,
                                   .transitions = transitions };
    snprintf(r.holder, sizeof r.holder, "%s", holder);
    snprintf(r.version, sizeof r.version, "%s", version);
    return r;
}

struct steps {
    struct kube_elect e;
    struct rng rng;
};

static struct steps steps_begin(int64_t epoch_least)
{
    struct steps s = { 0 };
    const struct kube_elect_config config = { .epoch_least = epoch_least };
    rng_seed(&s.rng, 1);
    assert_int_equal(kube_elect_init(&s.e, &config, STR("me"), NULL), 0);
    return s;
}

/* Expects this act at this time, begins it and returns what it writes. */
static struct kube_lease_record begin_act(struct steps *s, enum kube_elect_act act, int64_t now_us)
{
    struct kube_lease_record write = { 0 };
    int64_t at_us;
    assert_int_equal(kube_elect_next(&s->e, now_us, &at_us), act);
    kube_elect_begin(&s->e, act, now_us, EPOCH_DATE_US + 7000000000 + now_us, &write);
    return write;
}

static void read_is(struct steps *s, int64_t now_us, const struct kube_lease_record *r)
{
    begin_act(s, KUBE_ELECT_READ, now_us);
    kube_elect_read(&s->e, 0, r, now_us, &s->rng);
}

static void a_free_lease_is_taken_at_once_and_the_epoch_grows(void **state)
{
    (void)state;
    struct steps s = steps_begin(41);
    const struct kube_lease_record free_one = record("", "7", 41);
    read_is(&s, 1000, &free_one);
    struct kube_lease_record w = begin_act(&s, KUBE_ELECT_WRITE, 1000);
    assert_string_equal(w.holder, "me");
    assert_string_equal(w.version, "7");
    assert_int_equal(w.transitions,
                     42); /* above the Lease's and above those that were used before */
    assert_false(kube_elect_leads(&s.e, 1000));
    kube_elect_wrote(&s.e, 0, "8", 500000, &s.rng);
    assert_true(kube_elect_leads(&s.e, 500000));
    assert_int_equal(s.e.epoch, 42);
    assert_true(kube_elect_leads(&s.e, 1000 + KUBE_RENEW_US - 1));
    assert_false(kube_elect_leads(&s.e, 1000 + KUBE_RENEW_US)); /* from the write's begin */
}

static void anothers_lease_is_taken_after_it_was_seen_unchanged(void **state)
{
    (void)state;
    struct steps s = steps_begin(0);
    struct kube_lease_record other = record("other", "7", 1);
    int64_t now_us = 5000000;
    other.lease_us = 20000000; /* longer than ours: its holder may believe for longer */
    read_is(&s, now_us, &other);
    for (int i = 0; i < 6; i++) {
        now_us += 2500000;
        read_is(&s, now_us, &other);
    }
    other = record("other", "8", 1); /* renewed: the wait begins anew */
    other.lease_us = 20000000;
    now_us += 2500000;
    read_is(&s, now_us, &other);
    int64_t seen_us = now_us, at_us;
    while (now_us + 2500000 < seen_us + 20000000) {
        now_us += 2500000;
        read_is(&s, now_us, &other);
    }
    now_us = seen_us + 20000000;
    struct kube_lease_record w = begin_act(&s, KUBE_ELECT_WRITE, now_us);
    assert_int_equal(w.transitions, 2);
    kube_elect_wrote(&s.e, -ESTALE, "", now_us, &s.rng); /* somebody was faster */
    assert_false(kube_elect_leads(&s.e, now_us));
    assert_int_equal(kube_elect_next(&s.e, now_us, &at_us), KUBE_ELECT_READ);
}

static void a_leader_renews_and_keeps_its_epoch(void **state)
{
    (void)state;
    struct steps s = steps_begin(0);
    const struct kube_lease_record free_one = record("", "7", 0);
    read_is(&s, 0, &free_one);
    begin_act(&s, KUBE_ELECT_WRITE, 0);
    kube_elect_wrote(&s.e, 0, "8", 0, &s.rng);
    int64_t now_us = 3000000, at_us;
    struct kube_lease_record w = begin_act(&s, KUBE_ELECT_WRITE, now_us);
    assert_int_equal(w.transitions, 1);
    assert_string_equal(w.version, "8");
    /* No answer. The belief of before goes on, and the record is read before another write. */
    kube_elect_wrote(&s.e, -ETIMEDOUT, "", 5000000, &s.rng);
    assert_true(kube_elect_leads(&s.e, 5000000));
    assert_int_equal(kube_elect_next(&s.e, 5000000, &at_us), KUBE_ELECT_WAIT);
    const struct kube_lease_record ours = record("me", "9", 1);
    read_is(&s, 8000000, &ours);
    assert_true(kube_elect_leads(&s.e, KUBE_RENEW_US - 1));
    assert_false(kube_elect_leads(&s.e, KUBE_RENEW_US)); /* a read extends no belief */
    begin_act(&s, KUBE_ELECT_WRITE, 8000000);
    kube_elect_wrote(&s.e, 0, "10", 8100000, &s.rng);
    assert_int_equal(s.e.epoch, 1);
    assert_true(kube_elect_leads(&s.e, 17900000));
    /* Another holds it: the belief ends at once. */
    begin_act(&s, KUBE_ELECT_WRITE, 12000000);
    kube_elect_wrote(&s.e, -ESTALE, "", 12000000, &s.rng);
    const struct kube_lease_record theirs = record("other", "11", 2);
    read_is(&s, 12000000, &theirs);
    assert_false(kube_elect_leads(&s.e, 12000000));
}

static void a_lease_that_was_made_anew_gives_no_belief_at_first(void **state)
{
    (void)state;
    struct steps s = steps_begin(0);
    const struct kube_lease_record other = record("other", "7", 5), none = { 0 };
    int64_t now_us = 1000000, at_us;
    read_is(&s, now_us, &other);
    now_us += 2500000;
    read_is(&s, now_us, &none);
    struct kube_lease_record w = begin_act(&s, KUBE_ELECT_CREATE, now_us);
    assert_int_equal(w.transitions, 7003); /* the date, above all epochs of the one before */
    now_us += 1000000;
    kube_elect_wrote(&s.e, 0, "1", now_us, &s.rng);
    int64_t quiet_us = now_us + KUBE_LEASE_US;
    for (int i = 0; now_us + 2500000 < quiet_us;
         i++) { /* renewed meanwhile, so that nobody takes it */
        now_us += 2500000;
        begin_act(&s, KUBE_ELECT_WRITE, now_us);
        kube_elect_wrote(&s.e, 0, "2", now_us, &s.rng);
        assert_false(kube_elect_leads(&s.e, now_us));
    }
    now_us = quiet_us;
    begin_act(&s, KUBE_ELECT_WRITE, now_us);
    kube_elect_wrote(&s.e, 0, "3", now_us, &s.rng);
    assert_true(kube_elect_leads(&s.e, now_us));
    assert_int_equal(s.e.epoch, 7019); /* of the first belief */
    now_us += 2500000;
    begin_act(&s, KUBE_ELECT_WRITE, now_us);
    kube_elect_wrote(&s.e, -ENOENT, "", now_us, &s.rng); /* deleted again */
    assert_false(kube_elect_leads(&s.e, now_us));
    assert_int_equal(kube_elect_next(&s.e, now_us, &at_us), KUBE_ELECT_READ);
}

static void a_create_without_an_answer_counts_when_it_is_found(void **state)
{
    (void)state;
    struct steps s = steps_begin(0);
    const struct kube_lease_record none = { 0 }, other = record("other", "3", 8000);
    int64_t now_us = 1000000;
    read_is(&s, now_us, &none);
    begin_act(&s, KUBE_ELECT_CREATE, now_us);
    kube_elect_wrote(&s.e, -ETIMEDOUT, "", now_us, &s.rng);
    now_us += 2500000;
    read_is(&s, now_us, &other); /* somebody else's was there first; then it was deleted */
    const struct kube_lease_record ours = record("me", "9", 7000);
    now_us += 2500000;
    read_is(&s, now_us, &ours);
    begin_act(&s, KUBE_ELECT_WRITE, now_us);
    kube_elect_wrote(&s.e, 0, "10", now_us, &s.rng);
    assert_false(kube_elect_leads(&s.e, now_us));
    /* Its epoch was older than those of the Lease that was there meanwhile. */
    now_us = 2000000000;
    begin_act(&s, KUBE_ELECT_WRITE, now_us);
    kube_elect_wrote(&s.e, 0, "11", now_us, &s.rng);
    assert_true(kube_elect_leads(&s.e, now_us));
    assert_int_equal(s.e.epoch, 9000);
}

static void another_lease_without_a_holder_was_not_released(void **state)
{
    (void)state;
    struct steps s = steps_begin(0);
    const struct kube_lease_record other = record("other", "7", 5), anew = record("", "9", 0);
    int64_t now_us = 1000000, at_us;
    read_is(&s, now_us, &other);
    now_us += 2500000;
    read_is(&s, now_us, &anew);
    assert_int_equal(kube_elect_next(&s.e, now_us, &at_us), KUBE_ELECT_WAIT);
    assert_int_equal(kube_elect_next(&s.e, now_us + KUBE_LEASE_US, &at_us), KUBE_ELECT_WRITE);
}

static void who_gives_up_leads_no_more_and_releases(void **state)
{
    (void)state;
    struct steps s = steps_begin(0);
    struct kube_lease_record w;
    const struct kube_lease_record free_one = record("", "7", 0);
    int64_t at_us;
    assert_false(kube_elect_resign(&s.e, &w)); /* nothing is known to be ours */
    s = steps_begin(0);
    read_is(&s, 0, &free_one);
    begin_act(&s, KUBE_ELECT_WRITE, 0);
    kube_elect_wrote(&s.e, 0, "8", 0, &s.rng);
    assert_true(kube_elect_leads(&s.e, 1000));
    assert_true(kube_elect_resign(&s.e, &w));
    assert_false(kube_elect_leads(&s.e, 1000));
    assert_string_equal(w.holder, "");
    assert_string_equal(w.version, "8");
    assert_int_equal(w.transitions, 1);
    assert_int_equal(kube_elect_next(&s.e, 100000000, &at_us), KUBE_ELECT_WAIT);
    assert_int_equal(at_us, INT64_MAX);
}

static void times_that_are_unsafe_are_refused(void **state)
{
    (void)state;
    static const struct {
        struct kube_elect_config config;
        const char *identity;
        int rc;
    } rows[] = {
        { { 0 }, "a", 0 },
        { { .lease_us = 10000000 }, "a", -EINVAL }, /* renew_us is as long */
        { { .renew_us = 15000000 }, "a", -EINVAL },
        { { .retry_us = 10000000 }, "a", -EINVAL },
        { { .retry_us = -1 }, "a", -EINVAL },
        { { .lease_us = 999999, .renew_us = 2, .retry_us = 1 }, "a", -EINVAL },
        { { .lease_us = KUBE_LEASE_US_MAX + 1 }, "a", -EINVAL },
        { { 0 }, "", -EINVAL },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kube_elect e;
        struct err err = { 0 };
        int rc = kube_elect_init(&e, &rows[i].config, str_from(rows[i].identity), &err);
        if (rc != rows[i].rc || (rc < 0 && err.text[0] == 0)) fail_msg("row %zu: %d", i, rc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_free_lease_is_taken_at_once_and_the_epoch_grows),
        cmocka_unit_test(anothers_lease_is_taken_after_it_was_seen_unchanged),
        cmocka_unit_test(a_leader_renews_and_keeps_its_epoch),
        cmocka_unit_test(a_lease_that_was_made_anew_gives_no_belief_at_first),
        cmocka_unit_test(a_create_without_an_answer_counts_when_it_is_found),
        cmocka_unit_test(another_lease_without_a_holder_was_not_released),
        cmocka_unit_test(who_gives_up_leads_no_more_and_releases),
        cmocka_unit_test(times_that_are_unsafe_are_refused),
        cmocka_unit_test(without_mishaps_the_first_leads_to_the_end),
        cmocka_unit_test(there_are_never_two_leaders),
        cmocka_unit_test(the_check_sees_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
