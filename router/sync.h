/* sync.h - talks with the controller, and asks the engines that the configuration names.
 *
 * Layer:   router
 * Threads: the decision thread only
 * Rules:   without a reply the last rules stay in force: routing goes on for as long as engines answer
 */
#pragma once
#include "base/core/err.h"

#include <stdint.h>

struct decide;
struct sync;

int sync_new(struct decide *d, uint16_t port, struct sync **ret, struct err *err);
void sync_free(struct sync *s);
void sync_hurry(struct sync *s); /* sooner than at its turn: a request is held, a tokenizer came */
