/* mailbox.c - delivers all queued items of a mailbox by one post to the receiver's loop. */
#include "base/io/loop/mailbox.h"

void mailbox_init(struct mailbox *m, struct loop *loop,
                  void (*deliver)(void *arg, struct mailbox_item *item), void *arg)
{
    *m = (struct mailbox){ .loop = loop, .deliver = deliver, .arg = arg };
    lock_init(&m->lock);
    list_init(&m->waiting);
}

void mailbox_fini(struct mailbox *m)
{
    lock_fini(&m->lock);
}

void mailbox_lock(struct mailbox *m)
{
    lock_take(&m->lock);
}

static void enqueue(struct mailbox *m, struct mailbox_item *item)
{
    lock_assert_held(&m->lock);
    if (!list_linked(&item->link)) list_push_back(&m->waiting, &item->link);
}

void mailbox_send(struct mailbox *m, struct mailbox_item *item)
{
    enqueue(m, item);
    m->hurry = true;
}

void mailbox_open(struct mailbox *m, struct mailbox_item *item)
{
    lock_take(&m->lock);
    if (list_linked(&item->link)) list_remove(&item->link);
}

static void run(void *arg)
{
    struct mailbox *m = arg;
    mailbox_lock(m);
    struct list *node;
    while ((node = list_pop_front(&m->waiting))) {
        lock_drop(&m->lock);
        m->deliver(m->arg, CONTAINER_OF(node, struct mailbox_item, link));
        lock_take(&m->lock);
    }
    m->hurry = false;
    m->posted = false; /* items sent meanwhile were delivered above, without another post */
    lock_drop(&m->lock);
}

void mailbox_unlock(struct mailbox *m)
{
    lock_assert_held(&m->lock);
    bool wake = m->hurry && !m->posted && !list_empty(&m->waiting);
    if (wake) m->posted = true;
    lock_drop(&m->lock);
    /* A loop has one post per mailbox at a time, far below LOOP_POSTS_MAX. */
    if (wake) must(loop_post(m->loop, run, m) == 0);
}

/* Makes the queued mail urgent: it goes out when the lock is dropped. */
static void hurry(void *arg)
{
    struct mailbox_sender *s = arg;
    mailbox_lock(s->mailbox);
    if (!list_empty(&s->mailbox->waiting)) s->mailbox->hurry = true;
    mailbox_unlock(s->mailbox);
}

void mailbox_sender_init(struct mailbox_sender *s, struct mailbox *m, struct loop *loop)
{
    *s = (struct mailbox_sender){ .timer = { .fn = hurry }, .mailbox = m, .loop = loop };
    s->timer.arg = s;
    s->task = (struct loop_task){ .fn = hurry, .arg = s };
}

void mailbox_send_turn(struct mailbox_sender *s, struct mailbox_item *item)
{
    enqueue(s->mailbox, item);
    if (!s->mailbox->hurry) loop_defer_last(s->loop, &s->task);
}

void mailbox_send_later(struct mailbox_sender *s, struct mailbox_item *item)
{
    struct mailbox *m = s->mailbox;
    enqueue(m, item);
    if (m->hurry || loop_timer_is_set(&s->timer)) return;
    int64_t at_us = loop_now_us(s->loop) + MAILBOX_LATER_US;
    if (loop_timer_set(s->loop, &s->timer, at_us) < 0) m->hurry = true;
}
