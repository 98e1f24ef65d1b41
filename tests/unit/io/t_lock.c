/* t_lock.c - tests that breaking a rule of locks, owners or loops aborts with the rule.
 *
 * The checks of owner.h and lock.h are compiled in here, whatever the build; the loop has its own
 * only in debug builds. Each case breaks one rule in a child process, which must abort. */
#ifndef MUSTER_DEBUG
#    define MUSTER_DEBUG 1
#    define LOOP_IS_UNCHECKED 1
#endif
#include "base/io/loop/lock.h"
#include "base/io/loop/loop.h"
#include "base/io/loop/mailbox.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs `crime` in a child; returns true when must() aborted it and printed its condition. */
static bool aborts(void (*crime)(void))
{
    int out[2];
    assert_int_equal(pipe(out), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(out[1], STDERR_FILENO);
        crime();
        _exit(0);
    }
    close(out[1]);
    char text[4096] = { 0 };
    size_t have = 0;
    for (ssize_t n; (n = read(out[0], text + have, sizeof text - 1 - have)) > 0;)
        have += (size_t)n;
    close(out[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    bool said = strstr(text, "broken promise: must(") != NULL;
    return said && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void on_thread(void *(*fn)(void *), void *arg)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, fn, arg) != 0) _exit(1);
    pthread_join(thread, NULL);
}

/* ---- locks ---- */

static struct lock lock;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void takes_twice(void)
{
    lock_take(&lock);
    lock_take(&lock);
}

static void tries_own(void)
{
    lock_take(&lock);
    (void)lock_try(&lock);
}

static void drops_free(void)
{
    lock_drop(&lock);
}

static void uses_free(void)
{
    lock_assert_held(&lock);
}

static void waits_without(void)
{
    lock_wait(&lock, &condition);
}

static void ends_held(void)
{
    lock_take(&lock);
    lock_fini(&lock);
}

static void *drop_here(void *arg)
{
    lock_drop(arg);
    return NULL;
}

static void drops_of_another(void)
{
    lock_take(&lock);
    on_thread(drop_here, &lock);
}

static void t_lock_rules(void **state)
{
    (void)state;
    static const struct {
        void (*crime)(void);
        const char *why;
    } rows[] = {
        { takes_twice, "a thread would wait for itself for ever" },
        { tries_own, "a try of one's own lock answers nothing" },
        { drops_free, "nobody holds it" },
        { uses_free, "data would be read without its lock" },
        { waits_without, "the wake-up could be missed" },
        { ends_held, "its holder would go on without it" },
        { drops_of_another, "its holder would go on without it" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!aborts(rows[i].crime)) fail_msg("not caught: %s", rows[i].why);
}

static void *add_up(void *arg)
{
    uint64_t *sum = arg;
    for (int i = 0; i < 10000; i++) {
        lock_take(&lock);
        lock_assert_held(&lock);
        *sum += 1;
        lock_drop(&lock);
    }
    return NULL;
}

static void *try_here(void *arg)
{
    bool *got = arg;
    *got = lock_try(&lock);
    if (*got) lock_drop(&lock);
    return NULL;
}

static void t_lock_excludes(void **state)
{
    (void)state;
    uint64_t sum = 0;
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, add_up, &sum), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(sum, 40000);

    bool got = true;
    lock_take(&lock);
    on_thread(try_here, &got);
    assert_false(got);
    struct timespec past = { 0 };
    lock_wait_until(&lock, &condition, &past);
    lock_assert_held(&lock); /* held again after the wait */
    lock_drop(&lock);
    on_thread(try_here, &got);
    assert_true(got);
}

/* ---- mailboxes ---- */

static void sends_unlocked(void)
{
    struct mailbox mailbox;
    struct mailbox_item item = { 0 };
    mailbox_init(&mailbox, NULL, NULL, NULL);
    mailbox_send(&mailbox, &item);
}

/* ---- owners and loops ---- */

static struct owner owner;

static void *assert_here(void *arg)
{
    owner_assert((struct owner *)arg);
    return NULL;
}

static void *claim_here(void *arg)
{
    owner_claim((struct owner *)arg);
    return NULL;
}

static void uses_foreign(void)
{
    owner_claim(&owner);
    on_thread(assert_here, &owner);
}

static void claims_foreign(void)
{
    owner_claim(&owner);
    on_thread(claim_here, &owner);
}

static void gives_up_foreign(void)
{
    owner_release(&owner);
}

static void t_owner_rules(void **state)
{
    (void)state;
    assert_true(aborts(uses_foreign));
    assert_true(aborts(claims_foreign));
    assert_true(aborts(gives_up_foreign));

    on_thread(assert_here, &owner); /* without an owner: still being set up */
    owner_claim(&owner);
    owner_assert(&owner);
    owner_release(&owner);
    on_thread(claim_here, &owner);
}

static void *set_timer(void *arg)
{
    struct loop_timer timer = { 0 };
    (void)loop_timer_set(arg, &timer, 0);
    return NULL;
}

static void sets_from_inside(void *arg)
{
    on_thread(set_timer, arg);
    loop_stop(arg);
}

static void sets_from_outside(void)
{
    struct loop *l;
    if (loop_new(&l, NULL) < 0) _exit(1);
    if (loop_post(l, sets_from_inside, l) < 0) _exit(1);
    (void)loop_run(l);
}

static void t_loop_rules(void **state)
{
    (void)state;
    assert_true(aborts(sets_from_outside));
    assert_true(aborts(sends_unlocked));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_lock_rules),
        cmocka_unit_test(t_lock_excludes),
        cmocka_unit_test(t_owner_rules),
        cmocka_unit_test(t_loop_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
