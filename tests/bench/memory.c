/* memory.c - measures the memory that requests leave behind: growth of resident KB per 1,000 requests.
 *
 *     MUSTER_BIN=build/muster FAKE_ENGINE_BIN=build/tests/proc/rig/fake_engine bench_memory
 *
 * Each row starts a server anew, warms it with 2,000 requests (pools, arenas and caches reach their
 * size), sends 10,000 more and compares. "again": 50 prompts over and over, so that growth is a
 * leak. "fresh": every prompt is new and longer than a block, so that bounded memories (prefix
 * index, predictor, usage) fill too. Requests alternate between whole and streamed, on connections
 * of their own, from CLIENTS threads. CSV on stdout; one column is the growth of the half that grew
 * less, because a leak goes on and a memory that fills stops growing. */
#include "tests/proc/rig/rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define WARM_REQUESTS 2000
#define REQUESTS 10000
#define CLIENTS 4
#define PROMPTS 50

struct row {
    const char *server, *prompts;
    bool engine, fresh;
};
static const struct row rows[] = {
    { "router", "again", false, false },
    { "router", "fresh", false, true },
    { "engine", "again", true, false },
    { "engine", "fresh", true, true },
};

static atomic_uint next_request, failures;

struct asker {
    const struct row *row;
    uint16_t port;
    uint32_t until;
};

static void *ask(void *arg)
{
    const struct asker *a = arg;
    for (uint32_t i; (i = atomic_fetch_add(&next_request, 1)) < a->until;) {
        char body[256];
        uint32_t n = a->row->fresh ? i : i % PROMPTS;
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"%u and %u, said the king of the "
                 "house\"}],\"max_tokens\":2,\"stream\":%s}",
                 n, n * 7919u, i % 2 ? "true" : "false");
        if (rig_call(a->port, "/v1/chat/completions", body, NULL) != 200) failures++;
    }
    return NULL;
}

/* Sends requests up to number `until`. Returns the server's resident KiB then. */
static int64_t ask_until(const struct row *row, const struct rig_process *server, uint32_t until)
{
    pthread_t thread[CLIENTS];
    struct asker a = { row, server->port, until };
    atomic_store(&next_request, until <= WARM_REQUESTS ? 0 : atomic_load(&next_request));
    for (uint32_t i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, ask, &a), 0);
    for (uint32_t i = 0; i < CLIENTS; i++)
        pthread_join(thread[i], NULL);
    atomic_store(&next_request, until);
    return rig_rss_kib(server);
}

static struct rig_process start_engine(void)
{
    /* The KV pool is small: pages become resident when they are first used, and the warm-up must use
     * them all. */
    return rig_server(
        "engine", rig_port(),
        ARGS("--model", MODEL, "--max-model-len", "512", "--kv-cache-memory-bytes", "8MiB"));
}

static struct rig_process start_router(struct rig_process *ret_fake)
{
    *ret_fake = rig_fake_engine(rig_port(), ARGS("--token-ms", "0"));
    struct rig_process router = rig_server("router", rig_port(), ARGS("--endpoints", ret_fake->at));
    rig_wait_endpoints(&router, 1);
    return router;
}

static void measure(const struct row *row)
{
    struct rig_process fake = { 0 };
    struct rig_process server = row->engine ? start_engine() : start_router(&fake);
    int64_t warm = ask_until(row, &server, WARM_REQUESTS);
    int64_t half = ask_until(row, &server, WARM_REQUESTS + REQUESTS / 2);
    int64_t end = ask_until(row, &server, WARM_REQUESTS + REQUESTS);
    int64_t lesser = half - warm < end - half ? half - warm : end - half;
    printf("%s,%s,%d,%lld,%lld,%.1f,%.1f,%u\n", row->server, row->prompts, REQUESTS,
           (long long)warm, (long long)end, (double)(end - warm) * 1000 / REQUESTS,
           (double)lesser * 2000 / REQUESTS, failures);
    fflush(stdout);
    rig_stop(&server);
    rig_kill(&fake);
}

int main(void)
{
    if (!getenv("MUSTER_BIN") || !getenv("FAKE_ENGINE_BIN") || access(MODEL, R_OK) < 0) {
        fprintf(stderr, "bench_memory: set MUSTER_BIN and FAKE_ENGINE_BIN, and run it where " MODEL
                        " is\n");
        return 2;
    }
    printf("server,prompts,requests,kib_before,kib_after,kib_per_1000,kib_per_1000_lesser_half,"
           "failures\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        measure(&rows[i]);
    return rig_end(failures != 0);
}
