/* lane.c - one post to the loop delivers all items that are queued by then. */
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

void lane_send(struct lane *l, struct lane_item *item)
{
    lock_assert_held(&l->lock);
    if (!list_linked(&item->link)) list_push_back(&l->waiting, &item->link);
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
    l->posted = false; /* what was sent meanwhile was delivered above, without another post */
    lock_drop(&l->lock);
}

void lane_unlock(struct lane *l)
{
    lock_assert_held(&l->lock);
    bool wake = l->hurry && !l->posted && !list_empty(&l->waiting);
    if (wake) l->posted = true;
    lock_drop(&l->lock);
    /* A loop gets one post a lane at a time, far below LOOP_POSTS_MAX. */
    if (wake) must(loop_post(l->loop, run, l) == 0);
}

static void on_later(void *arg)
{
    struct lane_later *later = arg;
    lane_lock(later->lane);
    later->lane->hurry = true;
    lane_unlock(later->lane);
}

void lane_later_init(struct lane_later *later, struct lane *l, struct loop *loop)
{
    *later = (struct lane_later){ .timer = { .fn = on_later }, .lane = l, .loop = loop };
    later->timer.arg = later;
}

void lane_send_later(struct lane_later *later, struct lane_item *item)
{
    struct lane *l = later->lane;
    lock_assert_held(&l->lock);
    if (!list_linked(&item->link)) list_push_back(&l->waiting, &item->link);
    if (l->hurry || loop_timer_is_set(&later->timer)) return;
    int64_t at_us = loop_now_us(later->loop) + LANE_LATER_US;
    if (loop_timer_set(later->loop, &later->timer, at_us) < 0) l->hurry = true;
}
