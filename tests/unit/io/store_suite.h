/* store_suite.h - the cases that every backend of the store passes; t_store, t_store_redis and t_store_kube run them.
 *
 * A case gets a store that was just opened and is empty.
 */
#pragma once
#include "base/io/store/store.h"

void suite_run(struct store *(*open)(void));

/* Two handles on one store: `join` makes the second. */
void suite_share(struct store *(*open)(void), struct store *(*join)(struct store *));

/* Takes the lease at once, without the wait that store_election.h asks for. */
void suite_lead(struct store *s, const char *holder);

/* The same, tried until the store takes it, for up to `most_us`: it may just have come back. */
void suite_lead_again(struct store *s, int64_t most_us);

/* Makes the same `count` operations, drawn from a seed, on both, which answer alike. */
void suite_random(struct store *a, struct store *b, int count);

/* Checks that both have the same content after suite_random. */
void suite_same(struct store *a, struct store *b);

void assert_value(struct store *s, struct str key, struct str value, uint64_t version);

/* Append "KEY=VALUE " and "SEQ:VALUE " to the buffer `ctx`. A value "stop" ends the walk. */
int keep_key(void *ctx, const struct store_entry *e);
int keep_record(void *ctx, const struct store_record *r);

/* Content by which a test sees whether a store comes back whole: suite_fill writes 100 records and three of suite_log;
 * suite_assert_whole checks that they are all there, and that versions go on behind `version`. Once for a store. */
extern const struct store_log suite_log;
void suite_fill(struct store *s, uint64_t *ret_version);
void suite_assert_whole(struct store *s, uint64_t version);
uint32_t suite_count(struct store *s, struct str prefix);
