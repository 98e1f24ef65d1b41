/* mailbox.h - carries items from other threads to a loop: an item queues at most once, its mail is merged while it
 * waits.
 *
 * Layer:   base/io (loop)
 * Threads: mailbox_send from any thread; mailbox_send_turn and mailbox_send_later on the thread of the sender's
 *          loop; all three with the mailbox's lock held. `deliver` on the thread of the mailbox's loop
 * Bound:   an item is queued once, so a mailbox holds at most as many as there are items (requests);
 *          nothing is allocated and nothing can be refused
 *
 *     mailbox_lock(m); r->ask |= ASK_TOKENS; r->ask_tokens += n; mailbox_send(m, &r->item); mailbox_unlock(m);
 *
 * The receiver takes its mail under the same lock. Mail that came after the item left the queue
 * has queued it again; mailbox_open takes the item out, so that it is on no list once its mail was taken,
 * and may be freed after its last mail:
 *
 *     mailbox_open(m, item); mail = r->ask; r->ask = 0; mailbox_unlock(m);
 *
 * A system call wakes a receiver that sleeps; it takes the sender many times as long as writing the mail.
 * A sender that is a loop wakes it once for all mail of a turn (mailbox_send_turn). Mail that may wait longer
 * goes with mailbox_send_later: it arrives with the next mail that may not wait, or after MAILBOX_LATER_US.
 */
#pragma once
#include "base/core/list.h"
#include "base/io/loop/lock.h"
#include "base/io/loop/loop.h"

#define MAILBOX_LATER_US 10000

struct mailbox_item {
    struct list link;
};

struct mailbox {
    struct lock lock;
    struct list waiting;
    struct loop *loop;
    bool posted; /* a post to the loop is under way */
    bool hurry;  /* some of the queued mail is urgent */
    void (*deliver)(void *arg, struct mailbox_item *item);
    void *arg;
};

void mailbox_init(struct mailbox *m, struct loop *loop,
                  void (*deliver)(void *arg, struct mailbox_item *item), void *arg);
void mailbox_fini(struct mailbox *m);

void mailbox_lock(struct mailbox *m);
void mailbox_send(struct mailbox *m, struct mailbox_item *item); /* with the lock held */
void mailbox_open(struct mailbox *m, struct mailbox_item *item); /* locks, for the receiver */
void mailbox_unlock(struct mailbox *m);                          /* wakes the receiver */

/* A sender's end of a mailbox; belongs to the thread of `loop`. */
struct mailbox_sender {
    struct loop_timer timer;
    struct loop_task task;
    struct mailbox *mailbox;
    struct loop *loop;
};
void mailbox_sender_init(struct mailbox_sender *s, struct mailbox *m, struct loop *loop);
void mailbox_send_turn(struct mailbox_sender *s,
                       struct mailbox_item *item); /* with the lock held */
void mailbox_send_later(struct mailbox_sender *s,
                        struct mailbox_item *item); /* with the lock held */
