/* lane.h - a mailbox between two loops: items queue at most once, mail is merged while it waits.
 *
 * Layer:   base/io (loop)
 * Threads: lane_send from any thread; lane_send_turn and lane_send_later on the thread of the sender's
 *          loop; all three with the lane's lock held. `deliver` on the thread of the lane's loop
 * Bound:   an item is queued once, so a lane holds at most as many as there are items (requests);
 *          nothing is allocated and nothing can be refused
 *
 *     lane_lock(l); r->ask |= ASK_TOKENS; r->ask_tokens += n; lane_send(l, &r->item); lane_unlock(l);
 *
 * The receiver takes its mail under the same lock. Mail that came after the item left the queue
 * has queued it again; lane_open takes the item out, so that it is on no list once its mail was taken,
 * and may be freed after its last mail:
 *
 *     lane_open(l, item); mail = r->ask; r->ask = 0; lane_unlock(l);
 *
 * A system call wakes a receiver that sleeps; it takes the sender many times as long as writing the mail.
 * A sender that is a loop wakes it once for all mail of a turn (lane_send_turn). Mail that may wait longer
 * goes with lane_send_later: it arrives with the next mail that may not wait, or after LANE_LATER_US.
 */
#pragma once
#include "base/core/list.h"
#include "base/io/loop/lock.h"
#include "base/io/loop/loop.h"

#define LANE_LATER_US 10000

struct lane_item {
    struct list link;
};

struct lane {
    struct lock lock;
    struct list waiting;
    struct loop *loop;
    bool posted; /* a post to the loop is under way */
    bool hurry;  /* some of the queued mail is urgent */
    void (*deliver)(void *arg, struct lane_item *item);
    void *arg;
};

void lane_init(struct lane *l, struct loop *loop,
               void (*deliver)(void *arg, struct lane_item *item), void *arg);
void lane_fini(struct lane *l);

void lane_lock(struct lane *l);
void lane_send(struct lane *l, struct lane_item *item); /* with the lock held */
void lane_open(struct lane *l, struct lane_item *item); /* locks, for the receiver */
void lane_unlock(struct lane *l);                       /* wakes the receiver */

/* A sender's end of a lane; belongs to the thread of `loop`. */
struct lane_sender {
    struct loop_timer timer;
    struct loop_task task;
    struct lane *lane;
    struct loop *loop;
};
void lane_sender_init(struct lane_sender *s, struct lane *l, struct loop *loop);
void lane_send_turn(struct lane_sender *s, struct lane_item *item);  /* with the lock held */
void lane_send_later(struct lane_sender *s, struct lane_item *item); /* with the lock held */
