/* lane.c - delivers all queued items of a lane by one post to the receiver's loop. */
#include "base/io/loop/lane.h"

void lane_init(struct lane *l, struct loop *loop,
               void (*deliver)(void *arg, struct lane_item *item), void *arg)
{
    *l = (struct lane){ .loop = loop, .deliver = deliver, .arg = arg };
    lock_init(&l->lock);
    list_init(&l->waiting);
}

void lane_fini(struct lane *l)
{
    lock_fini(&l->lock);
}

void lane_lock(struct lane *l)
{
    lock_take(&l->lock);
}

static void enqueue(struct lane *l, struct lane_item *item)
{
    lock_assert_held(&l->lock);
    if (!list_linked(&item->link)) list_push_back(&l->waiting, &item->link);
}

void lane_send(struct lane *l, struct lane_item *item)
{
    enqueue(l, item);
    l->hurry = true;
}

void lane_open(struct lane *l, struct lane_item *item)
{
    lock_take(&l->lock);
    if (list_linked(&item->link)) list_remove(&item->link);
}

static void run(void *arg)
{
    struct lane *l = arg;
    lane_lock(l);
    struct list *node;
    while ((node = list_pop_front(&l->waiting))) {
        lock_drop(&l->lock);
        l->deliver(l->arg, CONTAINER_OF(node, struct lane_item, link));
        lock_take(&l->lock);
    }
    l->hurry = false;
    l->posted = false; /* items sent meanwhile were delivered above, without another post */
    lock_drop(&l->lock);
}

void lane_unlock(struct lane *l)
{
    lock_assert_held(&l->lock);
    bool wake = l->hurry && !l->posted && !list_empty(&l->waiting);
    if (wake) l->posted = true;
    lock_drop(&l->lock);
    /* A loop has one post per lane at a time, far below LOOP_POSTS_MAX. */
    if (wake) must(loop_post(l->loop, run, l) == 0);
}

/* Makes the queued mail urgent: it goes out when the lock is dropped. */
static void hurry(void *arg)
{
    struct lane_sender *s = arg;
    lane_lock(s->lane);
    if (!list_empty(&s->lane->waiting)) s->lane->hurry = true;
    lane_unlock(s->lane);
}

void lane_sender_init(struct lane_sender *s, struct lane *l, struct loop *loop)
{
    *s = (struct lane_sender){ .timer = { .fn = hurry }, .lane = l, .loop = loop };
    s->timer.arg = s;
    s->task = (struct loop_task){ .fn = hurry, .arg = s };
}

void lane_send_turn(struct lane_sender *s, struct lane_item *item)
{
    enqueue(s->lane, item);
    if (!s->lane->hurry) loop_defer_last(s->loop, &s->task);
}

void lane_send_later(struct lane_sender *s, struct lane_item *item)
{
    struct lane *l = s->lane;
    enqueue(l, item);
    if (l->hurry || loop_timer_is_set(&s->timer)) return;
    int64_t at_us = loop_now_us(s->loop) + LANE_LATER_US;
    if (loop_timer_set(s->loop, &s->timer, at_us) < 0) l->hurry = true;
}
