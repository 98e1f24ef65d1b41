/* t_kv_feed.c - tests the subscription to KV events against ZeroMQ's own library (kv_publisher.py, pyzmq):
 * handshake, live messages, gaps, replays, a publisher that dies. */
#include "agent/kv_feed.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANG_US 60000000 /* ends what hangs; nothing is decided by it */
#define SEED 3
#define DIGEST STR("aa")

static bool has_zmq;

struct rig {
    char folder[64], events[96], replay[96];
    FILE *commands; /* to the publisher; NULL: none runs */
    pid_t pid;
    struct loop *loop;
    struct kv_view *view;
    struct kv_feed *feed;
    uint32_t news;
    const char *made; /* messages before the first subscriber; NULL: none */
};

static void start_publisher(struct rig *r, const char *form)
{
    int ends[2], out[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe(out), 0);
    r->pid = fork();
    assert_true(r->pid >= 0);
    if (r->pid == 0) {
        dup2(ends[0], 0);
        dup2(out[1], 1);
        close(ends[0]);
        close(ends[1]);
        close(out[0]);
        close(out[1]);
        execlp("python3", "python3", "tests/unit/agent/kv_publisher.py", r->events,
               r->replay[0] ? r->replay : "-", form, r->made ? r->made : "0", (char *)NULL);
        _exit(127);
    }
    close(ends[0]);
    close(out[1]);
    r->commands = fdopen(ends[1], "w");
    FILE *said = fdopen(out[0], "r");
    assert_non_null(r->commands);
    assert_non_null(said);
    if (!fgets(r->events, sizeof r->events, said)) fail_msg("the publisher did not start");
    r->events[strcspn(r->events, "\n")] = 0;
    fclose(said);
}

static void stop_publisher(struct rig *r)
{
    if (!r->commands) return;
    fclose(r->commands); /* it ends at the end of its commands */
    r->commands = NULL;
    waitpid(r->pid, NULL, 0);
}

static void say(struct rig *r, const char *command)
{
    fprintf(r->commands, "%s\n", command);
    fflush(r->commands);
}

static void on_change(void *arg)
{
    ((struct rig *)arg)->news++;
}

static void start_feed(struct rig *r)
{
    struct err err = { "" };
    const struct kv_feed_config config = { .loop = r->loop,
                                           .events = str_from(r->events),
                                           .replay = str_from(r->replay),
                                           .view = r->view,
                                           .on_change = on_change,
                                           .arg = r };
    if (kv_feed_new(&config, &r->feed, &err) < 0) fail_msg("%s", err.text);
}

/* Both endpoints are Unix sockets, unless `tcp`; without a replay socket unless `replays`. */
static void rig_start(struct rig *r, bool replays, bool tcp)
{
    *r = (struct rig){ 0 };
    if (!has_zmq) {
        print_message("skipped: python3 has no zmq (package python3-zmq)\n");
        skip();
    }
    snprintf(r->folder, sizeof r->folder, "/tmp/t_kv_feed.XXXXXX");
    assert_non_null(mkdtemp(r->folder));
    snprintf(r->events, sizeof r->events, "ipc://%s/e", r->folder);
    if (tcp) snprintf(r->events, sizeof r->events, "tcp://127.0.0.1:*");
    if (replays) snprintf(r->replay, sizeof r->replay, "ipc://%s/r", r->folder);
    assert_int_equal(loop_new(&r->loop, NULL), 0);
    assert_int_equal(kv_view_new(SEED, DIGEST, 1000, &r->view, NULL), 0);
}

static void rig_end(struct rig *r)
{
    stop_publisher(r);
    kv_feed_free(r->feed);
    kv_view_free(r->view);
    loop_free(r->loop);
    char path[96];
    for (const char *name = "er"; *name; name++) {
        snprintf(path, sizeof path, "%s/%c", r->folder, *name);
        unlink(path);
    }
    rmdir(r->folder);
}

static bool has_message(const struct rig *r, uint32_t n)
{
    uint32_t ids[BLOCK_TOKENS];
    struct str none = { 0 };
    struct block_key k;
    for (uint32_t i = 0; i < BLOCK_TOKENS; i++)
        ids[i] = n;
    struct block_key want = block_key_next(SEED, block_salt(SEED, DIGEST, none, none), ids);
    for (size_t cursor = 0; kv_view_next(r->view, &cursor, &k);)
        if (block_key_eq(k, want)) return true;
    return false;
}

/* Returns true if the view has exactly the blocks of messages from..to-1. */
static bool has_exactly(const struct rig *r, uint32_t from, uint32_t to)
{
    struct kv_view_counts c;
    kv_view_counts(r->view, &c);
    if (c.keys != to - from) return false;
    for (uint32_t n = from; n < to; n++)
        if (!has_message(r, n)) return false;
    return true;
}

static void await(struct rig *r, uint32_t from, uint32_t to)
{
    int64_t until = clock_mono_us() + HANG_US;
    while (!has_exactly(r, from, to)) {
        struct kv_view_counts c;
        struct kv_feed_counts f;
        kv_view_counts(r->view, &c);
        kv_feed_counts(r->feed, &f);
        if (clock_mono_us() > until)
            fail_msg("waited for %u..%u: %u keys, open %d, %lu messages, %lu gaps", from, to,
                     c.keys, f.open, (unsigned long)f.messages, (unsigned long)f.gaps);
        assert_int_equal(loop_turn(r->loop, 100000), 0);
    }
}

static void await_open(struct rig *r, bool open)
{
    int64_t until = clock_mono_us() + HANG_US;
    struct kv_feed_counts f;
    for (kv_feed_counts(r->feed, &f); f.open != open; kv_feed_counts(r->feed, &f)) {
        if (clock_mono_us() > until) fail_msg("waited for open %d", open);
        assert_int_equal(loop_turn(r->loop, 100000), 0);
    }
}

/* ---- cases ---- */

static void live_messages_come(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct rig r;
        rig_start(&r, false, i / 2);
        start_publisher(&r, i % 2 ? "array" : "map");
        start_feed(&r);
        say(&r, "pub 300");
        await(&r, 0, 300);
        assert_true(r.news > 0);
        rig_end(&r);
    }
}

static void one_that_comes_late_asks_for_all(void **state)
{
    (void)state;
    struct rig r;
    rig_start(&r, true, false);
    r.made = "50";
    start_publisher(&r, "map");
    start_feed(&r);
    await(&r, 0, 50);
    say(&r, "pub 5");
    await(&r, 0, 55);
    rig_end(&r);
}

static void a_gap_is_asked_for(void **state)
{
    (void)state;
    struct rig r;
    struct kv_feed_counts f;
    rig_start(&r, true, false);
    r.made = "3"; /* which come by the first replay, so that it is over */
    start_publisher(&r, "array");
    say(&r, "topic"); /* replies of vLLM 0.32 */
    start_feed(&r);
    await(&r, 0, 3);
    say(&r, "lose 4");
    say(&r, "pub 2");
    await(&r, 0, 9);
    kv_feed_counts(r.feed, &f);
    assert_int_equal(f.gaps, 1);
    assert_int_equal(f.malformed, 0);
    rig_end(&r);
}

static void a_gap_that_cannot_be_asked_for_drops_the_view(void **state)
{
    (void)state;
    struct rig r;
    struct kv_feed_counts f;
    rig_start(&r, false, false);
    start_publisher(&r, "map");
    start_feed(&r);
    say(&r, "pub 3");
    await(&r, 0, 3);
    say(&r, "lose 4");
    say(&r, "pub 2");
    await(&r, 7, 9);
    kv_feed_counts(r.feed, &f);
    assert_int_equal(f.gaps, 1);
    rig_end(&r);
}

static void what_the_buffer_forgot_drops_the_view(void **state)
{
    (void)state;
    struct rig r;
    rig_start(&r, true, false);
    r.made = "3"; /* which come by the first replay, so that it is over */
    start_publisher(&r, "map");
    start_feed(&r);
    await(&r, 0, 3);
    say(&r, "lose 10");
    say(&r, "keep 2"); /* 11 and 12 */
    say(&r, "pub 1");
    await(&r, 11, 14);
    rig_end(&r);
}

static void a_malformed_message_drops_the_view(void **state)
{
    (void)state;
    struct rig r;
    struct kv_feed_counts f;
    rig_start(&r, false, false);
    start_publisher(&r, "map");
    start_feed(&r);
    say(&r, "pub 3");
    await(&r, 0, 3);
    say(&r, "bad");
    say(&r, "pub 2");
    await(&r, 4, 6);
    kv_feed_counts(r.feed, &f);
    assert_int_equal(f.malformed, 1);
    assert_int_equal(f.gaps, 0);
    rig_end(&r);
}

static void a_publisher_that_dies_takes_its_cache_along(void **state)
{
    (void)state;
    for (int replays = 0; replays < 2; replays++) {
        struct rig r;
        rig_start(&r, replays, false);
        start_publisher(&r, "map");
        start_feed(&r);
        say(&r, "pub 3");
        await(&r, 0, 3);
        stop_publisher(&r);
        await_open(&r, false);
        await(&r, 0, 0);
        start_publisher(&r, "array"); /* another one, that counts from 0 */
        say(&r, "pub 1");
        await(&r, 0, 1);
        rig_end(&r);
    }
}

static void addresses_of_other_forms_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "",          "ipc://",           "tcp://host", "tcp://:5557",
                                       "tcp://h:0", "tcp://h:99999999", "udp://h:1",  "5557" };
    struct loop *loop;
    struct kv_view *view;
    assert_int_equal(loop_new(&loop, NULL), 0);
    assert_int_equal(kv_view_new(SEED, DIGEST, 10, &view, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct err err = { "" };
        struct kv_feed *feed = NULL;
        const struct kv_feed_config config = { .loop = loop,
                                               .events = str_from(bad[i]),
                                               .view = view };
        if (kv_feed_new(&config, &feed, &err) == 0) fail_msg("'%s': accepted", bad[i]);
        assert_true(err.text[0] != 0);
    }
    kv_view_free(view);
    loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_messages_come),
        cmocka_unit_test(one_that_comes_late_asks_for_all),
        cmocka_unit_test(a_gap_is_asked_for),
        cmocka_unit_test(a_gap_that_cannot_be_asked_for_drops_the_view),
        cmocka_unit_test(what_the_buffer_forgot_drops_the_view),
        cmocka_unit_test(a_malformed_message_drops_the_view),
        cmocka_unit_test(a_publisher_that_dies_takes_its_cache_along),
        cmocka_unit_test(addresses_of_other_forms_are_refused),
    };
    signal(SIGPIPE, SIG_IGN);
    has_zmq = system("python3 -c 'import zmq' 2>/dev/null") == 0; /* NOLINT: our own command */
    return cmocka_run_group_tests_name("kv_feed", tests, NULL, NULL);
}
