/* charges.h - keeps what instances cost true to what their providers list, and sums up.
 *
 * Layer:   controller, private to it
 * Threads: the loop's
 */
#pragma once
#include "controller/control_state.h"

/* Ends the charge of an intent that has just ended in `copy`, begins another where its instance came late, and takes
 * the beginning that its provider has told. */
void control_settle_charge(const struct control *c, uint32_t at, struct intent *copy,
                           int64_t now_us);
/* Bills on from a stop, or from a start, that `action` and the change in `copy` tell of. */
void control_settle_stop(const struct control *c, uint32_t at, struct intent *copy,
                         enum intent_action action, int64_t now_us);
/* Compares a live intent's charge with its entry in a listing. */
void control_reconcile(struct control *c, uint32_t at, const struct listed *item, int64_t now_us);
/* Counts an instance that ended and that nobody here has ended. */
void control_note_gone(struct control *c, uint32_t at, int64_t now_us);
/* The strays of a new listing: each one that it shows, then the end of those that it does not. */
void control_see_stray(struct control *c, uint32_t cloud, const struct listed *item,
                       int64_t now_us);
void control_end_strays(struct control *c, uint32_t cloud, int64_t now_us);
/* Sets which instances of offers with reserved ones cost nothing more, the oldest, and counts what all reserved ones
 * have cost. */
void control_use_reserved(struct control *c, int64_t now_us);
/* Returns what one more instance of the offer costs an hour. */
double control_price_of_next(const struct control *c, uint32_t offer);
/* Sets what running instances of an offer cost from now on. */
void control_reprice(struct control *c, uint32_t offer, double price_h, int64_t now_us);
void control_count_tokens(struct control *c, int64_t now_us);
int control_flush_cost(struct control *c, int64_t now_us);
double control_cost_total(const struct control *c, int64_t now_us);

/* Returns the dollars by which the total may be too large. */
double control_cost_unsure(const struct control *c, int64_t now_us);

/* Returns the cost of a service, or of one pool of it (NULL: all), as of this tick. */
struct bill_spent control_spent(const struct control *c, uint32_t service, const char *pool);

/* Returns dollars an hour of what runs now: of a service, or of one of its pools (PLAN_NONE: all). */
double control_per_h(const struct control *c, uint32_t service, uint32_t pool);

/* Returns dollars for a million tokens; NAN where none was counted. */
double control_per_mtoken(double dollars, double mtokens);

/* Write the member "cost" or "tenants" of a view (api_cost.c). */
void control_put_cost(struct json_writer *w, const struct control *c, int64_t now_us);
void control_put_tenants(struct json_writer *w, const struct control *c);
