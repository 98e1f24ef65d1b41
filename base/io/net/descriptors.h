/* descriptors.h - raises the limit of open files and sockets, and divides it within a role.
 *
 * Layer:   base/io (libc)
 * Threads: descriptors_raise before other threads start, the rest any
 * Shares:  a role divides descriptors_usable() among its listeners and clients when it starts. So
 *          connections of strangers never take the descriptors of connections to engines, and
 *          neither takes those of files and the store
 */
#pragma once
#include <stdint.h>

/* Descriptors kept out of the shares: files, store, logs, epoll, signals, pipes to children, the model
 * and its device. Half of the limit where the limit is below 256. */
#define DESCRIPTORS_RESERVE 128

/* Raises the soft limit to the hard one, and logs the result. */
void descriptors_raise(void);

/* Returns the soft limit without the reserve, at least 1. */
uint32_t descriptors_usable(void);

/* Returns one of `parts` equal shares of `of_100` per cent of the usable descriptors: at least 1, at most
 * `most` (0: no bound). */
uint32_t descriptors_share(uint32_t of_100, uint32_t parts, uint32_t most);
