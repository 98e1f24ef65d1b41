/* descriptors.h - the limit of open files and sockets, and how a role divides it.
 *
 * Layer:   base/io (libc)
 * Threads: descriptors_raise before other threads start, the rest any
 * Shares:  a role divides descriptors_usable() among its listeners and clients when it starts. So
 *          connections of strangers never take the descriptors of connections to engines, and
 *          neither takes those of files and the store.
 */
#pragma once
#include <stdint.h>

/* Files, store, logs, epoll, signals, pipes to children, the model and its device: never counted in
 * a share. Half of the limit where the limit is below 256. */
#define DESCRIPTORS_RESERVE 128

/* Raises the soft limit to the hard one, and logs what holds from now on. */
void descriptors_raise(void);

/* The soft limit without the reserve, at least 1. */
uint32_t descriptors_usable(void);

/* `of_100` per cent of what is usable, for one of `parts`, at most `most` (0: no bound), at least 1. */
uint32_t descriptors_share(uint32_t of_100, uint32_t parts, uint32_t most);
