/* t_loop.c - tests the event loop, and mailboxes between two threads. */
#include "base/io/loop/mailbox.h"
#include "tests/unit/io/raw_peer.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>

/* ---- turns, timers, watches that vanish in their own batch, posts, tasks, signals ---- */

static struct loop *loop_make(void)
{
    struct err err = { 0 };
    struct loop *l = NULL;
    assert_int_equal(loop_new(&l, &err), 0);
    return l;
}

/* ---- timers ---- */

struct trace {
    char text[64];
    size_t len;
};

struct marked_timer {
    struct loop_timer timer;
    struct trace *trace;
    char mark;
};

static void on_mark(void *arg)
{
    struct marked_timer *m = arg;
    m->trace->text[m->trace->len++] = m->mark;
}

static void timers_fire_in_order_of_time_then_of_setting(void **state)
{
    (void)state;
    CLEANUP(loop_freep) struct loop *l = loop_make();
    struct trace trace = { 0 };
    struct marked_timer m[5];
    const int64_t after_us[5] = { 3000, 1000, 2000, 1000, 100 };
    int64_t now = clock_mono_us();
    for (int i = 0; i < 5; i++) {
        m[i] = (struct marked_timer){ .trace = &trace, .mark = (char)('a' + i) };
        m[i].timer = (struct loop_timer){ .fn = on_mark, .arg = &m[i] };
        assert_int_equal(loop_timer_set(l, &m[i].timer, now + after_us[i]), 0);
    }
    loop_timer_clear(l, &m[4].timer);
    loop_timer_clear(l, &m[4].timer); /* twice is allowed */
    assert_false(loop_timer_is_set(&m[4].timer));
    TURN_UNTIL(l, trace.len == 4);
    assert_string_equal(trace.text, "bdca");
    assert_true(clock_mono_us() - now >= 3000);
}

static void a_timer_that_is_set_again_fires_once_at_its_last_time(void **state)
{
    (void)state;
    CLEANUP(loop_freep) struct loop *l = loop_make();
    struct trace trace = { 0 };
    struct marked_timer m = { .trace = &trace, .mark = 'x' };
    m.timer = (struct loop_timer){ .fn = on_mark, .arg = &m };
    int64_t now = clock_mono_us();
    loop_timer_set(l, &m.timer, now + 500);
    loop_timer_set(l, &m.timer, now + 8000);
    TURN_UNTIL(l, trace.len > 0);
    assert_true(clock_mono_us() - now >= 8000);
    loop_turn(l, 1000);
    assert_int_equal(trace.len, 1);
}

struct again {
    struct loop *loop;
    struct loop_timer timer;
    int fired;
};

static void on_again(void *arg)
{
    struct again *a = arg;
    a->fired++;
    loop_timer_set(a->loop, &a->timer, 0);
}

static void a_timer_set_into_the_past_by_itself_runs_once_a_turn(void **state)
{
    (void)state;
    CLEANUP(loop_freep) struct loop *l = loop_make();
    struct again a = { .loop = l };
    a.timer = (struct loop_timer){ .fn = on_again, .arg = &a };
    loop_timer_set(l, &a.timer, 0);
    for (int i = 1; i <= 3; i++) {
        loop_turn(l, -1);
        assert_int_equal(a.fired, i);
    }
    loop_timer_clear(l, &a.timer);
}

/* ---- watches ---- */

struct pair {
    struct loop *loop;
    struct loop_watch watch[2];
    int calls;
};

static void on_either(void *arg, uint32_t events)
{
    struct pair *p = arg;
    assert_true(events & EPOLLIN);
    p->calls++;
    loop_watch_del(p->loop, &p->watch[0]);
    loop_watch_del(p->loop, &p->watch[1]);
}

static void a_watch_deleted_in_its_batch_is_not_called(void **state)
{
    (void)state;
    CLEANUP(loop_freep) struct loop *l = loop_make();
    struct pair p = { .loop = l };
    for (int i = 0; i < 2; i++) {
        p.watch[i] =
            (struct loop_watch){ .fd = eventfd(1, EFD_NONBLOCK), .fn = on_either, .arg = &p };
        assert_int_equal(loop_watch_add(l, &p.watch[i], EPOLLIN), 0);
    }
    loop_turn(l, 0); /* both are ready: the first deletes both */
    loop_turn(l, 0);
    assert_int_equal(p.calls, 1);
    close(p.watch[0].fd);
    close(p.watch[1].fd);
}

static void a_watch_that_cannot_be_added_says_so(void **state)
{
    (void)state;
    CLEANUP(loop_freep) struct loop *l = loop_make();
    struct loop_watch w = { .fd = -1, .fn = on_either };
    assert_int_equal(loop_watch_add(l, &w, EPOLLIN), -EBADF);
    assert_false(w.added);
    loop_watch_del(l, &w); /* not added: no effect */
}

/* ---- tasks ---- */

struct chain {
    struct loop *loop;
    struct loop_task task, other;
    int runs, other_runs;
};

static void on_chain(void *arg)
{
    struct chain *c = arg;
    c->runs++;
    loop_defer(c->loop, &c->task);        /* for the next turn */
    loop_defer_clear(c->loop, &c->other); /* before it runs in this turn */
}

static void on_other(void *arg)
{
    struct chain *c = arg;
    c->other_runs++;
}

static void a_task_runs_once_a_turn_and_can_be_cleared(void **state)
{
    (void)state;
    CLEANUP(loop_freep) struct loop *l = loop_make();
    struct chain c = { .loop = l };
    c.task = (struct loop_task){ .fn = on_chain, .arg = &c };
    c.other = (struct loop_task){ .fn = on_other, .arg = &c };
    loop_defer(l, &c.task);
    loop_defer(l, &c.task); /* already set */
    loop_defer(l, &c.other);
    for (int i = 1; i <= 3; i++) {
        loop_turn(l, -1); /* does not wait: a task is due */
        assert_int_equal(c.runs, i);
    }
    assert_int_equal(c.other_runs, 0);
    loop_defer_clear(l, &c.task);
}

/* ---- posts ---- */

#define POSTERS 3
#define POSTS_EACH 20000

struct poster {
    struct loop *loop;
    pthread_t thread;
    uint32_t next; /* owned by the loop's thread */
    uint32_t out_of_order;
};

struct posted {
    struct poster *poster;
    uint32_t number;
};

static void on_posted(void *arg)
{
    struct posted *m = arg;
    if (m->number != m->poster->next) m->poster->out_of_order++;
    m->poster->next++;
    free(m);
}

static void *post_many(void *arg)
{
    struct poster *p = arg;
    for (uint32_t i = 0; i < POSTS_EACH; i++) {
        struct posted *m = malloc(sizeof *m);
        *m = (struct posted){ p, i };
        while (loop_post(p->loop, on_posted, m) == -EAGAIN)
            usleep(100);
    }
    return NULL;
}

static void posts_of_a_thread_arrive_all_and_in_order(void **state)
{
    (void)state;
    CLEANUP(loop_freep) struct loop *l = loop_make();
    struct poster p[POSTERS] = { 0 };
    for (int i = 0; i < POSTERS; i++) {
        p[i].loop = l;
        assert_int_equal(pthread_create(&p[i].thread, NULL, post_many, &p[i]), 0);
    }
    TURN_UNTIL(l, p[0].next + p[1].next + p[2].next == POSTERS * POSTS_EACH);
    for (int i = 0; i < POSTERS; i++) {
        pthread_join(p[i].thread, NULL);
        assert_int_equal(p[i].out_of_order, 0);
    }
    struct loop_counts counts;
    loop_counts_get(l, &counts);
    assert_int_equal(counts.posts, POSTERS * POSTS_EACH);
}

static void count_post(void *arg)
{
    ++*(int *)arg;
}

static void a_full_ring_answers_eagain_and_counts_it(void **state)
{
    (void)state;
    CLEANUP(loop_freep) struct loop *l = loop_make();
    int called = 0;
    for (int i = 0; i < LOOP_POSTS_MAX; i++)
        assert_int_equal(loop_post(l, count_post, &called), 0);
    assert_int_equal(loop_post(l, count_post, &called), -EAGAIN);
    struct loop_counts counts;
    loop_counts_get(l, &counts);
    assert_int_equal(counts.posts_refused, 1);
    loop_turn(l, -1);
    assert_int_equal(called, LOOP_POSTS_MAX);
    assert_int_equal(loop_post(l, count_post, &called), 0); /* there is room again */
    loop_turn(l, -1);                                       /* and the loop wakes again */
    assert_int_equal(called, LOOP_POSTS_MAX + 1);
}

static void *stop_soon(void *arg)
{
    usleep(2000);
    loop_stop(arg);
    return NULL;
}

static void loop_stop_from_another_thread_ends_a_sleeping_loop(void **state)
{
    (void)state;
    CLEANUP(loop_freep) struct loop *l = loop_make();
    for (int i = 0; i < 2; i++) { /* it can run again */
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, stop_soon, l), 0);
        assert_int_equal(loop_run(l), 0);
        pthread_join(thread, NULL);
    }
}

/* ---- signals ---- */

static void on_signal(void *arg, int signo)
{
    int *seen = arg;
    seen[seen[0] == 0 ? 0 : 1] = signo;
}

static void signals_arrive_as_calls_on_the_loop(void **state)
{
    (void)state;
    CLEANUP(loop_freep) struct loop *l = loop_make();
    struct err err = { 0 };
    int seen[2] = { 0 };
    assert_int_equal(loop_signal(l, SIGUSR1, on_signal, seen, &err), 0);
    assert_int_equal(loop_signal(l, SIGUSR2, on_signal, seen, &err), 0);
    assert_int_equal(loop_signal(l, SIGUSR1, on_signal, seen, &err), -EEXIST);
    raise(SIGUSR1); /* would end the process if it were not blocked */
    TURN_UNTIL(l, seen[0] == SIGUSR1);
    raise(SIGUSR2);
    TURN_UNTIL(l, seen[1] == SIGUSR2);
}

static int loop_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_fire_in_order_of_time_then_of_setting),
        cmocka_unit_test(a_timer_that_is_set_again_fires_once_at_its_last_time),
        cmocka_unit_test(a_timer_set_into_the_past_by_itself_runs_once_a_turn),
        cmocka_unit_test(a_watch_deleted_in_its_batch_is_not_called),
        cmocka_unit_test(a_watch_that_cannot_be_added_says_so),
        cmocka_unit_test(a_task_runs_once_a_turn_and_can_be_cleared),
        cmocka_unit_test(posts_of_a_thread_arrive_all_and_in_order),
        cmocka_unit_test(a_full_ring_answers_eagain_and_counts_it),
        cmocka_unit_test(loop_stop_from_another_thread_ends_a_sleeping_loop),
        cmocka_unit_test(signals_arrive_as_calls_on_the_loop),
    };
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}

/* ---- two threads, one mailbox: every message arrives, merged or not, and items may be freed ---- */

#define ITEMS 8
#define WORDS 20000 /* sent by each item */
#define ROUNDS 4000 /* items that live for two words */

struct parcel {
    struct mailbox_item item;
    uint32_t mail, words; /* under the mailbox's lock */
    uint32_t heard;       /* owned by the receiver */
};

struct post {
    struct mailbox mailbox;
    struct loop *loop;
    struct parcel parcel[ITEMS];
    uint32_t deliveries, open;
};

static void on_parcel(void *arg, struct mailbox_item *item)
{
    struct post *p = arg;
    struct parcel *one = CONTAINER_OF(item, struct parcel, item);
    mailbox_open(&p->mailbox, item);
    uint32_t words = one->words;
    one->words = 0;
    mailbox_unlock(&p->mailbox);
    one->heard += words;
    p->deliveries++;
    if (one->heard == WORDS && words > 0 && --p->open == 0) loop_stop(p->loop);
}

static void *send_words(void *arg)
{
    struct post *p = arg;
    for (uint32_t i = 0; i < ITEMS * WORDS; i++) {
        struct parcel *one = &p->parcel[i % ITEMS];
        mailbox_lock(&p->mailbox);
        one->words++;
        mailbox_send(&p->mailbox, &one->item);
        mailbox_unlock(&p->mailbox);
    }
    return NULL;
}

/* A lost wake-up would leave the loop waiting until the test's time limit. */
static void every_word_arrives_and_none_twice(void **state)
{
    (void)state;
    struct post p = { .open = ITEMS };
    pthread_t sender;
    assert_int_equal(loop_new(&p.loop, NULL), 0);
    mailbox_init(&p.mailbox, p.loop, on_parcel, &p);
    assert_int_equal(pthread_create(&sender, NULL, send_words, &p), 0);
    assert_int_equal(loop_run(p.loop), 0);
    pthread_join(sender, NULL);
    for (int i = 0; i < ITEMS; i++)
        assert_int_equal(p.parcel[i].heard, WORDS);
    assert_true(p.deliveries <= ITEMS * WORDS);
    mailbox_fini(&p.mailbox);
    loop_free(p.loop);
}

static uint32_t deliveries_after_turn(struct post *p)
{
    assert_int_equal(loop_turn(p->loop, 0), 0);
    return p->deliveries;
}

/* Mail that may wait wakes no loop: it is delivered with mail that may not wait, or when its time
 * is up. */
static void later_mail_waits_for_company_or_its_time(void **state)
{
    (void)state;
    struct post p = { .open = 1 };
    struct mailbox_sender later;
    struct loop_counts counts;
    assert_int_equal(loop_new(&p.loop, NULL), 0);
    mailbox_init(&p.mailbox, p.loop, on_parcel, &p);
    mailbox_sender_init(&later, &p.mailbox, p.loop);
    for (uint32_t round = 0; round < 2; round++) {
        mailbox_lock(&p.mailbox);
        p.parcel[0].words++;
        mailbox_send_later(&later, &p.parcel[0].item);
        mailbox_unlock(&p.mailbox);
        loop_counts_get(p.loop, &counts);
        assert_int_equal(counts.posts, round);
        if (round == 0) {
            mailbox_lock(&p.mailbox);
            p.parcel[1].words++;
            mailbox_send(&p.mailbox, &p.parcel[1].item);
            mailbox_unlock(&p.mailbox);
            assert_int_equal(deliveries_after_turn(&p), 2);
        }
        while (p.deliveries < 2 + round)
            assert_int_equal(loop_turn(p.loop, -1), 0); /* the mailbox's own timer ends it */
    }
    assert_int_equal(p.parcel[0].heard, 2);
    mailbox_fini(&p.mailbox);
    loop_free(p.loop);
}

static void mail_that_waits_is_one_delivery_and_one_post(void **state)
{
    (void)state;
    struct post p = { .open = 1 };
    struct loop_counts counts;
    assert_int_equal(loop_new(&p.loop, NULL), 0);
    mailbox_init(&p.mailbox, p.loop, on_parcel, &p);
    for (int i = 0; i < 100; i++) {
        mailbox_lock(&p.mailbox);
        p.parcel[i % 2].words++;
        mailbox_send(&p.mailbox, &p.parcel[i % 2].item);
        mailbox_unlock(&p.mailbox);
    }
    assert_int_equal(loop_turn(p.loop, 0), 0);
    loop_counts_get(p.loop, &counts);
    assert_int_equal(counts.posts, 1);
    assert_int_equal(p.deliveries, 2);
    assert_int_equal(p.parcel[0].heard, 50);
    assert_int_equal(p.parcel[1].heard, 50);
    assert_int_equal(loop_turn(p.loop, 0), 0);
    assert_int_equal(p.deliveries, 2);
    mailbox_fini(&p.mailbox);
    loop_free(p.loop);
}

/* ---- a loop that sends: one wake-up a turn ---- */

struct busy_turn {
    struct post *to;
    struct mailbox_sender sender;
    struct loop_task task[ITEMS];
};

static void send_in_turn(void *arg)
{
    struct busy_turn *b = arg;
    struct loop_counts counts;
    for (uint32_t i = 0; i < ITEMS; i++) {
        mailbox_lock(&b->to->mailbox);
        b->to->parcel[i].words++;
        mailbox_send_turn(&b->sender, &b->to->parcel[i].item);
        mailbox_unlock(&b->to->mailbox);
    }
    loop_counts_get(b->to->loop, &counts);
    assert_int_equal(counts.posts, 0);
}

static void mail_of_a_turn_is_one_post(void **state)
{
    (void)state;
    struct post p = { .open = ITEMS };
    struct busy_turn b = { .to = &p };
    struct loop *from = NULL;
    struct loop_counts counts;
    assert_int_equal(loop_new(&p.loop, NULL), 0);
    assert_int_equal(loop_new(&from, NULL), 0);
    mailbox_init(&p.mailbox, p.loop, on_parcel, &p);
    mailbox_sender_init(&b.sender, &p.mailbox, from);
    for (uint32_t i = 0; i < ITEMS; i++) {
        b.task[i] = (struct loop_task){ .fn = send_in_turn, .arg = &b };
        loop_defer(from, &b.task[i]);
    }
    assert_int_equal(loop_turn(from, 0), 0);
    loop_counts_get(p.loop, &counts);
    assert_int_equal(counts.posts, 1);
    assert_int_equal(deliveries_after_turn(&p), ITEMS);
    for (uint32_t i = 0; i < ITEMS; i++)
        assert_int_equal(p.parcel[i].heard, ITEMS);
    /* A word sent outside of a turn goes out in the next turn, which does not wait. */
    mailbox_lock(&p.mailbox);
    p.parcel[0].words++;
    mailbox_send_turn(&b.sender, &p.parcel[0].item);
    mailbox_unlock(&p.mailbox);
    assert_int_equal(loop_turn(from, -1), 0);
    assert_int_equal(deliveries_after_turn(&p), ITEMS + 1);
    mailbox_fini(&p.mailbox);
    loop_free(from);
    loop_free(p.loop);
}

/* ---- items that are freed with their last word ---- */

#define WORD_FIRST 1u
#define WORD_LAST 2u

static void on_last(void *arg, struct mailbox_item *item)
{
    struct post *p = arg;
    struct parcel *one = CONTAINER_OF(item, struct parcel, item);
    mailbox_open(&p->mailbox, item);
    uint32_t mail = one->mail;
    one->mail = 0;
    mailbox_unlock(&p->mailbox);
    p->deliveries++;
    if (!(mail & WORD_LAST)) return;
    free(one);
    if (++p->open == ROUNDS) loop_stop(p->loop);
}

static void say(struct post *p, struct parcel *one, uint32_t word)
{
    mailbox_lock(&p->mailbox);
    one->mail |= word;
    mailbox_send(&p->mailbox, &one->item);
    mailbox_unlock(&p->mailbox);
}

static void *send_lives(void *arg)
{
    struct post *p = arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct parcel *one = calloc(1, sizeof *one);
        say(p, one, WORD_FIRST);
        say(p, one, WORD_LAST); /* often during the first one's delivery */
    }
    return NULL;
}

static void an_item_may_be_freed_with_its_last_word(void **state)
{
    (void)state;
    struct post p = { 0 };
    pthread_t sender;
    assert_int_equal(loop_new(&p.loop, NULL), 0);
    mailbox_init(&p.mailbox, p.loop, on_last, &p);
    assert_int_equal(pthread_create(&sender, NULL, send_lives, &p), 0);
    assert_int_equal(loop_run(p.loop), 0);
    pthread_join(sender, NULL);
    assert_int_equal(p.open, ROUNDS);
    assert_true(list_empty(&p.mailbox.waiting));
    mailbox_fini(&p.mailbox);
    loop_free(p.loop);
}

/* The second word certainly arrives between the item's delivery and the taking of its mail. */
static void on_crossing(void *arg, struct mailbox_item *item)
{
    struct post *p = arg;
    struct parcel *one = CONTAINER_OF(item, struct parcel, item);
    p->deliveries++;
    say(p, one, WORD_LAST);
    assert_true(list_linked(&item->link));
    mailbox_open(&p->mailbox, item);
    assert_int_equal(one->mail, WORD_FIRST | WORD_LAST);
    one->mail = 0;
    mailbox_unlock(&p->mailbox);
    assert_false(list_linked(&item->link));
}

static void a_word_that_crosses_the_delivery_does_not_queue_again(void **state)
{
    (void)state;
    struct post p = { 0 };
    assert_int_equal(loop_new(&p.loop, NULL), 0);
    mailbox_init(&p.mailbox, p.loop, on_crossing, &p);
    say(&p, &p.parcel[0], WORD_FIRST);
    for (int i = 0; i < 3; i++)
        assert_int_equal(loop_turn(p.loop, 0), 0);
    assert_int_equal(p.deliveries, 1);
    mailbox_fini(&p.mailbox);
    loop_free(p.loop);
}

static int mailbox_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_word_arrives_and_none_twice),
        cmocka_unit_test(mail_that_waits_is_one_delivery_and_one_post),
        cmocka_unit_test(later_mail_waits_for_company_or_its_time),
        cmocka_unit_test(mail_of_a_turn_is_one_post),
        cmocka_unit_test(an_item_may_be_freed_with_its_last_word),
        cmocka_unit_test(a_word_that_crosses_the_delivery_does_not_queue_again),
    };
    return cmocka_run_group_tests_name("mailbox", tests, NULL, NULL);
}

int main(void)
{
    return loop_tests() + mailbox_tests();
}
