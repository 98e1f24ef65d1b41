/* soak.c - sends thousands of streams through one router for half an hour.
 *
 *     MUSTER_BIN=build/muster FAKE_ENGINE_BIN=build/tests/proc/rig/fake_engine \
 *         build/tests/bench/bench_soak [MINUTES [STREAMS]]
 *
 * Scripted engines write into every token the time at which they wrote it, so a client knows how
 * long the token was under way. For every ten clients of the router one client calls an engine itself:
 * both kinds see the same machine at the same time, and the difference of their P99 is what the router
 * adds. The router's
 * private memory is read every SAMPLE_S. CSV goes to stdout, a line a minute to stderr. Exits 1 when
 * a request failed. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/proc/faults/streams.h"
#include "tests/proc/rig/rig.h"

#include <stdio.h>
#include <unistd.h>

#define ENGINES 2
#define STREAMS_MAX 3000
#define TOKENS 120
#define TOKEN_US 500000
#define QUESTIONS 16
#define WARM_S 120 /* memory is not judged before */
#define SAMPLE_S 10
#define SAMPLES_MAX 4096
#define WAITS 200000 /* buckets of 10 us: up to two seconds */

static struct waits {
    uint32_t bucket[WAITS];
    uint64_t count;
} routed, direct;

/* Counts how long a token was under way. Runs in the clients' thread; main reads after it ended. */
static void on_text(struct str text, bool is_direct)
{
    struct waits *w = is_direct ? &direct : &routed;
    int64_t written_us;
    if (text.len < 2 || str_to_i64(str_of(text.data, text.len - 1), &written_us) < 0) return;
    int64_t wait = (clock_mono_us() - written_us) / 10;
    w->bucket[wait < 0 ? 0 : wait < WAITS ? wait : WAITS - 1]++;
    w->count++;
}

static double wait_ms(const struct waits *w, double quantile)
{
    uint64_t below = (uint64_t)((double)w->count * quantile), sum = 0;
    uint32_t i = 0;
    while (i < WAITS - 1 && (sum += w->bucket[i]) <= below)
        i++;
    return i * 0.01;
}

static void show_waits(const char *way, const struct waits *w)
{
    printf("%s,%llu,%.2f,%.2f\n", way, (unsigned long long)w->count, wait_ms(w, 0.5),
           wait_ms(w, 0.99));
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t median(const int64_t *values, size_t count)
{
    int64_t sorted[SAMPLES_MAX];
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, compare);
    return sorted[count / 2];
}

/* Runs the clients for `seconds`; samples the router's memory into `rss_kib`. Returns their count. */
static size_t run(const struct streams_plan *plan, int64_t seconds,
                  const struct rig_process *router, int64_t *rss_kib, struct streams_sum *ret)
{
    int64_t from_us = clock_mono_us(), passed_s = 0;
    size_t count = 0;
    streams_start(plan);
    for (size_t n = 0; passed_s < seconds; n++) {
        usleep(SAMPLE_S * 1000000);
        passed_s = (clock_mono_us() - from_us) / 1000000;
        if (passed_s >= WARM_S && count < SAMPLES_MAX) rss_kib[count++] = rig_rss_kib(router);
        if (n % 6 == 0)
            fprintf(stderr, "%lld s: %llu answers begun, %llu whole\n", (long long)passed_s,
                    (unsigned long long)streams_begun(), (unsigned long long)streams_whole());
    }
    streams_end(ret);
    return count;
}

static void show(const struct streams_sum *sum, const int64_t *rss_kib, size_t count)
{
    size_t part = count < 6 ? count : count / 6;
    printf("way,tokens,p50_ms,p99_ms\n");
    show_waits("engine", &direct);
    show_waits("router", &routed);
    printf("added,,%.2f,%.2f\n", wait_ms(&routed, 0.5) - wait_ms(&direct, 0.5),
           wait_ms(&routed, 0.99) - wait_ms(&direct, 0.99));
    printf("answers,failed,broken,first_ms_max,gap_ms_max\n%llu,%llu,%llu,%.1f,%.1f\n",
           (unsigned long long)sum->whole, (unsigned long long)sum->failed,
           (unsigned long long)sum->broken, (double)sum->first_us_max * 1e-3,
           (double)sum->gap_us_max * 1e-3);
    if (part)
        printf("rss_kib_early,rss_kib_late\n%lld,%lld\n", (long long)median(rss_kib, part),
               (long long)median(rss_kib + count - part, part));
    if (sum->error[0]) fprintf(stderr, "%s\n", sum->error);
    if (sum->violation[0]) fprintf(stderr, "%s\n", sum->violation);
}

int main(int argc, char **argv)
{
    static int64_t rss_kib[SAMPLES_MAX];
    int64_t minutes = 30, streams = 2000;
    char endpoints[128] = "";
    struct rig_process engine[ENGINES];
    if ((argc > 1 && str_to_i64(str_from(argv[1]), &minutes) < 0) ||
        (argc > 2 && str_to_i64(str_from(argv[2]), &streams) < 0) || minutes < 1 || streams < 1 ||
        streams > STREAMS_MAX) {
        fprintf(stderr, "usage: bench_soak [MINUTES [STREAMS, at most %d]]\n", STREAMS_MAX);
        return 2;
    }
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN"))) return RIG_SKIP;
    for (uint32_t i = 0; i < ENGINES; i++) {
        size_t len = strlen(endpoints);
        engine[i] = rig_fake_engine(rig_port(), ARGS("--tokens", "1000000", "--token-ms", "500",
                                                     "--running-max", "4096", "--stamped"));
        snprintf(endpoints + len, sizeof endpoints - len, "%s%s", i ? "," : "", engine[i].at);
    }
    struct rig_process router = rig_server("router", rig_port(), ARGS("--endpoints", endpoints));
    rig_wait_endpoints(&router, ENGINES);

    struct streams_plan plan = { .port = router.port,
                                 .engine_port = engine[0].port,
                                 .clients = (uint32_t)streams,
                                 .direct_clients = (uint32_t)streams / 10 + 1,
                                 .spread_us = TOKEN_US,
                                 .tokens = TOKENS,
                                 .questions = QUESTIONS,
                                 .on_text = on_text };
    struct streams_sum sum;
    size_t count = run(&plan, minutes * 60, &router, rss_kib, &sum);
    show(&sum, rss_kib, count);
    bool well =
        rig_stop(&router) == 0 && !sum.failed && !sum.broken && !sum.violation[0] && sum.whole > 0;
    for (uint32_t i = 0; i < ENGINES; i++)
        rig_kill(&engine[i]);
    return rig_end(!well);
}
