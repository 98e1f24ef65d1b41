/* t_election_seeds.c - tests the election by seed: processes that stop and restart, clocks of different speeds, lost
 * replies, and a store that is away, empties or goes back, while orders are acknowledged.
 *
 * No two ever believe at one time, epochs rise, and a content that is written anew has every order that was
 * acknowledged. These things excuse missing ones, and are counted: the last leader has restarted; it stood still or
 * could not reach the server since that came back; the one that took the lease had led, was cut off while another
 * led, and saw the store again only after the loss; or it has begun since, and cannot know that the data is old. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "base/io/store/store_election.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SECOND ((int64_t)1000000)
#define TERM (8 * SECOND)
#define LOOK (TERM / ELECTION_LOOKS)
#define PROCESSES 3
#define STEP (SECOND / 50)
#define RUN (600 * SECOND)
#define PAST_MAX 64
#define SEEDS 300
#define COPY_AGE (TERM / 2)
#define BACK_OFF (TERM / 2) /* a process that could not reach the server tries again within this */
#define NEVER INT64_MIN

/* What a store holds, and a process copies: the first `orders` of all that were given. */
struct content {
    uint64_t life; /* 0: there is none */
    uint64_t orders;
    bool half;     /* it is being written anew */
    uint64_t from; /* from a copy of this life */
};

struct moment {
    struct store_lease lease;
    struct content content;
};

/* The store as a server keeps it, and some of its past, to which it may go back. */
struct server {
    struct moment now, past[PAST_MAX];
    uint32_t past_count;
    uint64_t line;        /* of connections since its last start */
    int64_t away_until;   /* answers nothing until then */
    uint64_t epoch_spent; /* highest epoch ever given out */
    uint64_t lives;       /* ever begun */
};

struct process {
    struct election e;
    int64_t fast_ppm, ahead_us; /* of its clock */
    int64_t stopped_until;
    int64_t again_at;   /* it does not try the server before */
    int64_t trouble_at; /* it could not reach the server, or stood still, until then */
    uint64_t beat;      /* of its own term */
    bool unsure;        /* the reply of its last renewal was lost */
    struct content copy;
    int64_t copied_us;
    uint64_t led, heard; /* epochs: its last term's, and the highest of another process */
    int64_t first_at;    /* it saw the store for the first time */
    bool took_whole;     /* the content was neither gone nor half when it took the lease */
};

/* Bugs that are planted, to show that the check can fail. */
enum mutant {
    MUTANT_NONE,
    MUTANT_HASTE,      /* a candidate does not wait */
    MUTANT_FROM_REPLY, /* a term counts from the reply of a renewal, not from its sending */
    MUTANT_ANY_LINE,   /* a free lease is taken over a new connection */
    MUTANT_ANY_TIME,   /* the last leader takes a lost lease at once, its term over or not */
    MUTANT_GAVE_BACK,  /* a leader that gave its lease back takes a lost one at once */
    MUTANT_NO_TURN,    /* others do not wait for the last leader */
    MUTANT_NO_DOUBT,   /* nor where it is a new connection alone that tells of a restart */
    MUTANT_COUNT
};

struct trial {
    struct rng rng;
    int64_t now_us;
    uint64_t rough; /* one of so many calls fails, and of so many replies is lost */
    struct server server;
    struct process process[PROCESSES];
    enum mutant mutant;

    uint64_t orders;   /* acknowledged, and not given up */
    uint32_t last;     /* the process that took the lease last */
    bool last_is_gone; /* it has restarted since, or its term did not begin */
    bool was_lost;     /* the server forgot something, and no term has begun since */
    uint32_t names;    /* of processes, ever */

    uint32_t terms, at_once, anew, gone, blind, new;
    char problem[96]; /* empty: all was well */
};

static int64_t clock_of(const struct trial *t, const struct process *p)
{
    return p->ahead_us + t->now_us + t->now_us * p->fast_ppm / 1000000;
}

static bool happens(struct trial *t, double each_s)
{
    return rng_f64(&t->rng) < (double)STEP / 1e6 / each_s;
}

static int64_t some(struct trial *t, int64_t most)
{
    return (int64_t)rng_below(&t->rng, (uint64_t)most);
}

static void keep_past(struct server *s)
{
    s->past[s->past_count++ % PAST_MAX] = s->now;
}

static bool is_newer(const struct content *copy, const struct content *c)
{
    if (copy->life == 0) return false;
    if (c->life == 0) return true;
    if (c->half) return copy->life == c->life || copy->life == c->from;
    return copy->life == c->life && copy->orders > c->orders;
}

/* ---- the server ---- */

static bool is_mine(const struct server *s, const struct process *p)
{
    const struct store_lease *l = &s->now.lease;
    return l->held && strcmp(l->holder, p->e.holder) == 0 && l->epoch == p->led;
}

/* A leader's call finds less than it knows of, or another beginning. */
static bool is_behind(const struct server *s, const struct process *p)
{
    return s->now.content.life != p->copy.life || s->now.content.orders < p->copy.orders;
}

static int renew(struct server *s, struct process *p, bool lost)
{
    struct store_lease *l = &s->now.lease;
    bool as_known = l->beat == p->beat || (p->unsure && l->beat == p->beat + 1);
    if (is_behind(s, p) || !is_mine(s, p) || !as_known) return -EKEYREVOKED;
    p->beat = l->beat;
    l->beat++;
    p->unsure = lost;
    if (!lost) p->beat = l->beat;
    return 0;
}

/* Takes the lease, and begins content that is gone: a copy is written in a second step. */
static int take(struct trial *t, struct process *p)
{
    struct server *s = &t->server;
    struct content *c = &s->now.content;
    struct store_lease now = s->now.lease;
    now.line = s->line;
    if (!store_lease_same(&now, &p->e.seen)) return -EBUSY;
    if (c->half && !is_newer(&p->copy, c)) return -EILSEQ;
    /* As with the date: a store that was emptied gives higher epochs than before. */
    uint64_t epoch = max_u64(max_u64(now.epoch, p->e.epoch), (uint64_t)(t->now_us / SECOND)) + 1;
    s->now.lease = (struct store_lease){ .epoch = epoch, .held = true, .term_us = TERM };
    snprintf(s->now.lease.holder, sizeof s->now.lease.holder, "%s", p->e.holder);
    p->took_whole = c->life > 0 && !c->half;
    if (c->life == 0) {
        *c = (struct content){ .life = ++s->lives, .half = p->copy.life > 0, .from = p->copy.life };
        s->past_count = 0; /* a copy of an older life is no copy of this one */
    }
    return 0;
}

/* Makes a call of a process. Each way may fail. */
static int call(struct trial *t, struct process *p, enum election_act act, struct store_lease *ret)
{
    struct server *s = &t->server;
    bool lost = rng_below(&t->rng, t->rough) == 0;
    if (t->now_us < p->again_at) return -ENETDOWN;
    if (t->now_us < s->away_until || rng_below(&t->rng, t->rough) == 0) { /* not done */
        if (t->now_us >= s->away_until) p->trouble_at = t->now_us;
        if (t->now_us < s->away_until) p->again_at = t->now_us + some(t, BACK_OFF);
        return -ETIMEDOUT;
    }
    int rc = 0;
    if (act == ELECTION_RENEW_IT) rc = renew(s, p, lost);
    if (act == ELECTION_ACQUIRE) rc = take(t, p);
    if (rc < 0) return rc;
    *ret = s->now.lease;
    ret->line = s->line;
    ret->lost =
        s->now.content.life == 0 || s->now.content.half || is_newer(&p->copy, &s->now.content);
    if (act != ELECTION_SEE) keep_past(s);
    if (lost) p->trouble_at = t->now_us;
    return !lost ? 0 : act == ELECTION_SEE ? -ETIMEDOUT : -EREMOTEIO;
}

/* ---- content ---- */

/* What a process does when it has the lease: it writes its copy, which may be cut off, or takes one. */
static int settle(struct trial *t, struct process *p)
{
    struct server *s = &t->server;
    struct content *c = &s->now.content;
    if (is_newer(&p->copy, c)) {
        c->half = true;
        if (c->from == 0) c->from = p->copy.life;
        if (rng_below(&t->rng, 8) == 0) {
            p->trouble_at = t->now_us;
            if (rng_below(&t->rng, 2) == 0) s->now.lease.held = false;
            return -ETIMEDOUT;
        }
        c->orders = p->copy.orders;
        c->half = false;
        c->from = 0;
    }
    p->copy = *c;
    return 0;
}

static void copy_content(struct trial *t, struct process *p, int64_t asked_us)
{
    const struct content *c = &t->server.now.content;
    if (asked_us - p->copied_us < COPY_AGE) return;
    p->copied_us = asked_us;
    if (c->life == 0 || c->half) return;
    if (p->copy.life == c->life && p->copy.orders >= c->orders) return;
    p->copy = *c;
}

/* Judges the content with which a term begins. */
static void judge(struct trial *t, const struct process *p)
{
    const struct process *last = &t->process[t->last];
    uint64_t have = t->server.now.content.orders;
    if (t->was_lost && have >= t->orders && t->orders > 0) t->anew++;
    t->was_lost = false;
    if (have >= t->orders) return;
    bool blind = p != last && p->led > 0 && p->heard < p->led;
    bool gone = t->last_is_gone || last->trouble_at >= t->server.away_until;
    bool new = p->took_whole && p->first_at >= t->server.away_until;
    if (!blind && !gone && !new)
        snprintf(t->problem, sizeof t->problem, "%d orders are missing at %d ms",
                 (int)(t->orders - have), (int)(t->now_us / 1000));
    t->gone += gone;
    t->blind += !gone && blind;
    t->new += !gone && !blind &&new;
    t->orders = have;
}

/* A leader gives itself an order, which is acknowledged when the store has it. */
static void order(struct trial *t, struct process *p)
{
    struct server *s = &t->server;
    bool lost = rng_below(&t->rng, t->rough) == 0;
    if (t->now_us < p->again_at || t->now_us < s->away_until) return;
    if (is_behind(s, p) || !is_mine(s, p)) {
        election_lost(&p->e, false, clock_of(t, p));
        return;
    }
    if (rng_below(&t->rng, 20) == 0) keep_past(s); /* it reaches back for some terms */
    s->now.content.orders++;
    if (lost) {
        election_lost(&p->e, false, clock_of(t, p));
        return;
    }
    p->copy.orders = t->orders = s->now.content.orders;
}

/* ---- a run ---- */

static void check(struct trial *t)
{
    uint32_t believers = 0;
    for (uint32_t i = 0; i < PROCESSES; i++)
        believers += election_leads(&t->process[i].e, clock_of(t, &t->process[i]));
    if (believers > 1)
        snprintf(t->problem, sizeof t->problem, "%u believe at %d ms", believers,
                 (int)(t->now_us / 1000));
}

static void plant(struct trial *t, struct process *p, int64_t asked_us, int64_t now_us)
{
    if (t->mutant == MUTANT_HASTE) p->e.since_us = -RUN;
    if (t->mutant == MUTANT_ANY_LINE) p->e.line_us = -RUN;
    if (t->mutant == MUTANT_FROM_REPLY && p->e.until_us == asked_us + TERM)
        p->e.until_us = now_us + TERM;
    if (t->mutant == MUTANT_ANY_TIME && !p->e.leads && p->led) p->e.until_us = INT64_MAX;
    if (t->mutant == MUTANT_NO_TURN && !p->e.leads && now_us >= p->e.until_us)
        p->e.own_epoch = p->e.heard_epoch;
    if (t->mutant == MUTANT_NO_DOUBT) p->e.moved = false;
}

static void took(struct trial *t, struct process *p, const struct store_lease *l, bool waited)
{
    t->at_once += t->was_lost && !waited;
    judge(t, p);
    t->last = (uint32_t)(p - t->process);
    t->last_is_gone = false;
    p->led = l->epoch;
    p->beat = 0;
    p->unsure = false;
    if (l->epoch <= t->server.epoch_spent)
        snprintf(t->problem, sizeof t->problem, "epoch %d again", (int)l->epoch);
    t->server.epoch_spent = l->epoch;
    t->terms++;
}

static void take_turn(struct trial *t, struct process *p)
{
    int64_t asked_us = clock_of(t, p);
    enum election_act act = election_turn(&p->e, asked_us);
    if (act == ELECTION_WAIT) return;
    struct store_lease l = { 0 };
    bool waited = asked_us - p->e.since_us >= TERM;
    int rc = call(t, p, act, &l);
    int64_t now_us = asked_us + some(t, 1000);
    if (rng_below(&t->rng, 10 * t->rough) == 0) now_us += some(t, 2 * TERM);
    p->stopped_until = t->now_us + (now_us - asked_us); /* it waits for the reply */
    if (now_us - asked_us > LOOK) p->trouble_at = p->stopped_until;
    bool other = strcmp(l.holder, p->e.holder) != 0;
    if (act == ELECTION_SEE && rc == 0) p->first_at = min_i64(p->first_at, t->now_us);
    if (act == ELECTION_SEE && rc == 0 && other) p->heard = max_u64(p->heard, l.epoch);
    if (act == ELECTION_SEE) election_saw(&p->e, rc, &l, asked_us, now_us);
    if (act == ELECTION_SEE && rc == 0) copy_content(t, p, asked_us);
    if (act == ELECTION_RENEW_IT) election_renewed(&p->e, rc, asked_us, now_us);
    if (act == ELECTION_ACQUIRE && rc == 0) rc = settle(t, p);
    if (act == ELECTION_ACQUIRE) election_acquired(&p->e, rc, l.epoch, asked_us, now_us);
    if (act == ELECTION_ACQUIRE && rc == 0) took(t, p, &l, waited);
    if (act == ELECTION_ACQUIRE && (rc == -EREMOTEIO || rc == -ETIMEDOUT) && l.epoch > 0)
        t->last_is_gone |= p != &t->process[t->last];
    plant(t, p, asked_us, now_us);
}

static void start(struct trial *t, struct process *p)
{
    *p = (struct process){ .trouble_at = NEVER, .copied_us = NEVER / 2, .first_at = INT64_MAX };
    p->e = (struct election){ .term_us = TERM, .shared = true };
    snprintf(p->e.holder, sizeof p->e.holder, "p%u", t->names++);
    p->fast_ppm = some(t, 100001) - 50000; /* five percent */
    p->ahead_us = some(t, 1000) * SECOND;
}

static void give_back(struct trial *t, struct process *p)
{
    struct server *s = &t->server;
    int64_t until_us = p->e.until_us;
    if (is_mine(s, p) && !is_behind(s, p)) s->now.lease.held = false;
    keep_past(s);
    election_lost(&p->e, true, clock_of(t, p));
    if (t->mutant == MUTANT_GAVE_BACK) p->e.until_us = until_us;
}

static void disturb_process(struct trial *t, struct process *p)
{
    if (happens(t, 40)) {
        int64_t us = some(t, 4 * TERM);
        p->stopped_until = t->now_us + us;
        if (us > LOOK) p->trouble_at = p->stopped_until;
    }
    if (happens(t, 60) && p->e.leads && t->now_us >= t->server.away_until) give_back(t, p);
    if (!happens(t, 150)) return;
    t->last_is_gone |= p == &t->process[t->last];
    start(t, p);
}

/* The server restarts: with its data, empty, or with older data; at once, or after a while. */
static void restart(struct trial *t)
{
    struct server *s = &t->server;
    uint64_t what = rng_below(&t->rng, 3);
    uint32_t kept = min_u32(s->past_count, PAST_MAX);
    if (rng_below(&t->rng, 2) == 0) s->away_until = t->now_us + some(t, 4 * TERM);
    s->away_until = max_i64(s->away_until, t->now_us);
    s->line++;
    if (what == 1) s->now = (struct moment){ 0 };
    if (what == 2 && kept > 0) s->now = s->past[rng_below(&t->rng, kept)];
    t->was_lost |= s->now.content.orders < t->orders;
}

static void disturb(struct trial *t)
{
    for (uint32_t i = 0; i < PROCESSES; i++)
        disturb_process(t, &t->process[i]);
    if (happens(t, 120)) t->server.away_until = t->now_us + some(t, 3 * TERM);
    if (happens(t, 60)) restart(t);
}

static void step(struct trial *t)
{
    disturb(t);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        struct process *p = &t->process[i];
        if (t->now_us < p->stopped_until) continue;
        take_turn(t, p);
        if (election_leads(&p->e, clock_of(t, p)) && happens(t, 0.2)) order(t, p);
    }
    check(t);
}

static struct trial run_seed(uint64_t seed, enum mutant mutant)
{
    struct trial t = { .mutant = mutant, .server = { .line = 1 }, .rough = seed % 2 ? 20 : 1000 };
    rng_seed(&t.rng, seed);
    for (uint32_t i = 0; i < PROCESSES; i++)
        start(&t, &t.process[i]);
    for (; t.now_us < RUN && !t.problem[0]; t.now_us += STEP)
        step(&t);
    return t;
}

static void one_leads_and_no_acknowledged_order_is_missing(void **state)
{
    (void)state;
    struct trial sum = { 0 };
    for (int seed = 0; seed < SEEDS; seed++) {
        struct trial t = run_seed((uint64_t)seed, MUTANT_NONE);
        if (t.problem[0]) fail_msg("seed %d: %s", seed, t.problem);
        sum.terms += t.terms;
        sum.at_once += t.at_once;
        sum.anew += t.anew;
        sum.gone += t.gone;
        sum.blind += t.blind;
        sum.new += t.new;
    }
    print_message("%u terms; contents anew with every order: %u, of them at once %u; without some: "
                  "%u, as the last "
                  "leader was gone, %u by one that was cut off, %u by a new one from old data\n",
                  sum.terms, sum.anew, sum.at_once, sum.gone, sum.blind, sum.new);
    assert_true(sum.terms > 5 * SEEDS);
    assert_true(sum.anew > SEEDS && sum.at_once > SEEDS / 2);
    assert_true(sum.gone > 0);
}

static void each_planted_bug_is_found(void **state)
{
    (void)state;
    for (enum mutant m = MUTANT_NONE + 1; m < MUTANT_COUNT; m++) {
        struct trial t = { 0 };
        int seed = 0;
        for (; seed < SEEDS && !t.problem[0]; seed++)
            t = run_seed((uint64_t)seed, m);
        print_message("mutant %d: seed %d: %s\n", m, seed - 1, t.problem);
        assert_true(t.problem[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_leads_and_no_acknowledged_order_is_missing),
        cmocka_unit_test(each_planted_bug_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
