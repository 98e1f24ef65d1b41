/* t_lane.c - two threads, one lane: every word arrives, merged or not, and items may be freed. */
#include "base/io/loop/lane.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

#define ITEMS 8
#define WORDS 20000 /* by item */
#define ROUNDS 4000 /* items that live for two words */

struct parcel {
    struct lane_item item;
    uint32_t mail, words; /* under the lane's lock */
    uint32_t heard;       /* the receiver's */
};

struct post {
    struct lane lane;
    struct loop *loop;
    struct parcel parcel[ITEMS];
    uint32_t deliveries, open;
};

static void on_parcel(void *arg, struct lane_item *item)
{
    struct post *p = arg;
    struct parcel *one = CONTAINER_OF(item, struct parcel, item);
    lane_open(&p->lane, item);
    uint32_t words = one->words;
    one->words = 0;
    lane_unlock(&p->lane);
    one->heard += words;
    p->deliveries++;
    if (one->heard == WORDS && words > 0 && --p->open == 0) loop_stop(p->loop);
}

static void *send_words(void *arg)
{
    struct post *p = arg;
    for (uint32_t i = 0; i < ITEMS * WORDS; i++) {
        struct parcel *one = &p->parcel[i % ITEMS];
        lane_lock(&p->lane);
        one->words++;
        lane_send(&p->lane, &one->item);
        lane_unlock(&p->lane);
    }
    return NULL;
}

/* A wake-up that is lost would leave the loop waiting: the test's time limit ends it. */
static void every_word_arrives_and_none_twice(void **state)
{
    (void)state;
    struct post p = { .open = ITEMS };
    pthread_t sender;
    assert_int_equal(loop_new(&p.loop, NULL), 0);
    lane_init(&p.lane, p.loop, on_parcel, &p);
    assert_int_equal(pthread_create(&sender, NULL, send_words, &p), 0);
    assert_int_equal(loop_run(p.loop), 0);
    pthread_join(sender, NULL);
    for (int i = 0; i < ITEMS; i++)
        assert_int_equal(p.parcel[i].heard, WORDS);
    assert_true(p.deliveries <= ITEMS * WORDS);
    lane_fini(&p.lane);
    loop_free(p.loop);
}

static uint32_t deliveries_after_turn(struct post *p)
{
    assert_int_equal(loop_turn(p->loop, 0), 0);
    return p->deliveries;
}

/* Mail that may wait wakes nobody: it comes along with mail that may not, or when its time is up. */
static void later_mail_waits_for_company_or_its_time(void **state)
{
    (void)state;
    struct post p = { .open = 1 };
    struct lane_sender later;
    struct loop_counts counts;
    assert_int_equal(loop_new(&p.loop, NULL), 0);
    lane_init(&p.lane, p.loop, on_parcel, &p);
    lane_sender_init(&later, &p.lane, p.loop);
    for (uint32_t round = 0; round < 2; round++) {
        lane_lock(&p.lane);
        p.parcel[0].words++;
        lane_send_later(&later, &p.parcel[0].item);
        lane_unlock(&p.lane);
        loop_counts_get(p.loop, &counts);
        assert_int_equal(counts.posts, round);
        if (round == 0) {
            lane_lock(&p.lane);
            p.parcel[1].words++;
            lane_send(&p.lane, &p.parcel[1].item);
            lane_unlock(&p.lane);
            assert_int_equal(deliveries_after_turn(&p), 2);
        }
        while (p.deliveries < 2 + round)
            assert_int_equal(loop_turn(p.loop, -1), 0); /* ends by the lane's own timer */
    }
    assert_int_equal(p.parcel[0].heard, 2);
    lane_fini(&p.lane);
    loop_free(p.loop);
}

static void mail_that_waits_is_one_delivery_and_one_post(void **state)
{
    (void)state;
    struct post p = { .open = 1 };
    struct loop_counts counts;
    assert_int_equal(loop_new(&p.loop, NULL), 0);
    lane_init(&p.lane, p.loop, on_parcel, &p);
    for (int i = 0; i < 100; i++) {
        lane_lock(&p.lane);
        p.parcel[i % 2].words++;
        lane_send(&p.lane, &p.parcel[i % 2].item);
        lane_unlock(&p.lane);
    }
    assert_int_equal(loop_turn(p.loop, 0), 0);
    loop_counts_get(p.loop, &counts);
    assert_int_equal(counts.posts, 1);
    assert_int_equal(p.deliveries, 2);
    assert_int_equal(p.parcel[0].heard, 50);
    assert_int_equal(p.parcel[1].heard, 50);
    assert_int_equal(loop_turn(p.loop, 0), 0);
    assert_int_equal(p.deliveries, 2);
    lane_fini(&p.lane);
    loop_free(p.loop);
}

/* ---- a loop that sends: one wake-up a turn ---- */

struct busy_turn {
    struct post *to;
    struct lane_sender sender;
    struct loop_task task[ITEMS];
};

static void send_in_turn(void *arg)
{
    struct busy_turn *b = arg;
    struct loop_counts counts;
    for (uint32_t i = 0; i < ITEMS; i++) {
        lane_lock(&b->to->lane);
        b->to->parcel[i].words++;
        lane_send_turn(&b->sender, &b->to->parcel[i].item);
        lane_unlock(&b->to->lane);
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
    lane_init(&p.lane, p.loop, on_parcel, &p);
    lane_sender_init(&b.sender, &p.lane, from);
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
    /* From outside of a turn: the next one does not wait, and sends it. */
    lane_lock(&p.lane);
    p.parcel[0].words++;
    lane_send_turn(&b.sender, &p.parcel[0].item);
    lane_unlock(&p.lane);
    assert_int_equal(loop_turn(from, -1), 0);
    assert_int_equal(deliveries_after_turn(&p), ITEMS + 1);
    lane_fini(&p.lane);
    loop_free(from);
    loop_free(p.loop);
}

/* ---- items that are freed with their last word ---- */

#define WORD_FIRST 1u
#define WORD_LAST 2u

static void on_last(void *arg, struct lane_item *item)
{
    struct post *p = arg;
    struct parcel *one = CONTAINER_OF(item, struct parcel, item);
    lane_open(&p->lane, item);
    uint32_t mail = one->mail;
    one->mail = 0;
    lane_unlock(&p->lane);
    p->deliveries++;
    if (!(mail & WORD_LAST)) return;
    free(one);
    if (++p->open == ROUNDS) loop_stop(p->loop);
}

static void say(struct post *p, struct parcel *one, uint32_t word)
{
    lane_lock(&p->lane);
    one->mail |= word;
    lane_send(&p->lane, &one->item);
    lane_unlock(&p->lane);
}

static void *send_lives(void *arg)
{
    struct post *p = arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct parcel *one = calloc(1, sizeof *one);
        say(p, one, WORD_FIRST);
        say(p, one, WORD_LAST); /* often while the first is being delivered */
    }
    return NULL;
}

static void an_item_may_be_freed_with_its_last_word(void **state)
{
    (void)state;
    struct post p = { 0 };
    pthread_t sender;
    assert_int_equal(loop_new(&p.loop, NULL), 0);
    lane_init(&p.lane, p.loop, on_last, &p);
    assert_int_equal(pthread_create(&sender, NULL, send_lives, &p), 0);
    assert_int_equal(loop_run(p.loop), 0);
    pthread_join(sender, NULL);
    assert_int_equal(p.open, ROUNDS);
    assert_true(list_empty(&p.lane.waiting));
    lane_fini(&p.lane);
    loop_free(p.loop);
}

/* The same without chance: the second word falls between the queue and the taking of the mail. */
static void on_crossing(void *arg, struct lane_item *item)
{
    struct post *p = arg;
    struct parcel *one = CONTAINER_OF(item, struct parcel, item);
    p->deliveries++;
    say(p, one, WORD_LAST);
    assert_true(list_linked(&item->link));
    lane_open(&p->lane, item);
    assert_int_equal(one->mail, WORD_FIRST | WORD_LAST);
    one->mail = 0;
    lane_unlock(&p->lane);
    assert_false(list_linked(&item->link));
}

static void a_word_that_crosses_the_delivery_does_not_queue_again(void **state)
{
    (void)state;
    struct post p = { 0 };
    assert_int_equal(loop_new(&p.loop, NULL), 0);
    lane_init(&p.lane, p.loop, on_crossing, &p);
    say(&p, &p.parcel[0], WORD_FIRST);
    for (int i = 0; i < 3; i++)
        assert_int_equal(loop_turn(p.loop, 0), 0);
    assert_int_equal(p.deliveries, 1);
    lane_fini(&p.lane);
    loop_free(p.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_word_arrives_and_none_twice),
        cmocka_unit_test(mail_that_waits_is_one_delivery_and_one_post),
        cmocka_unit_test(later_mail_waits_for_company_or_its_time),
        cmocka_unit_test(mail_of_a_turn_is_one_post),
        cmocka_unit_test(an_item_may_be_freed_with_its_last_word),
        cmocka_unit_test(a_word_that_crosses_the_delivery_does_not_queue_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
