/* lane.h - a mailbox between two loops: items queue at most once, mail is merged while it waits.
 *
 * Layer:   base/io (loop)
 * Threads: lane_send from any thread, the sender's other two on the thread of the sender's loop; the
 *          lane's lock is held; `deliver` on the thread of the lane's loop
 * Bound:   an item is queued once, so a lane holds at most as many as there are items (requests);
 *          nothing is allocated and nothing can be refused
 *
 *     lane_lock(l); r->ask |= ASK_TOKENS; r->ask_tokens += n; lane_send(l, &r->item); lane_unlock(l);
 *
 * The receiver takes its mail under the same lock. Mail that came after the item left the queue
 * has queued it again; lane_open takes it out, so that an item whose mail was taken is on no list
 * and may be freed when its last mail came:
 *
 *     lane_open(l, item); mail = r->ask; r->ask = 0; lane_unlock(l);
 *
 * A receiver that sleeps is woken by a system call, which takes the sender as long as writing the mail
 * takes many times over. A sender that is a loop wakes it once for all mail of a turn (lane_send_turn).
 * Mail that may wait longer goes with lane_send_later: it arrives with the next mail that may not, or
 * when LANE_LATER_US have passed.
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
    bool hurry;  /* some of what waits may not wait */
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

/* A loop that sends to a lane; belongs to the thread of `loop`. */
struct lane_sender {
    struct loop_timer timer;
    struct loop_task task;
    struct lane *lane;
    struct loop *loop;
};
void lane_sender_init(struct lane_sender *s, struct lane *l, struct loop *loop);
void lane_send_turn(struct lane_sender *s, struct lane_item *item);  /* with the lock held */
void lane_send_later(struct lane_sender *s, struct lane_item *item); /* with the lock held */
