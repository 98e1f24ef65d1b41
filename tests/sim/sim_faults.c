/* sim_faults.c - runs worlds by seed, and tells the first broken check of each.
 *
 *     sim_faults [--seeds COUNT] [--from SEED]   runs each seed once, every 50th twice
 *     sim_faults --seed SEED [--verbose]         runs one seed and prints its events
 *     ... --kinds COUNT                          allows only the first COUNT kinds of faults
 *     sim_faults --mutants [--seeds COUNT]       finds each planted bug within COUNT seeds
 *     sim_faults --mutant NAME ...               runs the seeds with that bug
 */
#include "base/core/bits.h"
#include "base/io/loop/clock.h"
#include "tests/sim/world.h"

#include <inttypes.h>
#include <stdio.h>

#define TWICE_EVERY 50

/* Seeds that once found a defect of the product; they run first. */
static const struct {
    uint64_t seed;
    uint32_t kinds; /* of faults that existed then */
    const char *why;
} regressions[] = {
    { 64, 26,
      "a remove repeated sooner than a listing can show it puts the proof of the end off for "
      "ever: the intent keeps its place and the fleet cannot grow again" },
    { 53, 26, "one pool is held up by the window while another grows: over the service's maximum" },
    { 150, 26, "a controller cut off from agents and routers alike ends what serves, as silent" },
    { 367, 26,
      "the same in the tick in which the routers are heard again: their word of the tick "
      "before counted" },
    { 276, 26,
      "a crash between the launch and the drain of one decision: over the maximum until the "
      "controller is back" },
    { 2383, 26, "a drain could not be written and the launch beside it was: over the maximum" },
    { 377, 26,
      "a drain before the provider takes a machine away is withdrawn and renewed at each "
      "tick" },
    { 150, 33,
      "an agent that could ask nothing while its engine started kills it, though it was "
      "ready all the time" },
    { 1494, 33,
      "a drain could not be written and another was withdrawn beside it: over the "
      "maximum" },
    { 7090, 41,
      "a remove repeated when a listing could show its effect but not prove it, in step with the "
      "listings: the proof of the end is put off for ever" },
};

struct options {
    uint64_t from, count;
    enum mutant mutant;
    uint64_t kinds;
    bool one, verbose, mutants, quiet;
};

static void tell(const struct world_options *o, const struct world_result *r)
{
    printf("seed %" PRIu64 ": %s at %.3f s: %s\n", o->seed, check_names[r->failure.check],
           (double)r->failure.at_us / 1e6, r->failure.text);
    printf("replay: build/tests/sim/sim_faults --seed %" PRIu64 " --verbose", o->seed);
    if (o->kinds) printf(" --kinds %u", o->kinds);
    if (o->mutant) printf(" --mutant %s", mutant_rows[o->mutant].name);
    printf("\n");
    fflush(stdout);
}

/* Runs one seed, or two times to compare the digests. Returns true if all checks held. */
static bool run_one(uint64_t seed, const struct options *o, bool twice, struct world_result *ret)
{
    struct world_options world = { seed, o->mutant, (uint32_t)o->kinds, o->verbose };
    world_run(&world, ret);
    if (twice && !ret->failed) {
        struct world_result again;
        world.verbose = false;
        world_run(&world, &again);
        if (again.digest != ret->digest) {
            ret->failed = true;
            ret->failure = (struct failure){ .check = CHECK_REPEATS };
            snprintf(ret->failure.text, sizeof ret->failure.text,
                     "digest %016" PRIx64 ", then %016" PRIx64, ret->digest, again.digest);
        }
    }
    if (ret->failed && !o->quiet) tell(&world, ret);
    return !ret->failed;
}

static int run_seeds(const struct options *o)
{
    uint64_t failed = 0, events = 0, requests = 0, answered = 0, machines = 0, deaths = 0,
             terms = 0;
    int64_t began_us = clock_mono_us();
    for (uint64_t i = 0; i < o->count; i++) {
        struct world_result r;
        failed += !run_one(o->from + i, o, i % TWICE_EVERY == 0, &r);
        events += r.events;
        requests += r.requests;
        answered += r.answered;
        machines += r.machines;
        deaths += r.controller_deaths;
        terms += r.terms;
    }
    double wall_s = (double)(clock_mono_us() - began_us) / 1e6;
    printf("%" PRIu64 " seeds, %" PRIu64 " failed; %" PRIu64 " events, %" PRIu64
           " requests (%.1f %% answered), %" PRIu64 " machines, %" PRIu64
           " controller deaths, %" PRIu64 " terms of two; %.1f seeds/s\n",
           o->count, failed, events, requests,
           requests ? 100 * (double)answered / (double)requests : 0, machines, deaths, terms,
           (double)o->count / wall_s);
    return failed ? 1 : 0;
}

static int run_regressions(void)
{
    uint32_t failed = 0;
    for (uint32_t i = 0; i < COUNT_OF(regressions); i++) {
        struct options o = { .kinds = regressions[i].kinds };
        struct world_result r;
        if (run_one(regressions[i].seed, &o, false, &r)) continue;
        printf("regression: %s\n", regressions[i].why);
        failed++;
    }
    return failed ? 1 : 0;
}

/* Returns true if the mutant's own check fires within `count` seeds. A seed in which another check fires
 * first does not count. */
static bool find_mutant(enum mutant m, uint64_t count)
{
    const struct mutant_row *row = &mutant_rows[m];
    struct options o = { .mutant = m, .quiet = true };
    for (uint64_t seed = 0; seed < count; seed++) {
        struct world_result r;
        run_one(seed, &o, m == MUTANT_OWN_CLOCK, &r);
        if (!r.failed || strcmp(check_names[r.failure.check], row->check) != 0) continue;
        printf("%-16s found by %-14s at seed %" PRIu64 ": %s\n", row->name, row->check, seed,
               r.failure.text);
        return true;
    }
    printf("%-16s NOT FOUND by %s within %" PRIu64 " seeds\n", row->name, row->check, count);
    return false;
}

static int run_mutants(uint64_t count)
{
    uint32_t missed = 0;
    for (enum mutant m = MUTANT_NONE + 1; m < MUTANT_COUNT; m++)
        missed += !find_mutant(m, count);
    return missed ? 1 : 0;
}

static int usage(const char *what)
{
    fprintf(stderr,
            "sim_faults: %s\nuse: sim_faults [--seeds COUNT] [--from SEED] | --seed SEED "
            "[--verbose] | --mutants [--seeds COUNT]; with --mutant NAME and --kinds COUNT any of "
            "them\n",
            what);
    return 2;
}

static bool parse_number(const char *text, uint64_t *ret)
{
    char *end;
    if (!text || *text < '0' || *text > '9') return false;
    *ret = strtoull(text, &end, 10);
    return *end == 0;
}

static bool parse_mutant(const char *text, enum mutant *ret)
{
    for (enum mutant m = MUTANT_NONE; text && m < MUTANT_COUNT; m++) {
        if (strcmp(text, mutant_rows[m].name) != 0) continue;
        *ret = m;
        return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    struct options o = { .count = 300 };
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = argv[i + 1]; /* argv ends with NULL */
        bool ok = true, takes = true;
        if (strcmp(name, "--seed") == 0)
            ok = o.one = parse_number(value, &o.from);
        else if (strcmp(name, "--seeds") == 0)
            ok = parse_number(value, &o.count);
        else if (strcmp(name, "--from") == 0)
            ok = parse_number(value, &o.from);
        else if (strcmp(name, "--kinds") == 0)
            ok = parse_number(value, &o.kinds) && o.kinds <= FAULT_KIND_COUNT;
        else if (strcmp(name, "--mutant") == 0)
            ok = parse_mutant(value, &o.mutant);
        else
            takes = false;
        if (strcmp(name, "--verbose") == 0)
            o.verbose = true;
        else if (strcmp(name, "--mutants") == 0)
            o.mutants = true;
        else if (!takes)
            return usage(name);
        if (!ok) return usage(name);
        i += takes;
    }
    if (o.mutants) return run_mutants(o.count);
    if (o.one) o.count = 1;
    if (o.one || o.mutant) return run_seeds(&o);
    int rc = run_regressions();
    return run_seeds(&o) || rc;
}
