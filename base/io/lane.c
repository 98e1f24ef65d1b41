/* lane.c - one post to the loop for all that is queued meanwhile. */
#include "base/io/lane.h"

void lane_init(struct lane *l, struct loop *loop,
               void (*deliver)(void *arg, struct lane_item *item), void *arg)
{
    *l = (struct lane){ .loop = loop, .deliver = deliver, .arg = arg };
    pthread_mutex_init(&l->lock, NULL);
    list_init(&l->waiting);
}

void lane_fini(struct lane *l)
{
    pthread_mutex_destroy(&l->lock);
}

void lane_lock(struct lane *l)
{
    pthread_mutex_lock(&l->lock);
}

void lane_send(struct lane *l, struct lane_item *item)
{
    if (!list_linked(&item->link)) list_push_back(&l->waiting, &item->link);
}

void lane_open(struct lane *l, struct lane_item *item)
{
    pthread_mutex_lock(&l->lock);
    if (list_linked(&item->link)) list_remove(&item->link);
}

static void run(void *arg)
{
    struct lane *l = arg;
    lane_lock(l);
    struct list *node;
    while ((node = list_pop_front(&l->waiting))) {
        pthread_mutex_unlock(&l->lock);
        l->deliver(l->arg, CONTAINER_OF(node, struct lane_item, link));
        pthread_mutex_lock(&l->lock);
    }
    l->posted = false; /* what was sent meanwhile was delivered above, without another post */
    pthread_mutex_unlock(&l->lock);
}

void lane_unlock(struct lane *l)
{
    bool wake = !l->posted && !list_empty(&l->waiting);
    if (wake) l->posted = true;
    pthread_mutex_unlock(&l->lock);
    /* A loop gets one post a lane at a time, far below LOOP_POSTS_MAX. */
    if (wake) must(loop_post(l->loop, run, l) == 0);
}
